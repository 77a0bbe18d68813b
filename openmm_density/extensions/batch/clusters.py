"""Workers of Dask: on this machine, of a scheduler that runs already, or of a batch system's queue."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, SimulationError
from ...base.wording import one_line
from .devices import Slot
from .engines import DaskEngine
from .queues import QueueOptions
from .worker import QUIET, LocalWorkers

if TYPE_CHECKING:
    from distributed import Client

INSTALL = 'pip install "openmm-density[batch]"'
# Seconds for a scheduler to answer, and to be there again when it was lost.
_ANSWER, _PATIENCE, _PAUSE = 10, 600.0, 2.0


def has_dask() -> bool:
    """Return whether Dask is installed."""
    return importlib.util.find_spec("distributed") is not None


def check_dask(argument: str) -> None:
    """Refuse an argument that needs Dask where that is not installed."""
    if not has_dask():
        raise InputError(
            "needs Dask, which is not installed", argument=argument, remedy=f"{INSTALL}, or leave it out"
        )


@contextmanager
def local_engine(slots: Sequence[Slot]) -> Iterator[DaskEngine]:
    """Start workers on this machine, each in a process of its own, and end them at the end."""
    import dask
    from distributed import Client, Scheduler, SpecCluster

    _quiet()
    security = _security()
    options = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0", "security": security}
    options["protocol"] = "tls" if security else "tcp"
    scheduler = {"cls": Scheduler, "options": {**options, "dashboard": has_dashboard()}}
    with (
        dask.config.set(_configuration()),
        SpecCluster(scheduler=scheduler, security=security, silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
        LocalWorkers(slots, cluster.scheduler_address, {} if security is None else _as_plain(security)),
    ):
        yield DaskEngine(client, queues=True)


def _as_plain(security: Any) -> dict[str, Any]:
    """Return what a worker needs of a cluster's keys."""
    names = ("require_encryption", "tls_ca_file", "tls_worker_key", "tls_worker_cert")
    return {name: getattr(security, name) for name in names}


@contextmanager
def scheduler_engine(address: str) -> Iterator[DaskEngine]:
    """Use the workers of a scheduler that runs already, also when it is restarted."""
    _quiet()
    clients: list[Client] = []

    def reconnect() -> Client:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                clients.append(_client(address))
                return clients[-1]
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SimulationError(
                        f"the Dask scheduler at {address} was lost, and did not come back within {_PATIENCE / 60:.0f} minutes: "
                        "start it, and run the batch again, which goes on"
                    ) from error
            time.sleep(_PAUSE)

    try:
        clients.append(_client(address))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"must be the address of a Dask scheduler that answers ({one_line(error)})",
            argument="scheduler",
            found=f'"{address}"',
            remedy="start one by dask scheduler, which prints its address, and workers by dask worker",
        ) from None
    try:
        yield DaskEngine(clients[0], reconnect)
    finally:
        for client in clients:
            client.close(timeout=_ANSWER)


def _client(address: str) -> Client:
    from distributed import Client

    return Client(address, timeout=_ANSWER, set_as_default=False)


@contextmanager
def queue_engine(options: QueueOptions, workers: int, n_jobs: int) -> Iterator[DaskEngine]:
    """Start workers as jobs of a batch system, and others in place of those that reach their time limit."""
    import dask
    from distributed import Client

    _quiet()

    def needed(left: int) -> int:
        return min(workers, -(-left // options.fits))

    with (
        dask.config.set(_configuration()),
        options.cluster() as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.scale(jobs=needed(n_jobs))
        # Those that ended are no longer among its jobs.
        yield DaskEngine(client, keep=lambda left: cluster.scale(jobs=needed(left)) if left else None)


def has_dashboard() -> bool:
    """Return whether Dask's dashboard can be shown."""
    return importlib.util.find_spec("bokeh") is not None


ALLOWED_FAILURES = 5
"""Workers that are lost with one job before it counts as failed: mostly it is not its fault."""


def _configuration() -> dict[str, Any]:
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        # Fits take minutes, and none waits behind another while a worker is idle.
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.admin.tick.limit": "1h",
        **QUIET,
    }


def _security() -> Any:
    """Return what keeps other users of this machine from a cluster's ports; None where a package for it is missing."""
    if importlib.util.find_spec("cryptography") is None:
        return None
    from distributed.security import Security

    return Security.temporary()


def _quiet() -> None:
    """Keep Dask's messages to the developer off the terminal: what concerns the user is said by the batch."""
    import logging

    for name in ("distributed", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
