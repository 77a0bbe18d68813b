"""One job, run where it is called: a fit in a process of its own, which begins, goes on or stands already."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from ...base.errors import InputError, is_of_machine
from ...base.program_process import begin_program
from ...fitting.locks import wait_until_free
from .job_folder import LOG, JobFolder
from .job_results import JobResult
from .jobs import Job

PROGRAM_OF_FIT = "openmm_density.cli.fit_process"
"""The module that runs ``openmm-density fit`` in a process of its own."""
# Of a log, from its end: what a fit says last.
_READ = 20_000
REFUSED = 2
"""The exit status of a command that was given what it cannot use."""


@dataclass(frozen=True)
class Ended:
    """How a fit's process ended."""

    status: int  # 0 where it came to its end; negative: the signal that ended it
    sentence: str  # What it said last
    peak_memory: int  # Bytes

    @property
    def is_refusal(self) -> bool:
        """Whether what it was given cannot be used, so that it would end in the same way again."""
        return self.status == REFUSED


class FitProcess:
    """A process that runs ``openmm-density fit``.

    It is in a session of its own, as Ctrl-C is for the batch, and the operating system ends it when the thread that started it
    ends, however that ends: states are saved atomically, and another process goes on from the last one. `arguments` of
    ``fit``; `log`: what it prints is added to this file; `environment`: what differs from that of this process; `program`: the
    module whose function ``main`` runs the fit: its arguments are the number of this process, the file descriptor for what it
    tells, and those of ``fit``. Raises OSError where no more processes are allowed, or the log cannot be written.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        program: str = PROGRAM_OF_FIT,
    ) -> None:
        self._log, self._error = log, ""
        reading, writing = os.pipe()
        self._reports = os.fdopen(reading, encoding="utf-8", errors="replace")
        try:
            with open(log, "ab") as file:
                self._begin = file.tell()
                own = [str(os.getpid()), str(writing)]
                streams = {"stdout": file, "stderr": file, "pass_fds": [writing]}
                self.process = begin_program(program, [*own, *arguments], environment, **streams)
        except BaseException:
            self._reports.close()
            raise
        finally:
            os.close(writing)

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield what it tells until it ends: ``step``, ``total``, ``stage``, ``cc`` and ``left``, the time as text."""
        with self._reports:
            for line in self._reports:
                try:
                    told = json.loads(line)
                except ValueError:  # it was killed in the middle of one
                    continue
                if "error" in told:
                    self._error = told["error"]
                else:
                    yield told

    def wait(self) -> Ended:
        """Wait for its end."""
        _, code, usage = os.wait4(self.process.pid, 0)
        status = os.waitstatus_to_exitcode(code)
        self.process.returncode = status
        return Ended(status, self._sentence(status), 1024 * usage.ru_maxrss)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self._reports.close()

    def _sentence(self, status: int) -> str:
        """Return what it said last of why it ended."""
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            return f"the fit's process was ended by {name}; {self._log} has what it said before"
        if self._error:
            return self._error
        with open(self._log, "rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, length - _READ))
            lines = file.read().decode(errors="replace").strip().splitlines()
        errors = [line.partition("error: ")[2] for line in lines if ": error: " in line]
        said = errors or lines or [f"it ended with status {status}"]
        return said[-1].strip()


Told: TypeAlias = Callable[[dict[str, Any]], None]

MOST_ATTEMPTS = 3
"""Times that a job is started or continued before it counts as failed."""


@dataclass(frozen=True)
class RunSettings:
    """How the jobs of a batch are run, which makes no difference to what they are."""

    # Of ``openmm-density fit``, for fits that begin: threads and platform, as far as a job does not say
    arguments: tuple[str, ...] = ()
    memory: int | None = None  # Bytes that all fits of one process may take; by default those of the host
    # What differs for fits from the environment of whoever starts them
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = PROGRAM_OF_FIT  # The module whose function ``main`` runs a fit


def run_job(
    job: Job, settings: RunSettings, tell: Told, begun: Callable[[FitProcess], None] = lambda fit: None
) -> JobResult:
    """Run a job to its end, to an error of what it was given, or to its third other failure; `begun` takes each process."""
    began = time.monotonic()
    folder = JobFolder(job)
    attempts, peak, error = 0, 0, ""
    while attempts < MOST_ATTEMPTS:
        try:
            wait_until_free(
                folder.path, lambda holder: tell({"stage": f"waiting for the fit in its folder ({holder})"})
            )
            figures = folder.figures()
            if figures is not None:
                return _result(job, "finished", began, attempts, peak, figures=figures)
            folder.note_job()
            with memory_room(settings.memory).room(
                job_memory(job), lambda: tell({"stage": "waiting for memory"})
            ):
                ended = _attempt(folder, settings, tell, begun)
            if ended.is_refusal and folder.is_in_use:  # another process was faster
                continue
        except (InputError, OSError) as problem:  # of the folder, or of the start of a process
            ended = Ended(1 if is_of_machine(problem) else REFUSED, str(problem), 0)
        attempts += 1
        peak, error = max(peak, ended.peak_memory), ended.sentence
        if ended.is_refusal:
            break
    figures = folder.figures()
    if figures is not None:
        return _result(job, "finished", began, attempts, peak, figures=figures)
    return _result(job, "failed", began, attempts, peak, error=error)


def _attempt(
    folder: JobFolder, settings: RunSettings, tell: Told, begun: Callable[[FitProcess], None]
) -> Ended:
    tell({"stage": "start-up"})
    fit = FitProcess(
        folder.arguments(settings.arguments), folder.path / LOG, settings.environment, settings.program
    )
    begun(fit)
    try:
        for report in fit.reports():
            tell(report)
        return fit.wait()
    except BaseException:
        fit.kill()
        raise


def _result(job: Job, state: str, began: float, attempts: int, peak: int, **others: Any) -> JobResult:
    seconds = time.monotonic() - began if attempts else 0.0
    return JobResult(
        job,
        state,
        attempts=attempts,
        seconds=round(seconds, 2),
        peak_memory=peak or None,
        host=socket.gethostname(),
        **others,
    )


# Bytes that any fit takes, and for each atom with hydrogens and each voxel of the map as it is read: more than was measured, see
# docs/evidence/many_fits.md.
_BASE, _PER_ATOM, _PER_VOXEL = 1.0e9, 35e3, 12.0
# Bytes of a line of a PDB file, and hydrogens: half of a protein's atoms.
_PER_LINE, _WITH_HYDROGENS = 81, 2.0
_PART = 0.9
_INTERVAL = 0.5


def job_memory(job: Job) -> int:
    """Return about how many bytes a fit takes, from the sizes of its model and its map."""
    atoms = _WITH_HYDROGENS * _size(job.model) / _PER_LINE
    voxels = _size(job.map) / 4
    return int(_BASE + _PER_ATOM * atoms + _PER_VOXEL * voxels)


def host_memory() -> int:
    """Return the bytes that processes beside this one may take: those of the host, or of the group that it is limited to."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, IndexError):  # no control groups
        group = Path("/proc/self/cgroup").read_text().strip().splitlines()[-1].rpartition(":")[2]
        for each in (Path(group), *Path(group).parents):
            with suppress(OSError, ValueError):  # no limit
                total = min(total, int(Path("/sys/fs/cgroup", *each.parts[1:], "memory.max").read_text()))
    return usable(total)


def usable(memory: int) -> int:
    """Return the bytes of some memory that fits may take: the rest is for what runs beside them."""
    return int(_PART * memory)


class MemoryRoom:
    """Memory that fits share: each begins when those before it leave it enough, in their order. `total` in bytes."""

    def __init__(self, total: int) -> None:
        self._total, self._numbers = total, count()
        self._changed = threading.Condition()
        self._taken: dict[int, int] = {}  # By those that run or wait, in their order

    @contextmanager
    def room(self, memory: int, waiting: Callable[[], None]) -> Iterator[None]:
        """Wait until there is room for a fit, and keep it; one that needs more than there is runs alone."""
        number = next(self._numbers)
        try:
            with self._changed:
                self._taken[number] = memory
                while (before := self._before(number)) and before + memory > self._total:
                    waiting()
                    self._changed.wait(_INTERVAL)
            yield
        finally:
            with self._changed:
                del self._taken[number]
                self._changed.notify_all()

    def _before(self, number: int) -> int:
        return sum(memory for other, memory in self._taken.items() if other < number)


@cache
def memory_room(total: int | None) -> MemoryRoom:
    """Return the room that all fits of this process share; `total` in bytes, by default what the host has."""
    return MemoryRoom(host_memory() if total is None else total)


def _size(path: str) -> float:
    """Return the bytes of a file, unpacked."""
    try:
        if path.endswith(".gz"):
            with open(path, "rb") as file:  # its last bytes tell, up to 4 GB
                file.seek(-4, os.SEEK_END)
                return float(struct.unpack("<I", file.read())[0])
        return float(os.path.getsize(path))
    except (OSError, gzip.BadGzipFile, struct.error):
        return 0.0
