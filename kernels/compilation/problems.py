"""What goes wrong where C++ is compiled and loaded."""

from __future__ import annotations

import warnings

_warned: set[str] = set()


class BuildError(Exception):
    """C++ cannot serve: a sentence, and in ``output`` what the compiler or the loader printed."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.output = output

    @property
    def first_error(self) -> str | None:
        """The first line in which the compiler speaks of an error."""
        return next((line.strip() for line in self.output.splitlines() if "error:" in line), None)


def warn_once(kind: str, message: str) -> None:
    """Warn of a kind of problem, once per process."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
