"""NVIDIA's Multi-Process Service (MPS), by which processes share a GPU at one time in place of turn by turn, for a while.

A process beside this one, the keeper, starts the service in folders of its own and ends it when its pipe to this process closes,
however this process ends. A service that runs already, a user's or the machine's, is left alone: programs find it by themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .program_process import begin_program

PROGRAM = "nvidia-cuda-mps-control"
PIPES, LOGS, VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
SETTINGS = ("auto", "off")
"""Whether processes that share a GPU do so by the service: where it is there, or never."""

DEFAULT_PIPES = Path("/tmp/nvidia-mps")
"""Where programs look for a service when nothing is said."""
_PID = f"{PROGRAM}.pid"
# Characters of a folder in which the service's Unix sockets, of 107 at most with their names, still have room.
_LONGEST_FOLDER = 60
# Seconds: for the service to answer or a first program to reach a GPU through it, and for it to end by itself.
_ANSWER, _PATIENCE, _POLLED_AFTER = 60.0, 10.0, 0.05
# Of CUDA's driver: a context on the first GPU, as any program of the service has.
_CLIENT = """
import ctypes
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
for status in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuDevicePrimaryCtxRelease(0)):
    if status:
        raise SystemExit(f"CUDA's error {status}")
"""

Say = Callable[[str], None]


def control_program() -> str | None:
    """Return the path of the service's control program; None where it is not installed."""
    return shutil.which(PROGRAM)


def runs_already() -> bool:
    """Return whether programs find a service by themselves: the environment names one, or it is where they look."""
    if PIPES in os.environ:
        return True
    return _pid(DEFAULT_PIPES) is not None


@contextmanager
def shared_gpu(gpu: str, say: Say) -> Iterator[dict[str, str]]:
    """Start the service for one GPU and end it at the end; where it does not start a sentence says so."""
    own = {VISIBLE: gpu}
    if runs_already():
        yield own
        return
    if control_program() is None:
        say(f"fits have GPU {gpu} in turns, as the Multi-Process Service ({PROGRAM}) is not installed")
        yield own
        return
    keeper = begin_program(
        __name__, [json.dumps(own)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    told: dict[str, dict[str, str]] = {}
    try:
        assert keeper.stdout is not None
        told = json.loads(keeper.stdout.readline() or b'{"problem": "its keeper has ended"}')
        # The service has one GPU, whose number is 0 for its programs.
        clients = {**told.get("environment", {}), VISIBLE: "0"}
        problem = told.get("problem") or client_problem(clients)
        if problem:
            say(f"fits have GPU {gpu} in turns, as the Multi-Process Service does not serve ({problem})")
        yield own if problem else clients
    finally:
        _close(keeper, told.get("environment", {}))


def client_problem(environment: Mapping[str, str]) -> str:
    """Return why a program cannot use a GPU through the service; empty where it can."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER,
        )
    except subprocess.TimeoutExpired:
        return f"a program that it serves did not reach the GPU within {_ANSWER:.0f} s"
    lines = done.stderr.strip().splitlines()
    return "" if not done.returncode else lines[-1] if lines else f"status {done.returncode}"


def _close(keeper: subprocess.Popen[bytes], environment: Mapping[str, str]) -> None:
    """End a keeper and its service; the service also where the keeper was killed."""
    assert keeper.stdin is not None and keeper.stdout is not None
    was_killed = keeper.poll() is not None
    with suppress(OSError):
        keeper.stdin.close()
    keeper.wait()
    keeper.stdout.close()
    if was_killed and environment:
        _end_service(environment)


def main() -> None:
    """Run the keeper: start a service, say how its programs find it, and end it when nobody listens any more."""
    # Ctrl-C and a batch system's warning are for who started it.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    # The paths of its sockets have to be short.
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) < _LONGEST_FOLDER else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir=parent))
    environment = {PIPES: str(folder / "pipes"), LOGS: str(folder / "logs")}
    try:
        problem = _start_service(folder, {**environment, **json.loads(sys.argv[1])})
        with suppress(OSError):
            print(json.dumps({"problem": problem} if problem else {"environment": environment}), flush=True)
        if not problem:
            while os.read(sys.stdin.fileno(), 4096):
                pass
    finally:
        _end_service(environment)


def _start_service(folder: Path, environment: Mapping[str, str]) -> str:
    """Start the service, and return why it does not run; empty where it does."""
    for name in (PIPES, LOGS):
        Path(environment[name]).mkdir()
    # Not into a pipe, which the service would keep open.
    with open(folder / "said", "w+", encoding="utf-8", errors="replace") as said:
        try:
            status = subprocess.run(
                [PROGRAM, "-d"],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=_ANSWER,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"it did not start within {_ANSWER:.0f} s"
        except OSError as error:
            return str(error)
        said.seek(0)
        words = " ".join(said.read().split())
    if status:
        return words or f"it ended with status {status}"
    return "" if _pid(environment[PIPES]) is not None else words or "it ended at once"


def _end_service(environment: Mapping[str, str]) -> None:
    """End the service of an environment and its programs' server, by its word or else at once, and remove its folders."""
    control = _pid(environment[PIPES])
    if control is not None:
        servers = [int(word) for word in _asked("get_server_list", environment).split() if word.isdigit()]
        _asked("quit -t 5", environment)
        deadline = time.monotonic() + _PATIENCE
        while any(map(_is_there, [control, *servers])) and time.monotonic() < deadline:
            time.sleep(_POLLED_AFTER)
        for pid in filter(_is_there, [control, *servers]):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(Path(environment[PIPES]).parent, ignore_errors=True)


def _asked(command: str, environment: Mapping[str, str]) -> str:
    """Return what the service answers to a command."""
    try:
        return subprocess.run(
            [PROGRAM],
            env={**os.environ, **environment},
            input=f"{command}\n",
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _pid(pipes: str | Path) -> int | None:
    """Return the number of the process of the service with such a folder; None where it does not run."""
    try:
        pid = int((Path(pipes) / _PID).read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_there(pid) else None


def _is_there(pid: int) -> bool:
    """Return whether a process runs; one that has ended counts no longer, though nobody has asked how it did."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
