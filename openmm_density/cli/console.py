"""What a terminal shows: results, and the progress of a fit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..fitting.progress_bars import TerminalBar
from ..stopwatch import PARTS

if TYPE_CHECKING:
    from rich.console import Console

    from ..fitting.fit_result import Row


def console_for_results() -> Console:
    """Return a console for results: a terminal's width, and in a pipe lines as long as they are."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _LONGEST_LINE
    return Console(highlight=False, markup=False, emoji=False, width=width)


_LONGEST_LINE = 100_000
SYMMETRY = "symmetry of the map"
"""What is said while symmetries are tried on a map one after the other."""


class Display:
    """Progress on a terminal; in a pipe nothing but a line for each milestone.

    Parameters
    ----------
    stages : sequence of (str, bool)
        As for `openmm_density.fitting.fit_clock.Clock`.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._bar = TerminalBar(stages)
        self._is_stepping = bool(stages)

    def __enter__(self) -> Display:
        self._bar.start("start-up")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the display; what it showed last stays."""
        self._bar.stop()

    def begin(self, part: str) -> None:
        """Show which part of a `Stopwatch` begins, unless stages are shown, which say more."""
        if not self._is_stepping:
            self._bar.describe(PARTS[part])

    def expect(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        """Set the stages to come; without any, parts are shown again."""
        self._is_stepping = bool(stages)
        self._bar.expect(stages)

    def print(self, text: str) -> None:
        """Print a line above the progress."""
        if self._bar.is_shown:
            self._bar.console.print(text)

    def milestone(self, text: str) -> None:
        """Print a line on what minutes of work have come to: above the progress, and in a pipe as well."""
        if self._bar.is_shown:
            self._bar.console.print(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def update(self, step: int, total: int, stage: str, row: Row | None) -> None:
        """Show the step and what is being done, and the figures of a row where there is one."""
        self._bar.update(step, total, stage, row)

    def interrupted(self, doing: str = "minimising, writing results") -> None:
        """Show at once that Ctrl-C was received."""
        self.print(f"Interrupted: finishing this step, {doing}; Ctrl-C again to stop now")
        # A second signal leaves no time to restore it.
        self._bar.console.show_cursor(True)

    def ended(self, said: str) -> None:
        """Print what becomes of a fit that a second Ctrl-C ends now."""
        if not self._bar.is_shown:
            print(said, file=sys.stderr, flush=True)
            return
        self._bar.console.print(said, soft_wrap=True)
        # The cursor is behind the progress bar, where the shell's prompt would follow.
        print(file=self._bar.console.file, flush=True)
