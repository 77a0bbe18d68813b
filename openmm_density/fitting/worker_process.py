"""A process of its own that does what comes through a pipe: an interpreter that imports nothing of the program around the fit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..program_process import begin_program

# Bytes that a worker takes, with a map of 1 Å or coarser or a table of it.
_MEMORY = 600e6
# What would make threads of its own in a worker, or take a GPU.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def available_cores() -> int:
    """Return the number of processor cores that this process may use, or fewer where memory would not do for as many workers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        (kilobytes,) = re.findall(
            r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE
        )
    except (OSError, ValueError):  # not Linux
        return cores
    return max(min(cores, int(1000 * int(kilobytes) / _MEMORY)), 1)


class WorkerProcess:
    """A process that runs a program of this package; see `messages` and `is_heard` for its side.

    Parameters
    ----------
    module : str
        Whose function ``main`` is the program; the number of its end of the pipe is the program's argument.

    Attributes
    ----------
    connection : multiprocessing.connection.Connection
    process : subprocess.Popen

    Raises
    ------
    OSError
        Where no more processes are allowed.
    """

    def __init__(self, module: str) -> None:
        self.connection, theirs = Pipe()
        descriptor = theirs.fileno()
        try:
            self.process = begin_program(module, [str(descriptor)], _ONE_THREAD, pass_fds=[descriptor])
        finally:
            theirs.close()

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


def kill_all(processes: Sequence[WorkerProcess]) -> None:
    """End processes at once: side by side, as the system takes a while to free the memory of each."""
    for each in processes:
        each.process.kill()
    for each in processes:
        each.kill()


def connection_of_program() -> Connection:
    """Return a worker's own end of the pipe, which is the argument of its program."""
    return Connection(int(sys.argv[1]))


def messages(connection: Connection) -> Iterator[Any]:
    """Yield what comes through a pipe until its other end is closed, as when the fit was killed."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        yield message


def is_heard(connection: Connection, answer: Any) -> bool:
    """Send an answer; return False where nobody is there any more to read it."""
    try:
        connection.send(answer)
    except OSError:
        return False
    return True
