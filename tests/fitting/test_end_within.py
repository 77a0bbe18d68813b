"""A command ends soon after a signal, also where native code keeps Python from answering."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# As OpenMM where it makes a Context: no thread of Python runs. The kernel gives a signal to a thread that takes it.
HOLDS_PYTHON = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
print("stuck", flush=True)
ctypes.PyDLL(None).sleep(3600)
"""
SCRIPT = """
import signal, sys, time
from pathlib import Path
from openmm_density.fitting.end_within import EndWithin
from openmm_density.fitting.interrupts import StopRequest
signal.signal(signal.SIGINT, signal.default_int_handler)
with EndWithin({seconds}, "a fit goes on", [Path("state")], "none has begun") as end:
    with StopRequest(lambda: print("heard", flush=True)) as stop:
        print("ready", end._watcher.pid, flush=True)
        {inside}
"""
ANSWERS = """
        while not stop.requested:
            time.sleep(0.01)
    time.sleep({after})
    print("left", flush=True)
"""


def running(folder: Path, seconds: float, inside: str) -> tuple[subprocess.Popen[str], int]:
    """Return a process that runs so, and the number of the one that watches it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(seconds=seconds, inside=inside)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ready, watcher = process.stdout.readline().split()
    assert ready == "ready"
    return process, int(watcher)


def gone(pid: int) -> bool:
    """Return whether a process ends in a while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("state", "said"), [(True, "a fit goes on\n"), (False, "none has begun\n")])
def test_what_keeps_python_from_answering_is_ended(tmp_path: Path, state: bool, said: str) -> None:
    if state:
        (tmp_path / "state").touch()
    process, watcher = running(tmp_path, 0.3, HOLDS_PYTHON.replace("\n", "\n        "))
    assert process.stdout.readline() == "stuck\n"
    process.send_signal(signal.SIGTERM)
    # It is heard by nobody else: the next line is the end.
    assert process.communicate(timeout=60) == ("", said)
    assert process.returncode == -signal.SIGKILL and gone(watcher)


def test_who_listens_hears_at_once_and_what_has_left_in_time_is_not_ended(tmp_path: Path) -> None:
    process, watcher = running(tmp_path, 3600, ANSWERS.format(after=0.0))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("heard\nleft\n", "")
    assert process.returncode == 0 and gone(watcher)


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    process, watcher = running(tmp_path, 3600, ANSWERS.format(after=0.0))
    process.kill()
    process.communicate(timeout=60)
    assert gone(watcher)
