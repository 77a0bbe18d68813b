"""What a terminal shows: results, and the progress of a fit."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

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


class Clock:
    """The time that the remaining steps will take, or, outside dynamics, the time since the last step.

    Parameters
    ----------
    stages : sequence of (str, bool)
        The stages to come by their names, and whether parts of the model are rebuilt before each.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._names = [name for name, _ in stages]
        self._rebuilds = [rebuilds for _, rebuilds in stages]
        # The current stage, -1 before the first, and whether something else has been done since its last steps.
        self._place, self._has_left = -1, True
        self._doing, self._step, self._total = "", math.inf, 1
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._is_stepping = False
        self._last = self._advanced = time.monotonic()

    def update(self, step: int, total: int, doing: str) -> None:
        """Take the step and the activity of the fit."""
        now = time.monotonic()
        # The last steps before an interruption are reported together with what is done after them.
        self._is_stepping = step > self._step and (doing in self._names or not self._names)
        if self._is_stepping and doing == self._doing:
            # Only between two updates of one stage nothing but steps was made.
            self._recent.append((step - self._step, now - self._last))
        if self._is_stepping:
            self._advanced = now
        # A search separates two stages, also where these have the same name.
        begin = self._place + self._has_left
        if doing in self._names[begin:]:
            self._place = self._names.index(doing, begin)
        self._has_left = doing not in self._names
        self._doing, self._step, self._total, self._last = doing, step, total, now

    def __str__(self) -> str:
        """Return the time as in ``0:02:40 + 3 searches``, which are not steps and whose time is unknown."""
        if not self._is_stepping:
            return _clock(time.monotonic() - self._advanced)
        steps, seconds = (sum(values) for values in zip((0, 0.0), *self._recent))
        left = _clock(seconds / steps * (self._total - self._step)) if steps else "-:--:--"
        searches = sum(self._rebuilds[self._place + 1 :])
        return left if not searches else f"{left} + {searches} search{'es' if searches > 1 else ''}"


# Times between updates, of 40 steps each.
_RECENT = 100


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class Display:
    """Progress on a terminal, nothing in a pipe.

    Parameters
    ----------
    stages : sequence of (str, bool)
        As for `Clock`.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._clock = Clock(stages)
        self._is_stepping = bool(stages)

    def __enter__(self) -> Display:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            # An object, so that the time is current whenever the line is drawn.
            TextColumn("{task.fields[clock]}"),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("start-up", total=1, steps="", figures="", clock=self._clock)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the display; what it showed last stays."""
        self._progress.stop()

    def begin(self, part: str) -> None:
        """Show which part of a `Stopwatch` begins, unless stages are shown, which say more."""
        if not self._is_stepping:
            self._progress.update(self._task, description=PARTS[part])

    def expect(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        """Set the stages to come, as for `Clock`; without any, parts are shown again."""
        self._clock, self._is_stepping = Clock(stages), bool(stages)
        self._progress.update(self._task, clock=self._clock)

    def print(self, text: str) -> None:
        """Print a line above the progress."""
        if not self._progress.disable:
            self._progress.console.print(text)

    def update(self, step: int, total: int, stage: str, row: Row | None) -> None:
        """Show the step and what is being done, and the figures of a row where there is one."""
        self._clock.update(step, total, stage)
        found = {"steps": f"step {step}/{total}"}
        if row is not None:
            rmsd = "" if row.ca_rmsd is None else f"  RMSD {row.ca_rmsd:.2f} Å"
            found["figures"] = f"CC {row.cc:.3f}{rmsd}"
        self._progress.update(self._task, completed=step, total=total, description=stage, **found)

    def interrupted(self, doing: str = "minimising, writing results") -> None:
        """Show at once that Ctrl-C was received."""
        self.print(f"Interrupted: finishing this step, {doing}; Ctrl-C again to stop now")
        # A second signal leaves no time to restore it.
        self._progress.console.show_cursor(True)

    def ended(self, said: str) -> None:
        """Print what becomes of a fit that a second Ctrl-C ends now."""
        if self._progress.disable:
            print(said, file=sys.stderr, flush=True)
            return
        self._progress.console.print(said, soft_wrap=True)
        # The cursor is behind the progress bar, where the shell's prompt would follow.
        print(file=self._progress.console.file, flush=True)
