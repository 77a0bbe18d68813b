"""A worker of Dask on this machine, in a process of its own, and what starts it again when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.program_process import begin_program, end_with
from .devices import Slot

QUIET = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.log-length": 60,
    "distributed.admin.low-level-log-length": 100,
}
"""Of Dask's configuration: how often its processes look after themselves, and how many such notes they keep. By default they look
whether they are late 50 times a second, which takes as much processor time as all else that a scheduler does while fits run."""
# A worker's own looks at what its threads do, a hundred a second, tell nothing: they wait for processes.
_OF_WORKERS = {**QUIET, "distributed.worker.profile.enabled": False}
# Seconds between two looks at the processes.
_INTERVAL = 0.3


class LocalWorkers:
    """Workers on this machine, as a context manager: one that ends is started again.

    They are programs of their own, in which nothing of the script that runs a batch is imported, and in a session of their
    own, as Ctrl-C is for the batch. The operating system ends them with it. `slots`: one for each; `scheduler`: its address;
    `security`: arguments of ``distributed.Security``.
    """

    def __init__(self, slots: Sequence[Slot], scheduler: str, security: Mapping[str, Any]) -> None:
        self._slots = slots
        self._told = {"scheduler": scheduler, "security": dict(security)}
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(slots)
        self._ending = threading.Event()
        # The system ends what a thread has started with that thread.
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> LocalWorkers:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._keeper.join()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that run now."""
        return [each.pid for each in self._processes if each is not None and each.poll() is None]

    def _keep(self) -> None:
        try:
            while True:
                for number, process in enumerate(self._processes):
                    if process is None or process.poll() is not None:
                        self._processes[number] = self._started(number)
                if self._ending.wait(_INTERVAL):
                    return
        finally:
            for process in filter(None, self._processes):
                process.kill()
                process.wait()

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        slot = self._slots[number]
        streams = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = begin_program(__name__, [str(os.getpid())], slot.environment, **streams)
        assert process.stdin is not None
        # In a pipe, as other users see the arguments of a process.
        told = json.dumps({**self._told, "name": f"worker-{number}", "fits": slot.fits})
        try:
            process.stdin.write(told.encode())
            process.stdin.close()
        except OSError:  # it has ended, and is started again
            pass
        return process


def main() -> None:
    """Run the program: its argument is its parent, and its standard input says what worker it is."""
    end_with(int(sys.argv[1]))
    asyncio.run(_work(json.load(sys.stdin)))


async def _work(told: Mapping[str, Any]) -> None:
    import dask
    from distributed import Worker
    from distributed.security import Security

    security = Security(**told["security"]) if told["security"] else None
    dask.config.set(_OF_WORKERS)
    # Fits are processes beside the worker, which holds nothing: what they may take, `memory` says.
    async with Worker(
        told["scheduler"],
        nthreads=told["fits"],
        name=told["name"],
        security=security,
        host="127.0.0.1",
        memory_limit=0,
        dashboard=False,
        silence_logs=50,
    ) as worker:
        await worker.finished()
