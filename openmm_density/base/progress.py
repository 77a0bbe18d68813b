"""What is shown while something takes its time: by rich on a terminal, by HTML in a notebook, by a line a minute in a pipe."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .stopwatch import PARTS

if TYPE_CHECKING:
    from rich.console import Console

TOLD_EVERY = 60.0
"""Seconds between two lines in a pipe; in the first ones it stays quiet."""
LONG = 600.0
"""Seconds from which on a fit says beforehand how long it takes."""
REDRAWN_AFTER = 0.25
"""Seconds between two pictures of a notebook's bar: each is sent to the browser."""
SYMMETRY = "symmetry of the map"
"""What is said while symmetries are tried on a map one after the other."""

_LONGEST_LINE = 100_000
# Times between updates, of 40 steps each.
_RECENT = 100


def console_for_progress() -> Console:
    """Return the console that shows what is being done: standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def console_for_results() -> Console:
    """Return a console for results: a terminal's width, and in a pipe lines as long as they are."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _LONGEST_LINE
    return Console(highlight=False, markup=False, emoji=False, width=width)


@contextmanager
def shown_line(doing: str) -> Iterator[Callable[..., None]]:
    """Show a line of what is being done, and yield what changes it, or prints a line that ``stays`` above it."""
    console = console_for_progress()
    if not console.is_terminal:
        yield lambda line, stays=False: None
        return
    with console.status(doing) as status:
        yield lambda line, stays=False: console.print(line) if stays else status.update(line)


@contextmanager
def shown_progress(
    progress: Callable[..., None] | bool | None, stages: Sequence[tuple[str, bool]]
) -> Iterator[Callable[..., None] | None]:
    """Yield what a run calls to tell of its progress; it is shown until the block ends."""
    if callable(progress):
        yield progress
        return
    bar: NotebookBar | Display | None = None
    if progress is not False and in_notebook():
        bar = NotebookBar(stages)
    elif progress:
        bar = Display(stages)
    if bar is None:
        yield None
        return
    bar.start("preparing")
    try:
        yield bar.update
    finally:
        bar.stop()


