"""One job, run where it is called: a fit in a process of its own, which begins, goes on or stands already."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import InputError, is_of_machine
from ..fitting.locks import wait_until_free
from .fit_process import PROGRAM_OF_FIT, REFUSED, Ended, FitProcess
from .job_folder import LOG, JobFolder
from .job_results import JobResult
from .jobs import Job
from .memory import MemoryQueue, job_memory

Told: TypeAlias = Callable[[dict[str, Any]], None]

MOST_ATTEMPTS = 3
"""Times that a job is begun, or gone on with, before it counts as failed."""


@dataclass(frozen=True)
class RunSettings:
    """How the jobs of a batch are run, which makes no difference to what they are.

    Attributes
    ----------
    batch : str
        The name of the batch, by which its fits on one host share the memory there.
    arguments : tuple of str
        Of ``openmm-density fit``, for fits that begin: threads and platform, as far as a job does not say.
    memory : int, optional
        Bytes that all fits on a host may take; those that there are by default.
    environment : mapping of str to str
        What differs for fits from the environment of whoever starts them.
    program : str
        The module whose function ``main`` runs a fit.
    """

    batch: str
    arguments: tuple[str, ...] = ()
    memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = PROGRAM_OF_FIT


def run_job(job: Job, settings: RunSettings, tell: Told) -> JobResult:
    """Run a job to its end, to an error of what it was given, or to its third other failure."""
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
            with MemoryQueue(settings.batch, settings.memory).room(
                job_memory(job), lambda: tell({"stage": "waiting for memory"})
            ):
                ended = _attempt(folder, settings, tell)
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


def _attempt(folder: JobFolder, settings: RunSettings, tell: Told) -> Ended:
    tell({"stage": "start-up"})
    fit = FitProcess(
        folder.arguments(settings.arguments), folder.path / LOG, settings.environment, settings.program
    )
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
