"""What is shown of a batch while it runs: a table on a terminal, nothing in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..progress import console_for_progress
from ..wording import counted
from .job_results import JobResult

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MOST_ROWS = 20
"""Running fits that are listed; of others their number is told."""


class BatchProgress:
    """Where the jobs of a batch are; as a context manager it is shown meanwhile.

    Parameters
    ----------
    names : sequence of str
        Of all jobs.
    is_shown : bool, optional
        By default where standard error is a terminal.
    link : str, optional
        Of Dask's dashboard.
    """

    def __init__(self, names: Sequence[str], is_shown: bool | None = None, link: str | None = None) -> None:
        self._console = console_for_progress()
        self.is_shown = self._console.is_terminal if is_shown is None else is_shown
        self._total, self._link = len(names), link
        self._running: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, bool] = {}
        self._stood = 0
        self._began = time.monotonic()
        # Reports come in threads of the engine.
        self._lock = threading.Lock()
        self._live: Any = None

    def __enter__(self) -> BatchProgress:
        if self.is_shown:
            from rich.live import Live

            self._live = Live(
                get_renderable=self.table, console=self._console, refresh_per_second=2, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def console(self) -> Console:
        """Where it is drawn, to print above it."""
        return self._console

    def update(self, name: str, told: dict[str, Any]) -> None:
        """Take what is new of a job."""
        with self._lock:
            if name not in self._ended:
                self._running.setdefault(name, {}).update(
                    {key: value for key, value in told.items() if value is not None}
                )

    def end(self, result: JobResult) -> None:
        """Take what became of a job."""
        with self._lock:
            self._running.pop(result.job.name, None)
            self._ended[result.job.name] = result.is_finished
            self._stood += result.is_finished and not result.attempts

    def table(self) -> RenderableType:
        """Return the table of what runs, with what is over and what waits above it."""
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("job", "stage", "step", "CC", "left"):
            table.add_column(
                heading, justify="left" if heading in ("job", "stage") else "right", no_wrap=True
            )
        with self._lock:
            for name, told in [*self._running.items()][:MOST_ROWS]:
                step = f"{told['step']}/{told['total']}" if "step" in told else ""
                correlation = f"{told['cc']:.3f}" if "cc" in told else ""
                table.add_row(name, told.get("stage", ""), step, correlation, told.get("left", ""))
            more = len(self._running) - MOST_ROWS
        lines: list[RenderableType] = [self.sentence(), table]
        if more > 0:
            lines.append(f"and {more} more")
        return Group(*lines)

    def sentence(self) -> str:
        """Return how many jobs are where, and for how long the batch has been running."""
        finished = sum(self._ended.values())
        failed, running = len(self._ended) - finished, len(self._running)
        parts = [f"{finished} of {counted(self._total, 'fit')} finished"]
        if self._stood:
            parts[0] += f" ({self._stood} before)"
        if failed:
            parts.append(f"{failed} failed")
        waiting = self._total - len(self._ended) - running
        parts += [f"{running} running", f"{waiting} waiting"]
        parts.append(str(timedelta(seconds=round(time.monotonic() - self._began))))
        return ", ".join(parts) + (f"; {self._link}" if self._link else "")
