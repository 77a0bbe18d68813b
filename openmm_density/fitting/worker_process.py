"""Processes that call what comes through a pipe: of an interpreter that imports nothing of the program around the fit."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import LifoQueue
from typing import Any

from ..base.garbage import collect_rarely
from ..base.program_process import begin_program

# Bytes that a worker takes, with a map of 1 Å or coarser or a table of it.
_MEMORY = 600e6
# Seconds after which a process should have loaded what it needs, as it does not in a program that Python is embedded in.
_START = 120.0
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


class SharedArgument:
    """An unchanging argument of many calls, sent once to each process; `is_packed_once`: pickled once for all, and kept so."""

    def __init__(self, value: Any, is_packed_once: bool = False) -> None:
        self.value, self.number = value, next(_numbers)
        self._is_packed_once, self._packed = is_packed_once, b""

    def packed(self) -> bytes:
        """Return the message that has a process keep it."""
        with _PACKING:  # for one process after the other: it may be large
            packed = self._packed or pickle.dumps(("keep", self.number, self.value), pickle.HIGHEST_PROTOCOL)
            if self._is_packed_once:
                self._packed = packed
            return packed

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.number,)


_numbers, _PACKING = itertools.count(), threading.Lock()


def _named(number: int) -> SharedArgument:
    """Return what stands for a shared argument in a process that was sent it."""
    shared = SharedArgument(None)
    shared.number = number
    return shared


class WorkerProcess:
    """A process that calls functions.

    Attributes: `kept`: the numbers of the shared arguments that it was sent; `pid`: its own, once it has said that it is
    ready. Until then sending would wait for it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.kept: set[int] = set()
        self.pid: int | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it has been heard."""
        return self.pid is not None

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it call a function, after it was sent what it does not have of shared arguments."""
        for each in arguments:
            if isinstance(each, SharedArgument) and each.number not in self.kept:
                self.connection.send_bytes(each.packed())
                self.kept.add(each.number)
        self.connection.send(("call", function, arguments))

    def forget(self, numbers: set[int]) -> None:
        """Have it forget shared arguments."""
        for number in self.kept & numbers:
            self.connection.send(("forget", number))
            self.kept.remove(number)

    def answer(self) -> Any:
        """Return whether a function returned, and what, or the error in words; its number once, when it is ready."""
        found = self.connection.recv()
        self.pid = self.pid or found
        return found


def begin_workers(count: int, *modules: str) -> tuple[subprocess.Popen[Any], list[WorkerProcess]]:
    """Start a program that imports modules, and is then so many processes, which share the memory of what was imported.

    The program leads the group of its processes, by which they end. Raises OSError where no more processes are allowed.
    """
    pipes = [Pipe() for _ in range(count)]
    descriptors = [theirs.fileno() for _, theirs in pipes]
    words = [str(count), *map(str, descriptors), *modules]
    try:
        program = begin_program(__name__, words, _ONE_THREAD, pass_fds=descriptors)
    finally:
        for _, theirs in pipes:
            theirs.close()
    return program, [WorkerProcess(ours) for ours, _ in pipes]


class NoAnswer(Exception):
    """No process is left, a call cannot be sent, or it raised the error that is told."""


class WorkerPool:
    """Processes that call functions, each one after the other; what one that ends was doing is done by another.

    `count`: how many, none where no more are allowed; `*modules`: see `begin_workers`. Attributes: `workers`, those that
    were started; `has_begun`: whether any of them could load what it needs.
    """

    def __init__(self, count: int, *modules: str) -> None:
        program, self.workers = None, list[WorkerProcess]()
        self.has_begun = False
        with suppress(OSError):  # no more processes are allowed here
            program, self.workers = begin_workers(count, *modules)
        # The one that worked last comes first: it has most of what is shared, and those that are not needed have none of it.
        self._idle: LifoQueue[WorkerProcess | None] = LifoQueue()
        for each in self.workers:
            self._idle.put(each)
        self._left, self._forgotten = len(self.workers), set[int]()
        # Each waits for one process.
        self._threads = ThreadPoolExecutor(max(len(self.workers), 1))
        self._ended = weakref.finalize(self, _end, self._threads, program, self.workers)

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a function in a process as soon as one is idle; the future raises NoAnswer where it does not return."""
        return self._threads.submit(self._asked, function, arguments)

    def forget(self, shared: SharedArgument) -> None:
        """Have the processes forget a shared argument that is not used any more."""
        self._forgotten.add(shared.number)

    def end(self) -> None:
        """End the processes at once."""
        self._ended()

    def _asked(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        while (worker := self._idle.get()) is not None:
            try:
                if not worker.is_ready:
                    if not worker.connection.poll(_START):
                        raise EOFError
                    worker.answer()
                self.has_begun = True
                worker.forget(self._forgotten)
                worker.send(function, *arguments)
                returned, found = worker.answer()
            except (EOFError, OSError):  # it has ended, as by want of memory
                with _PACKING:
                    self._left -= 1
                    if self._left:
                        continue
                break
            except Exception as error:  # something cannot be sent
                self._idle.put(worker)
                raise NoAnswer(f"{type(error).__name__}: {error}") from error
            self._idle.put(worker)
            if not returned:
                raise NoAnswer(found)
            return found
        self._idle.put(None)
        raise NoAnswer("the processes ended, as where memory runs out: use fewer threads")


def _end(
    threads: ThreadPoolExecutor, program: subprocess.Popen[Any] | None, workers: Sequence[WorkerProcess]
) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    if program is not None:
        with suppress(ProcessLookupError):  # it has not come to lead a group
            os.killpg(program.pid, signal.SIGKILL)
        program.kill()
        program.wait()
    for each in workers:
        each.connection.close()


def main() -> None:
    """Run the program: its arguments are the number of processes, those of their ends of pipes, and what they import."""
    count, *words = sys.argv[1:]
    descriptors, modules = [int(word) for word in words[: int(count)]], words[int(count) :]
    collect_rarely()
    for name in modules:
        import_module(name)
    gc.freeze()  # or the collector would write to the memory that is shared
    with suppress(OSError):  # no more processes are allowed: the others do what there is to do
        while len(descriptors) > 1 and os.fork():
            os.close(descriptors.pop(0))
    connection = Connection(descriptors.pop(0))
    for each in descriptors:
        os.close(each)
    # The other end is closed when the fit has ended, however it did.
    with suppress(EOFError, OSError):
        connection.send(os.getpid())
        _serve(connection)


def _serve(connection: Connection) -> None:
    kept: dict[int, Any] = {}
    while True:
        what, *rest = connection.recv()
        if what == "keep":
            kept[rest[0]] = rest[1]
        elif what == "forget":
            del kept[rest[0]]
        else:
            function, arguments = rest
            try:
                given = [
                    kept[each.number] if isinstance(each, SharedArgument) else each for each in arguments
                ]
                answer = True, function(*given)
            except Exception as error:
                answer = False, f"{type(error).__name__}: {error}"
            try:
                connection.send(answer)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                connection.send((False, f"{type(error).__name__}: {error}"))
