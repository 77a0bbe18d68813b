"""What is shown while a fit runs: a bar in a notebook, one on a terminal, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from .fit_clock import Clock

if TYPE_CHECKING:
    from rich.console import Console

    from .fit_result import Progress, Row

REDRAWN_AFTER = 0.25
"""Seconds between two pictures of a notebook's bar: each is sent to the browser."""


@contextmanager
def shown_progress(
    progress: Progress | bool | None, stages: Sequence[tuple[str, bool]]
) -> Iterator[Progress | None]:
    """Yield what a run calls to tell of its progress; it is shown until the block ends."""
    if callable(progress):
        yield progress
        return
    bar: NotebookBar | TerminalBar | None = None
    if progress is not False and in_notebook():
        bar = NotebookBar(stages)
    elif progress:
        bar = TerminalBar(stages)
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


class TerminalBar:
    """A bar on a terminal, nothing in a pipe.

    Parameters
    ----------
    stages : sequence of (str, bool)
        As for `Clock`.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._clock = Clock(stages)

    def start(self, doing: str) -> None:
        """Show the bar, and what is done first."""
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
        self._task = self._progress.add_task(doing, total=1, steps="", figures="", clock=self._clock)
        self._progress.start()

    def stop(self) -> None:
        """Stop drawing; what was shown last stays."""
        self._progress.stop()

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal."""
        return not self._progress.disable

    @property
    def console(self) -> Console:
        """Where it is drawn, to print above it."""
        return self._progress.console

    def refresh(self) -> None:
        """Draw it now."""
        self._progress.refresh()

    def describe(self, doing: str) -> None:
        """Show what is being done."""
        self._progress.update(self._task, description=doing)

    def expect(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        """Set the stages to come, as for `Clock`."""
        self._clock = Clock(stages)
        self._progress.update(self._task, clock=self._clock)

    def update(self, step: int, total: int, doing: str, row: Row | None) -> None:
        """Show the step and what is being done, and the figures of a row where there is one."""
        self._clock.update(step, total, doing)
        found = {"steps": f"step {step}/{total}"}
        if row is not None:
            found["figures"] = figures_of(row)
        self._progress.update(self._task, completed=step, total=total, description=doing, **found)


class NotebookBar:
    """A bar in a notebook's output, which keeps what it showed last when the notebook is saved.

    It is plain HTML that IPython replaces: bars of widgets need an extension in each front end, and are empty in a saved one.

    Parameters
    ----------
    stages : sequence of (str, bool)
        As for `Clock`.
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

    def update(self, step: int, total: int, doing: str, row: Row | None) -> None:
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


def figures_of(row: Row) -> str:
    """Return the figures of a row as a bar shows them."""
    rmsd = "" if row.ca_rmsd is None else f"  RMSD {row.ca_rmsd:.2f} Å"
    return f"CC {row.cc:.3f}{rmsd}"
