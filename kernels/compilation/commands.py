"""A compiler's commands, in parallel processes that end with the program."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

_warned: set[str] = set()


class BuildError(Exception):
    """C++ is not available: a sentence on why, and in ``output`` what the compiler or the loader printed."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.output = output

    @property
    def first_error(self) -> str | None:
        """Return the first line in which the compiler reports an error."""
        return next((line.strip() for line in self.output.splitlines() if "error:" in line), None)


def warn_once(kind: str, message: str) -> None:
    """Warn of a kind of problem, once per process."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, RuntimeWarning, stacklevel=3)


class _Running:
    """The running commands: no more than `processors`, as each compiler needs half a gigabyte of memory."""

    def __init__(self) -> None:
        self.processors = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))
        self._processes: dict[subprocess.Popen[str], Path] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def begin(self, command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_over:
                raise SystemExit
            process = subprocess.Popen(
                command,
                cwd=folder,
                # The compiler's temporary files go where they are removed if it is killed.
                env=os.environ | {"LC_ALL": "C", "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # A compiler consists of several processes, which are killed together.
                start_new_session=True,
            )
            self._processes[process] = folder
        return process

    def forget(self, process: subprocess.Popen[str]) -> None:
        """Forget a command that has ended by itself: at the program's end its thread ends too, silently."""
        with self._lock:
            self._processes.pop(process, None)
            if self._is_over:
                raise SystemExit

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                _kill(process)

    def end_in(self, wanted: Path) -> None:
        with self._lock:
            for process, folder in self._processes.items():
                if folder == wanted:
                    _kill(process)


_running = _Running()


def _fresh_running() -> None:
    global _running
    _running = _Running()


# A child forked while other threads compile has none of these.
os.register_at_fork(after_in_child=_fresh_running)


def end_commands() -> None:
    """End all commands and start no more: the program ends."""
    _running.end()


atexit.register(end_commands)


def run_command(command: Sequence[str], folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command, once a processor is free for it."""
    running = _running
    with running.processors:
        process = running.begin(command, folder)
        try:
            output, _ = process.communicate(timeout=seconds)
        except BaseException:
            _kill(process)
            process.wait()
            raise
        finally:
            running.forget(process)
    return subprocess.CompletedProcess(command, process.returncode, output)


def run_commands(
    commands: Sequence[Sequence[str]], folder: Path, seconds: float
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands as `run_command`, in threads that the program's end does not wait for; an error or Ctrl-C ends all."""
    if len(commands) < 2:
        return [run_command(command, folder, seconds) for command in commands]
    futures: list[Future[subprocess.CompletedProcess[str]]] = [Future() for _ in commands]

    def run(number: int) -> None:
        try:
            futures[number].set_result(run_command(commands[number], folder, seconds))
        except BaseException as error:
            futures[number].set_exception(error)

    try:
        for number in range(len(commands)):
            threading.Thread(target=run, args=(number,), daemon=True).start()
        return [future.result() for future in futures]
    except BaseException:
        _running.end_in(folder)
        raise


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
