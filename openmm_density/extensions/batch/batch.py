"""A batch: many fits, run by whatever there is, with their tables, page and consensus."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError
from ...base.multi_process_service import VISIBLE, Say, shared_gpu
from ...base.progress import console_for_progress
from ...base.wording import counted, listing
from ...fitting.platform_probe import check_platform_beside, platform_beside
from .devices import MachineShare, machine_shares, visible_gpus
from .engines import DaskEngine, JobEngine, ThisMachine
from .held_out import check_free_maps
from .job_folder import Earlier, JobFolder
from .job_results import JobResult, rows_of, write_tables
from .jobs import Job, check_jobs
from .run_job import RunSettings

if TYPE_CHECKING:
    from distributed import Client
    from rich.console import RenderableType

    from .outcome import MapOutcome

# Seconds between two versions of the tables while jobs end.
_WRITTEN_AFTER = 2.0


class Batch:
    """Many fits, each in a folder and a process of its own.

    Fits that were finished before stand, and those that were interrupted go on from their last state: a batch that is run again
    does what is left of it.

    Parameters
    ----------
    jobs : sequence of Job
        Of `jobs_of` or `read_jobs`.
    output : path, optional
        The folder for ``batch.csv``, ``batch.json``, ``batch.html`` and the consensus; none are written by default.
    overwrite : bool
        Whether fits of other jobs in their folders are replaced.

    Attributes
    ----------
    jobs : list of Job
    results : dict of str to JobResult
        By the names of jobs, as they come.
    notes : list of str
        Sentences on what is done with fits of an earlier batch in the folders, and on free maps that are doubtful.

    Raises
    ------
    InputError
        If two jobs share a name or a folder, a file is not there, a folder holds a fit of another job, or a free map cannot test
        what is fitted into its map.

    Examples
    --------
    >>> batch = Batch(jobs_of(["a.pdb", "b.pdb"], ["map.mrc"], 5.0, "many", seeds=range(5)), output="many")
    >>> for result in batch.run():
    ...     print(result.job.name, result.state, result.figures.get("cc"))
    """

    def __init__(
        self, jobs: Sequence[Job], output: str | os.PathLike[str] | None = None, overwrite: bool = False
    ) -> None:
        self.jobs = list(jobs)
        check_jobs(self.jobs)
        self.output = None if output is None else Path(output)
        self.notes = _notes({job.name: JobFolder(job).check(overwrite) for job in self.jobs})
        self.notes += check_free_maps([job for job in self.jobs if not JobFolder(job).is_finished])
        self.results: dict[str, JobResult] = {}
        self._next_written = 0.0

    def run(
        self,
        client: Client | None = None,
        *,
        workers: int | None = None,
        gpus: Sequence[str] = (),
        progress: bool | None = False,
        mps: str = "auto",
    ) -> Iterator[JobResult]:
        """Run the jobs that are left, and yield results as they come, those of finished fits first.

        Parameters
        ----------
        client : distributed.Client, optional
            Whose workers run them, and see the same files; by default they run on this machine.
        workers : int, optional
            Fits side by side on this machine: by default as there are cores and GPUs for.
        gpus : sequence of str
            Of this machine, as in ``CUDA_VISIBLE_DEVICES``: fits that name no platform run on them by CUDA. By default all of
            them where a job asks for CUDA, or names no platform and CUDA runs; else none, and these fits run on the CPU.
        progress : bool or None
            Whether a table is shown meanwhile; None: on a terminal.
        mps : {"auto", "off"}
            Whether fits that share a GPU do so at one time, by NVIDIA's Multi-Process Service, where it is installed; else they
            have it in turns, of which a sentence is added to `notes`.

        Raises
        ------
        InputError
            If a platform is not on this machine.
        SimulationError
            If Dask's scheduler is lost.
        """
        if client is not None:
            yield from self.run_on(nullcontext(DaskEngine(client)), RunSettings(("--threads", "1")), progress)
        else:
            check_platforms(self.jobs, gpus)
            slots = gpus or gpus_for(self.jobs, self.notes.append)
            share = machine_shares(len(self.jobs), workers, slots, threads_asked(self.jobs))
            starting = local(share, mps, self.notes.append)
            yield from self.run_on(starting, settings_of(share, slots), progress)
        self.write_outcome()

    def run_on(
        self,
        starting: AbstractContextManager[JobEngine],
        settings: RunSettings,
        progress: bool | None = False,
    ) -> Iterator[JobResult]:
        """Run the jobs that are left by an engine, which is started only where there are any.

        Parameters
        ----------
        starting : context manager
            Of an engine.
        settings : RunSettings
        progress : bool or None
            As for `run`.
        """
        left = []
        for job in self.jobs:
            figures = JobFolder(job).figures()
            if figures is None:
                left.append(job)
            else:
                yield self._ended(JobResult(job, "finished", figures))
        if left:
            yield from self._run_left(left, starting, settings, progress)
        self.write_tables()

    def _run_left(
        self,
        left: Sequence[Job],
        starting: AbstractContextManager[JobEngine],
        settings: RunSettings,
        progress: bool | None,
    ) -> Iterator[JobResult]:
        with ExitStack() as stack:
            engine = stack.enter_context(starting)
            shown = BatchProgress([job.name for job in self.jobs], progress, getattr(engine, "link", None))
            for result in self.results.values():
                shown.end(result)
            stack.enter_context(shown)
            self.write_tables()
            for result in engine.run(left, settings, shown.update):
                shown.end(result)
                yield self._ended(result)

    def _ended(self, result: JobResult) -> JobResult:
        self.results[result.job.name] = result
        began = time.monotonic()
        if began > self._next_written:
            # What a full disk does not take is told at the end: what became of the fits goes before.
            with suppress(InputError):
                self.write_tables()
            # Of many jobs it takes a while: a hundredth of the time goes into it at most.
            now = time.monotonic()
            self._next_written = now + max(_WRITTEN_AFTER, 100 * (now - began))
        return result

    def write_outcome(self, command: str | None = None) -> list[MapOutcome]:
        """Write what came of it, with its pages, and return it map by map; nothing without a folder.

        Parameters
        ----------
        command : str, optional
            What a user types to repeat it.
        """
        if self.output is None:
            return []
        # What it takes, pages among it, is loaded at the end.
        from .outcome import write_outcome

        return write_outcome(self.output, self.jobs, self.results, command)

    def write_tables(self) -> None:
        """Write ``batch.csv`` and ``batch.json`` as far as there are results."""
        if self.output is not None:
            write_tables(self.output, rows_of(self.jobs, self.results, self.output.absolute(), {}), {})


_WHAT_BECOMES = {
    "finished": "finished before, not fitted again",
    "unfinished": "begun before, continued",
    "failed": "failed before the first step in an earlier run, started again with today's options",
    "replaced": "had a fit of other options or files, replaced",
}
"""What is said of fits by what their folders held, see `openmm_density.extensions.batch.job_folder.Earlier`."""


def _notes(earlier: Mapping[str, Earlier]) -> list[str]:
    """Return what is done with fits of an earlier batch, by the names of jobs."""
    named = {kind: [name for name, found in earlier.items() if found == kind] for kind in _WHAT_BECOMES}
    return [f"{listing(names, 3)}: {_WHAT_BECOMES[kind]}" for kind, names in named.items() if names]


def threads_asked(jobs: Sequence[Job]) -> int | None:
    """Return the most threads that a job asks for by itself; None where none does."""
    return max((int(value) for value in _values("--threads", jobs) if value.isdigit()), default=None)


def check_platforms(jobs: Sequence[Job], gpus: Sequence[str] = ()) -> None:
    """Refuse platforms that are not on this machine, or do not run."""
    for platform in dict.fromkeys([*_values("--platform", jobs), *(["CUDA"] if gpus else [])]):
        check_platform_beside(platform)


def gpus_for(jobs: Sequence[Job], say: Say) -> list[str]:
    """Return the GPUs of this machine where a job asks for CUDA, or names no platform and CUDA runs; else none.

    `say`: called with why CUDA is not taken where it is there.
    """
    asked = [[*_values("--platform", [job])][-1:] for job in jobs]
    gpus = visible_gpus() if ["CUDA"] in asked or [] in asked else []
    return gpus if gpus and (["CUDA"] in asked or platform_beside(say) == "CUDA") else []


def _values(option: str, jobs: Sequence[Job]) -> Iterator[str]:
    """Yield the values of an option of which jobs say one by themselves."""
    for job in jobs:
        for word, value in zip(job.arguments, job.arguments[1:]):
            if word == option:
                yield value


def settings_of(share: MachineShare, gpus: Sequence[str] = ()) -> RunSettings:
    """Return how jobs are run on this machine; those that name no platform on its GPUs, where any are shared out."""
    return RunSettings(("--threads", str(share.threads), "--platform", "CUDA" if gpus else "CPU"))


@contextmanager
def local(share: MachineShare, mps: str = "auto", say: Say = print) -> Iterator[JobEngine]:
    """Start an engine on this machine, and end it at the end; by default fits that share a GPU use it at one time."""
    counts = Counter(place[VISIBLE] for place in share.places if VISIBLE in place) if mps == "auto" else {}
    with ExitStack() as stack:
        services = {
            gpu: stack.enter_context(shared_gpu(gpu, say)) for gpu, count in counts.items() if count > 1
        }
        yield ThisMachine([{**place, **services.get(place.get(VISIBLE, ""), {})} for place in share.places])


MOST_ROWS = 20
"""Running fits that are listed; of others their number is told."""


class BatchProgress:
    """Where the jobs of a batch are, shown meanwhile as a context manager, by default on a terminal; `link` to a dashboard."""

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
