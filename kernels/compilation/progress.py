"""What is being compiled, in a line of the terminal that counts the seconds: without it a first use seems to hang."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_START_OF_LINE = "\r\x1b[K"
_SECONDS = 1.0


class _Line:
    """One line for all threads, from the first thing that is compiled to the end of the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: list[str] = []
        self._done: list[str] = []
        self._started = 0.0
        self._ended = threading.Event()

    def begin(self, title: str) -> None:
        with self._lock:
            if not self._under_way:
                self._started, self._done, self._ended = time.monotonic(), [], threading.Event()
            self._under_way.append(title)
            self._show()
            if len(self._under_way) == 1 and _rewrites():
                threading.Thread(target=self._count, args=(self._ended,), daemon=True).start()

    def end(self, title: str, was_compiled: bool) -> None:
        with self._lock:
            self._under_way.remove(title)
            if was_compiled:
                self._done.append(title)
            if self._under_way:
                self._show()
                return
            self._ended.set()
            if _rewrites():
                seconds = time.monotonic() - self._started
                said = f"openmm-density: compiled the {_listed(self._done)}, in {seconds:.0f} s\n"
                _write(f"{_START_OF_LINE}{said if self._done else ''}")

    def _show(self) -> None:
        """Show what is under way: where every line stays, in a notebook or above a progress bar, only the first time."""
        if _rewrites():
            said = f"openmm-density: compiling the {_listed(self._under_way)} for this processor, once"
            _write(f"{_START_OF_LINE}{said} ({time.monotonic() - self._started:.0f} s)")
        elif _is_watched() and len(self._under_way) + len(self._done) == 1:
            _write("openmm-density: compiling kernels for this processor, once (10 to 30 s)\n")

    def _count(self, ended: threading.Event) -> None:
        while not ended.wait(_SECONDS):
            with self._lock:
                if not ended.is_set():
                    self._show()


_line = _Line()


def _fresh_line() -> None:
    global _line
    _line = _Line()


os.register_at_fork(after_in_child=_fresh_line)


@contextmanager
def shown(title: str) -> Iterator[None]:
    """Say that something is being compiled while this lasts, where somebody watches: in a terminal or a notebook."""
    line = _line
    line.begin(title)
    was_compiled = False
    try:
        yield
        was_compiled = True
    finally:
        line.end(title, was_compiled)


def _listed(titles: list[str]) -> str:
    """Return titles as in ``density, planarity and scatter kernels``."""
    kernels = [title.removesuffix(" kernel") for title in titles if title.endswith(" kernel")]
    others = [title for title in titles if not title.endswith(" kernel")]
    if kernels:
        named = " and ".join(filter(None, [", ".join(kernels[:-1]), kernels[-1]]))
        others.insert(0, f"{named} kernel{'s' if len(kernels) > 1 else ''}")
    return ", ".join(others)


def _rewrites() -> bool:
    # Rich passes on whole lines alone while it draws.
    return _is_terminal() and not hasattr(sys.stderr, "rich_proxied_file")


def _is_watched() -> bool:
    return _is_terminal() or "ipykernel" in sys.modules


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # a terminal that was closed
        sys.stderr.write(text)
        sys.stderr.flush()