def in_notebook() -> bool:
    """Return whether what is displayed appears in a notebook: in IPython with a kernel, but not in its shell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Display:
    """A bar on a terminal; in a pipe, after a minute, a line for each stage and each minute. `stages` as for `Clock`."""

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._clock, self._is_stepping = Clock(stages), bool(stages)
        self._lines, self._has_warned = PipeLines(self._line), False

    def __enter__(self) -> Display:
        self.start("start-up")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, doing: str) -> None:
        """Show the bar, and what is done first."""
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            # An object, so that the time is current whenever the line is drawn.
            TextColumn("{task.fields[clock]}"),
            TextColumn("{task.fields[figures]}"),
            console=console_for_progress(),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(doing, total=1, steps="", figures="", clock=self._clock)
        self._bar.start()
        if self._bar.disable:
            self._lines.start()

    def stop(self) -> None:
        """Stop the display; what it showed last stays."""
        self._lines.stop()
        self._bar.stop()

    def refresh(self) -> None:
        """Draw it now."""
        self._bar.refresh()

    def begin(self, part: str) -> None:
        """Show which part of a `Stopwatch` begins, unless stages are shown, which say more."""
        if not self._is_stepping:
            self._bar.update(self._task, description=PARTS.get(part, part))
            self._lines.say(PARTS.get(part, part))

    def expect(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        """Set the stages to come; without any, parts are shown again."""
        self._clock, self._is_stepping = Clock(stages), bool(stages)
        self._bar.update(self._task, clock=self._clock)

    def update(self, step: int, total: int, stage: str, row: Any) -> None:
        """Show the step and what is being done, and the figures of a row where there is one."""
        self._clock.update(step, total, stage)
        found = {"steps": f"step {step}/{total}"}
        if row is not None:
            found["figures"] = figures_of(row)
        self._bar.update(self._task, completed=step, total=total, description=stage, **found)
        self._lines.say(stage)
        left = self._clock.seconds_left
        if left is not None and self._is_stepping and not self._has_warned:
            self._has_warned = True
            if left > LONG:
                self.milestone(f"the {total - step} steps to come will take about {self._clock}")

    def _line(self) -> str:
        """Return what a pipe is told: what is done, and how far it is."""
        task = self._bar.tasks[0]
        left = "" if self._clock.seconds_left is None else f"{self._clock} left"
        told = task.description, task.fields["steps"], task.fields["figures"], left, _memory()
        return ", ".join(each for each in told if each)

    def print(self, text: str) -> None:
        """Print a line above the progress."""
        if not self._bar.disable:
            self._bar.console.print(text)

    def milestone(self, text: str) -> None:
        """Print a line on what minutes of work have come to: above the progress, and in a pipe as well."""
        if self._bar.disable:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text)

    def interrupted(self, doing: str = "minimising, writing results") -> None:
        """Show at once that Ctrl-C was received."""
        self.print(f"Interrupted: finishing this step, {doing}; Ctrl-C again to stop now")
        # A second signal leaves no time to restore it.
        self._bar.console.show_cursor(True)

    def ended(self, said: str) -> None:
        """Print what becomes of a fit that a second Ctrl-C ends now."""
        if self._bar.disable:
            print(said, file=sys.stderr, flush=True)
            return
        self._bar.console.print(said, soft_wrap=True)
        # The cursor is behind the progress bar, where the shell's prompt would follow.
        print(file=self._bar.console.file, flush=True)


class PipeLines(threading.Thread):
    """Lines in a pipe, from `TOLD_EVERY` on: for each stage, and each time that so long passed. `line` returns its text."""

    def __init__(self, line: Callable[[], str]) -> None:
        super().__init__(name="lines", daemon=True)
        self._line, self._stage = line, ""
        self._begun = time.monotonic()
        self._next, self._ended, self._lock = self._begun + TOLD_EVERY, threading.Event(), threading.Lock()

    def say(self, doing: str) -> None:
        """Note what is being done, as in ``register: A 61-72 (12 of 40)``: the stage is what stands before the colon."""
        stage = doing.partition(":")[0]
        if stage != self._stage:
            self._stage = stage
            if time.monotonic() >= self._begun + TOLD_EVERY:
                self._tell()

    def run(self) -> None:
        """Tell it again and again until `stop`."""
        while not self._ended.wait(max(self._next - time.monotonic(), 0.0)):
            if time.monotonic() >= self._next:
                self._tell()

    def stop(self) -> None:
        """Say nothing more."""
        self._ended.set()

    def _tell(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._next = now + TOLD_EVERY
            if self.is_alive() and self._stage and not self._ended.is_set():
                print(f"{_clock(now - self._begun)} {self._line()}", file=sys.stderr, flush=True)


class NotebookBar:
    """A bar in a notebook's output, which keeps what it showed last when the notebook is saved.

    It is plain HTML that IPython replaces: bars of widgets need an extension in each front end, and are empty in a saved one.
    `stages` as for `Clock`.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._clock = Clock(stages)
        self._step, self._total, self._doing, self._figures = 0, 1, "", ""
        self._begun = self._drawn = time.monotonic()
        self._handle: Any = None

    def start(self, doing: str) -> None:
        """Show the bar, and what is done first."""
        from IPython.display import HTML, display

        self._html, self._doing = HTML, doing
        self._handle = display(HTML(self._drawing(str(self._clock))), display_id=True)

    def stop(self) -> None:
        """Show once more where it ended, and how long it took."""
        self._draw(f"{time.monotonic() - self._begun:.0f} s")

    def update(self, step: int, total: int, doing: str, row: Any) -> None:
        """Show the step and what is being done, and the figures of a row where there is one."""
        self._clock.update(step, total, doing)
        self._step, self._total, self._doing = step, total, doing
        if row is not None:
            self._figures = figures_of(row)
        if time.monotonic() - self._drawn >= REDRAWN_AFTER:
            self._draw(str(self._clock))

    def _draw(self, clock: str) -> None:
        self._drawn = time.monotonic()
        if self._handle is not None:
            self._handle.update(self._html(self._drawing(clock)))

    def _drawing(self, clock: str) -> str:
        said = f"{self._doing} · step {self._step}/{self._total} · {clock}"
        if self._figures:
            said += f" · {self._figures}"
        return (
            f'<progress value="{self._step}" max="{self._total}" aria-label="progress of the fit" '
            f'style="width: 20em; vertical-align: middle"></progress> <span>{escape(said)}</span>'
        )


def figures_of(row: Any) -> str:
    """Return the figures of a row as a bar shows them."""
    rmsd = "" if row.ca_rmsd is None else f", RMSD {row.ca_rmsd:.2f} Å"
    return f"CC {row.cc:.3f}{rmsd}"


class Clock:
    """The time that the remaining steps will take, or since the last one; `stages`: names, and whether each rebuilds before."""

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

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the remaining steps will take; None outside dynamics, and where it is not known yet."""
        steps, seconds = (sum(values) for values in zip((0, 0.0), *self._recent))
        return seconds / steps * (self._total - self._step) if self._is_stepping and steps else None

    def __str__(self) -> str:
        """Return the time as in ``0:02:40 + 3 searches``, which are not steps and whose time is unknown."""
        if not self._is_stepping:
            return _clock(time.monotonic() - self._advanced)
        known = self.seconds_left
        left = "-:--:--" if known is None else _clock(known)
        searches = sum(self._rebuilds[self._place + 1 :])
        return left if not searches else f"{left} + {searches} search{'es' if searches > 1 else ''}"


def _memory() -> str:
    """Return the memory that the process holds, as in ``4.1 GB of memory``; nothing where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return f"{pages * os.sysconf('SC_PAGE_SIZE') / 1e9:.1f} GB of memory"
    except (OSError, AttributeError, ValueError, IndexError):
        return ""


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
