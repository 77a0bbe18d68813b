"""What runs the jobs of a batch: threads of this process, each of which waits for a fit, or Dask."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ...base.errors import SimulationError
from ...base.wording import counted, one_line
from .job_results import JobResult
from .jobs import Job
from .run_job import FitProcess, RunSettings, run_job, usable

if TYPE_CHECKING:
    from distributed import Client, Future

Watch = Callable[[str, dict[str, Any]], None]
"""Called with the name of a job and what is new of it, in any thread."""


class JobEngine(Protocol):
    """What runs jobs."""

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come."""


class ThisMachine:
    """Run jobs on this machine; `places`: for each fit that runs at one time, what differs in its environment."""

    def __init__(self, places: Sequence[Mapping[str, str]] = ({},)) -> None:
        self._places = places

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come; fits that run when no more are wanted are ended, and go on from their last states."""
        places: SimpleQueue[Mapping[str, str]] = SimpleQueue()
        for each in self._places:
            places.put(each)
        running: dict[int, FitProcess] = {}  # By threads
        is_over = threading.Event()

        def run_one(job: Job) -> JobResult:
            def tell(told: dict[str, Any]) -> None:
                if is_over.is_set():
                    raise CancelledError
                watch(job.name, told)

            def begun(fit: FitProcess) -> None:
                running[threading.get_ident()] = fit

            place = places.get()
            try:
                own = replace(settings, environment={**settings.environment, **place})
                return run_job(job, own, tell, begun)
            finally:
                places.put(place)

        with ThreadPoolExecutor(len(self._places)) as pool:
            futures = {pool.submit(run_one, job): job for job in jobs}
            try:
                for future in as_completed(futures):
                    try:
                        result = future.result()
                    except Exception as error:
                        sentence = f"it could not be run ({type(error).__name__}: {one_line(error)})"
                        result = JobResult(futures[future], "failed", error=sentence)
                    yield result
            finally:
                is_over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                while any(future.running() for future in futures):
                    for fit in [*running.values()]:
                        if fit.process.returncode is None:
                            with suppress(ProcessLookupError):
                                os.kill(fit.process.pid, signal.SIGKILL)
                    time.sleep(_PAUSE)


# In s: between two looks at fits that are ended, at Dask's scheduler, and at the workers of a queue.
_PAUSE, _LOOKED_AFTER, _KEPT_AFTER = 0.05, 1.0, 30.0


class DaskEngine:
    """Run jobs by Dask; `keep` is called every half minute with the number of jobs left, as to start workers again."""

    def __init__(self, client: Client, keep: Callable[[int], None] | None = None) -> None:
        self.client, self._keep = client, keep

    @property
    def link(self) -> str | None:
        """The address of Dask's dashboard, where it can be shown."""
        return self.client.dashboard_link if importlib.util.find_spec("bokeh") else None

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come; SimulationError where the scheduler is lost."""
        topic = f"openmm-density-{uuid.uuid4().hex}"
        done: SimpleQueue[Future] = SimpleQueue()
        given: dict[str, tuple[Future, Job]] = {}
        with _subscribed(self.client, topic, watch):
            try:
                for number, job in enumerate(jobs):
                    words = {"key": f"{topic}-{number}", "pure": False, "priority": -number}
                    future = self.client.submit(run_on_worker, job, settings, topic, **words)
                    given[future.key] = future, job
                    future.add_done_callback(done.put)
                kept = time.monotonic()
                while given:
                    with suppress(Empty):
                        key = done.get(timeout=_LOOKED_AFTER).key
                        result = _result(*given[key], len(given))
                        # What is released here is not made again when a worker is lost.
                        del given[key]
                        yield result
                    if given and self.client.status in ("closed", "closing"):
                        raise _lost(len(given))
                    if self._keep is not None and time.monotonic() - kept > _KEPT_AFTER:
                        kept = time.monotonic()
                        self._keep(len(given))
            finally:
                # Whoever listens no longer wants no more of them.
                with suppress(Exception):
                    self.client.cancel([future for future, _ in given.values()], force=True)


def run_on_worker(job: Job, settings: RunSettings, topic: str) -> JobResult:
    """Run a job on a worker of Dask, which sends what it tells to the clients that listen, within the worker's memory."""
    from distributed import get_worker

    worker = get_worker()
    last = 0.0

    def tell(told: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _TOLD_AFTER:
            last = now
            worker.log_event(topic, {"job": job.name, **told})

    limit = worker.memory_manager.memory_limit
    return run_job(job, replace(settings, memory=usable(limit)) if limit else settings, tell)


# Seconds: a thousand workers then send their scheduler five hundred messages a second.
_TOLD_AFTER = 2.0


@contextmanager
def _subscribed(client: Client, topic: str, watch: Watch) -> Iterator[None]:
    def heard(event: tuple[float, dict[str, Any]]) -> None:
        told = dict(event[1])
        watch(told.pop("job"), told)

    client.subscribe_topic(topic, heard)
    try:
        yield
    finally:
        with suppress(Exception):  # it is gone
            client.unsubscribe_topic(topic)


def _result(future: Future, job: Job, left: int) -> JobResult:
    """Return what a future holds; SimulationError where the scheduler has lost it."""
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except CancelledError:
        raise _lost(left) from None
    except KilledWorker as error:
        sentence = f"its worker was lost again and again, the last time {error.last_worker.address}"
    except Exception as error:
        sentence = f"its worker could not run it ({type(error).__name__}: {one_line(error)})"
    return JobResult(job, "failed", error=sentence)


def _lost(left: int) -> SimulationError:
    return SimulationError(
        f"the Dask scheduler was lost, and {counted(left, 'job')} {'is' if left == 1 else 'are'} left: start it, and run "
        "the batch again, which goes on"
    )
