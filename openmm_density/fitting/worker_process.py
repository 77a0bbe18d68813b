"""A process of its own that does what comes through a pipe: an interpreter that imports nothing of the program around the fit."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Bytes that a worker takes, with a map of 1 Å or coarser or a table of it.
_MEMORY = 600e6
# Nothing is imported from the working folder, which may hold anything.
PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from {} import main; main()"
"""What a Python process runs whose program is a module's function ``main``."""
# Of Linux: the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
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
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM.format(module), str(theirs.fileno())]
        try:
            # In a session of its own: Ctrl-C is for the fit, which ends it.
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": search_path()},
            )
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


def end_with(parent: int) -> None:
    """Have the operating system end this process when the thread ends that started it, however that ends.

    Parameters
    ----------
    parent : int
        The number of the process that started it.
    """
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def search_path() -> str:
    """Return where this process imports from, without the working folder; what is no text Python passes over."""
    return os.pathsep.join(folder for folder in sys.path if isinstance(folder, str) and folder)
