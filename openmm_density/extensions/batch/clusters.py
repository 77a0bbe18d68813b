"""Workers of Dask: of a scheduler that runs already, or of a batch system's queue."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ...base.errors import InputError
from ...base.wording import one_line
from .engines import DaskEngine
from .queues import QueueOptions

# Seconds for a scheduler to answer.
_ANSWER = 10
ALLOWED_FAILURES = 5
"""Workers that are lost with one job before it counts as failed: mostly it is not its fault."""
_CONFIGURATION = {
    "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
    # Fits take minutes, and none waits behind another while a worker is idle.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.admin.tick.limit": "1h",
    # By default a scheduler looks whether it is late 50 times a second, which takes as much processor time as all else that it
    # does while fits run.
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.log-length": 60,
    "distributed.admin.low-level-log-length": 100,
}


@contextmanager
def scheduler_engine(address: str) -> Iterator[DaskEngine]:
    """Use the workers of a scheduler that runs already."""
    if importlib.util.find_spec("distributed") is None:
        raise InputError(
            "needs Dask, which is not installed",
            argument="scheduler",
            remedy='pip install "openmm-density[batch]", or leave it out',
        )
    from distributed import Client

    _quiet()
    try:
        client = Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"must be the address of a Dask scheduler that answers ({one_line(error)})",
            argument="scheduler",
            found=f'"{address}"',
            remedy="start one by dask scheduler, which prints its address, and workers by dask worker",
        ) from None
    try:
        yield DaskEngine(client)
    finally:
        client.close(timeout=_ANSWER)


@contextmanager
def queue_engine(options: QueueOptions, workers: int, n_jobs: int) -> Iterator[DaskEngine]:
    """Start workers as jobs of a batch system, and others in place of those that reach their time limit."""
    import dask
    from distributed import Client

    _quiet()

    def needed(left: int) -> int:
        return min(workers, -(-left // options.fits))

    with (
        dask.config.set(_CONFIGURATION),
        options.cluster() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.scale(jobs=needed(n_jobs))
        # Those that ended are no longer among its jobs.
        yield DaskEngine(client, keep=lambda left: cluster.scale(jobs=needed(left)) if left else None)


def _quiet() -> None:
    """Keep Dask's messages to the developer off the terminal: what concerns the user is said by the batch."""
    for name in ("distributed", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
