"""What runs the jobs of a batch: this process, one after the other, or Dask."""

from __future__ import annotations

import importlib.util
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ...base.errors import SimulationError
from ...base.wording import counted, one_line
from .job_results import JobResult
from .jobs import Job
from .run_job import RunSettings, run_job

if TYPE_CHECKING:
    from distributed import Client, Future

Watch = Callable[[str, dict[str, Any]], None]
"""Called with the name of a job and what is new of it, in any thread."""


class JobEngine(Protocol):
    """What runs jobs."""

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come."""


class OneByOne:
    """Run jobs one after the other."""

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come."""
        for job in jobs:
            yield run_job(job, settings, lambda told, name=job.name: watch(name, told))


class DaskEngine:
    """Run jobs by Dask, also where its scheduler is restarted meanwhile.

    `reconnect`: returns another client where this one has lost its scheduler for good; `keep`: called every half minute
    at least with the number of jobs that are left, as to start workers again; `queues`: whether the scheduler is one of
    ours, which keeps jobs that are ahead of its workers to itself (``worker-saturation`` 1).
    """

    def __init__(
        self,
        client: Client,
        reconnect: Callable[[], Client] | None = None,
        keep: Callable[[int], None] | None = None,
        queues: bool = False,
    ) -> None:
        self.client, self._reconnect, self._keep, self._queues = client, reconnect, keep, queues

    @property
    def link(self) -> str | None:
        """The address of Dask's dashboard, where it can be shown."""
        return self.client.dashboard_link if importlib.util.find_spec("bokeh") else None

    def run(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come."""
        left = {job.name: job for job in jobs}
        while left:
            for result in self._run_once([*left.values()], settings, watch):
                del left[result.job.name]
                yield result
            if left:
                self._wait_for_scheduler(len(left))

    def _run_once(self, jobs: Sequence[Job], settings: RunSettings, watch: Watch) -> Iterator[JobResult]:
        """Yield results as they come, as long as the scheduler is there.

        It is given as many jobs as its workers run at once: what waits with a worker would be blamed for what ends that, and
        would not go to those that come later. Where the next jobs wait with the scheduler it has one more for each, so that a
        worker gets its next one without a message to this process and back.
        """
        topic = f"openmm-density-{uuid.uuid4().hex}"
        done: SimpleQueue[Future] = SimpleQueue()
        waiting, given = deque(enumerate(jobs)), {}
        looked = kept = time.monotonic()
        with _subscribed(self.client, topic, watch):
            try:
                room = self._room()
                ended = None
                while waiting or given or ended:
                    while waiting and len(given) < room + self._ahead(len(jobs) - len(waiting), room):
                        number, job = waiting.popleft()
                        key = f"{topic}-{number}"
                        try:
                            future = self.client.submit(
                                run_on_worker, job, settings, topic, key=key, pure=False
                            )
                        except Exception:
                            if self.client.status == "running":
                                raise
                            return  # the scheduler is gone
                        given[key] = future, job
                        future.add_done_callback(done.put)
                    # Its worker has the next job by now. What is released here is not made again when a worker is lost.
                    if ended is not None and (result := _result(*ended)) is not None:
                        yield result
                    ended = None
                    with suppress(Empty):
                        ended = given.pop(done.get(timeout=_LOOKED_AFTER).key)
                    now = time.monotonic()
                    if now - looked > _LOOKED_AFTER:
                        looked, room = now, self._room()
                    if self._keep is not None and now - kept > _KEPT_AFTER:
                        kept = now
                        self._keep(len(waiting) + len(given))
                    if ended is None and self.client.status != "running":
                        return
            finally:
                # Whoever listens no longer wants no more of them.
                with suppress(Exception):
                    self.client.cancel([future for future, _ in given.values()], force=True)

    def _ahead(self, n_given: int, room: int) -> int:
        """Return how many jobs the scheduler may have beyond those that run: Dask queues those of groups that are large alone."""
        return room if self._queues and n_given > 2 * room else 0

    def _room(self) -> int:
        """Return how many jobs all workers run at once."""
        try:
            return sum(self.client.nthreads().values())
        except Exception:  # the scheduler is gone, which the client finds out next
            return 0

    def _wait_for_scheduler(self, left: int) -> None:
        """Wait until there is a scheduler again."""
        time.sleep(_PAUSE)
        while self.client.status == "connecting":
            time.sleep(_PAUSE)
        if self.client.status == "running":
            return
        if self._reconnect is None:
            raise SimulationError(
                f"the Dask scheduler was lost, and {counted(left, 'job')} {'is' if left == 1 else 'are'} left: start it, and run "
                "the batch again, which goes on"
            )
        self.client = self._reconnect()


# In s.
_LOOKED_AFTER, _KEPT_AFTER, _PAUSE = 1.0, 30.0, 1.0


def run_on_worker(job: Job, settings: RunSettings, topic: str) -> JobResult:
    """Run a job on a worker of Dask, which sends what it tells to the clients that listen."""
    from distributed import get_worker

    worker = get_worker()
    last = 0.0

    def tell(told: dict[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _TOLD_AFTER:
            last = now
            worker.log_event(topic, {"job": job.name, **told})

    return run_job(job, settings, tell)


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


def _result(future: Future, job: Job) -> JobResult | None:
    """Return what a future holds; None where the scheduler has lost it."""
    from distributed.scheduler import KilledWorker

    if future.status == "finished":
        try:
            return future.result(timeout=_PATIENCE)
        except Exception:  # its worker was lost before it could be fetched
            return None
    if future.status != "error":
        return None
    error = future.exception()
    if isinstance(error, KilledWorker):
        sentence = f"its worker was lost again and again, the last time {error.last_worker.address}"
    else:
        sentence = f"its worker could not run it ({type(error).__name__}: {one_line(error)})"
    return JobResult(job, "failed", error=sentence)


_PATIENCE = 60.0
