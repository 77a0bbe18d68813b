"""Processes of Python that are forked from one that has imported the package, as the imports of each take seconds.

They have the arguments, environment, folder, streams, signals and exit status of those that `subprocess` starts. What a
process imports, and what the environment changes in an import, is tested with processes of their own.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import inspect
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

_PRELOADED = (
    *(
        "openmm_density.cli.fit_process",
        "openmm_density.fitting.flexible_fit",
        "openmm_density.fitting.worker_process",
    ),
    *(
        "openmm_density.extensions.rebuilding.trial_workers",
        "openmm_density.extensions.series.direction_process",
    ),
    *("openmm_density.extensions.doctor.probes", "openmm_density.validation"),
)
_PROGRAM = """
from tests import forked_processes as _processes
try:
    exec(_processes.serve({}))
except BaseException as error:
    _processes.end(error)
_processes.end()
"""
_PROJECT = Path(__file__).parents[1]
_START = subprocess.Popen
# Threads may start processes side by side.
_ONE_AT_A_TIME = threading.Lock()
_ARGUMENTS = inspect.signature(subprocess.Popen._execute_child)


@contextmanager
def forking() -> Iterator[None]:
    """Fork the processes of Python that are started meanwhile, by tests or by the package."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", ForkedProcess)
        yield


class ForkServer:
    """The process from which others are forked."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        # Threads of libraries would not be there in what is forked.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _PROGRAM.format(number)]
        self._process = _START(command, pass_fds=[number], env=environment, cwd=_PROJECT)
        theirs.close()

    def fork(self, request: dict[str, object], descriptors: list[int]) -> int:
        """Return the number of a new process."""
        with _ONE_AT_A_TIME:
            socket.send_fds(self._socket, [pickle.dumps(request)], descriptors)
            told = self._socket.recv(4)
        assert told, "the process to fork from has ended, see above"
        return struct.unpack("i", told)[0]

    def end(self) -> None:
        """End it, and what it has forked."""
        self._socket.close()
        self._process.wait()


class ForkedProcess(subprocess.Popen):
    """A process of this Python with ``-c`` or ``-m``, forked; any other as ever."""

    server: ForkServer | None = None
    _status: int | None = None

    def _execute_child(self, *given: object) -> None:
        asked = _ARGUMENTS.bind(self, *given).arguments
        words = [os.fsdecode(word) for word in asked["args"]] if not isinstance(asked["args"], str) else []
        options = words[3:] if words[1:3] == ["-W", "ignore"] else words[1:]
        is_program = bool(options) and (options[0] in ("-c", "-m") or options[0].endswith(".py"))
        if words[:1] != [sys.executable] or not is_program or asked["preexec_fn"]:
            super()._execute_child(*given)
            return
        with _ONE_AT_A_TIME:
            if ForkedProcess.server is None:
                ForkedProcess.server = ForkServer()
        self._status, writing = os.pipe()
        streams = [
            asked[name] if asked[name] >= 0 else number
            for number, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        request = {
            "words": words[1:],
            "folder": os.fspath(asked["cwd"] or os.getcwd()),
            "environment": dict(os.environ if asked["env"] is None else asked["env"]),
            "own_session": asked["start_new_session"],
            "numbers": [0, 1, 2, *asked["pass_fds"]],
            "parent": os.getpid(),
        }
        try:
            self.pid = ForkedProcess.server.fork(request, [writing, *streams, *asked["pass_fds"]])
        finally:
            os.close(writing)
        self._child_created = True
        self._close_pipe_fds(
            *(asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(flags)
        if flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._status, 4)
        os.close(self._status)
        # The server ended, at the end of the tests, and all its processes with it.
        return self.pid, struct.unpack("i", told)[0] if told else signal.SIGKILL

    def _internal_poll(self, *given: object, **named: object) -> int | None:
        if self._status is None:
            return super()._internal_poll(*given, **named)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    number, status = self._try_wait(os.WNOHANG)
                    if number:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def serve(number: int) -> str:
    """Fork a process for each request; return, in each, what it runs."""
    for name in _PRELOADED:
        with suppress(ModuleNotFoundError):  # an extension that is not there
            importlib.import_module(name)
    gc.freeze()
    control = socket.socket(fileno=number)
    reports: dict[int, int] = {}

    def tell_ends(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with suppress(OSError):  # nobody asks any more
                    os.write(reports[ended[0]], struct.pack("i", ended[1]))
                os.close(reports.pop(ended[0]))

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, tell_ends)
    while True:
        told, descriptors, *_ = socket.recv_fds(control, 1 << 20, 64)
        if not told:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for process in reports:
                os.kill(process, signal.SIGKILL)
            os._exit(0)
        assert len(os.listdir("/proc/self/task")) == 1, "a process of several threads is not to be forked"
        # Its end is told when its number is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        report, *streams = descriptors
        process = os.fork()
        if not process:
            for each in (control.fileno(), report, *reports.values()):
                os.close(each)
            control.detach()
            return _become(pickle.loads(told), streams)
        reports[process] = report
        for each in streams:
            os.close(each)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        control.send(struct.pack("i", process))


def _become(request: dict[str, Any], descriptors: list[int]) -> str:
    """Make this process the one that was asked for; return its code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    numbers = request["numbers"]
    # Out of the way first, as one may have the number that another is to have.
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, max(numbers) + 1) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, number in zip(moved, numbers):
        os.dup2(each, number)
        os.close(each)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace")
    if request["own_session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Of `end_with`, which would find the server.
    os.getppid = lambda: request["parent"]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]))
    words = request["words"]
    if words[0] == "-W":
        warnings.simplefilter("ignore")
        del words[:2]
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = ["" if words[0] == "-c" else os.getcwd(), *paths, *sys.path[1:]]
    if words[0] not in ("-c", "-m"):
        sys.path[0], sys.argv[:] = os.path.dirname(os.path.abspath(words[0])), words
        return f"__import__('runpy').run_path({words[0]!r}, run_name='__main__')"
    option, what, *arguments = words
    sys.argv[:] = [option, *arguments]
    return what if option == "-c" else f"__import__('runpy')._run_module_as_main({what!r})"


def end(error: BaseException | None = None) -> NoReturn:
    """End this process as Python does, but leave to the system its memory, which takes long to free."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)
