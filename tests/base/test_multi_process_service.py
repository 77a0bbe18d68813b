"""NVIDIA's Multi-Process Service for fits that share a GPU, by a program in its place that keeps the same files."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from openmm_density.base import multi_process_service
from openmm_density.base.multi_process_service import (
    DEFAULT_PIPES,
    PROGRAM,
    control_program,
    runs_already,
    shared_gpu,
)
from openmm_density.base.program_process import environment_of

# A daemon that sleeps, and a server of it; what each call was asked is added to a file.
FAKE = """#!{python}
import json, os, subprocess, sys, time
from pathlib import Path
pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
pids = pipes / "nvidia-cuda-mps-control.pid"
asked = "start" if "-d" in sys.argv else sys.stdin.read().strip()
with open({log!r}, "a") as file:
    print(json.dumps([asked, str(pipes), os.environ.get("CUDA_VISIBLE_DEVICES")]), file=file)
if asked == "start":
    {start}
    sleeping = [subprocess.Popen(["sleep", "600"], start_new_session=True).pid for _ in range(2)]
    (pipes / "server").write_text(str(sleeping[1]))
    pids.write_text(str(sleeping[0]))
elif asked == "get_server_list":
    print((pipes / "server").read_text())
elif asked.startswith("quit"):
    {quit}
"""
QUITS = 'os.kill(int(pids.read_text()), 9); os.kill(int((pipes / "server").read_text()), 9)'


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Return what puts a program in place of the service's, and what it was asked."""
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(multi_process_service, "DEFAULT_PIPES", tmp_path / "none")
    monkeypatch.setattr(multi_process_service, "client_problem", lambda environment: "")
    log = tmp_path / "asked"

    def put(start="pass", quit_=QUITS):
        path = tmp_path / "bin" / PROGRAM
        path.parent.mkdir()
        path.write_text(FAKE.format(python=sys.executable, log=str(log), start=start, quit=quit_))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    return put


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes(environment):
    pipes = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
    return [int((pipes / name).read_text()) for name in (f"{PROGRAM}.pid", "server")]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_gpu_is_shared_by_a_service_of_its_own_that_ends_at_the_end(service):
    asked, said = service(), []
    with shared_gpu("3", said.append) as environment:
        pipes = environment["CUDA_MPS_PIPE_DIRECTORY"]
        # The service has GPU 3, which its programs call 0. Unix sockets have 107 characters.
        assert asked() == [["start", pipes, "3"]] and environment["CUDA_VISIBLE_DEVICES"] == "0"
        assert len(pipes) < 80 and Path(environment["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
        running = processes(environment)
        assert all(map(is_alive, running))
    assert not any(map(is_alive, running)) and not Path(pipes).parent.exists()
    assert [each[0] for each in asked()] == ["start", "get_server_list", "quit -t 5"] and said == []


PARENT = """
import json, sys
from openmm_density.base import multi_process_service
multi_process_service.client_problem = lambda environment: ""
with multi_process_service.shared_gpu("0", print) as environment:
    print(json.dumps(environment), flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_who_started_it_also_when_that_is_killed_or_interrupted(service, sent):
    service()
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)],
        env=environment_of(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    environment = json.loads(parent.stdout.readline())
    running = processes(environment)
    assert all(map(is_alive, running))
    # As Ctrl-C on a terminal, to all.
    os.killpg(parent.pid, sent)
    parent.communicate()
    folder = Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).parent
    wait_until(lambda: not any(map(is_alive, running)) and not folder.exists())


RUNS = "An instance of this daemon is already running"


@pytest.mark.parametrize(
    ("start", "why"),
    [(f"sys.exit({RUNS!r})", RUNS), ("sys.exit(0)", "it ended at once")],
    ids=["refuses", "ends"],
)
def test_a_service_that_does_not_start_is_told_and_done_without(service, start, why):
    service(start)
    said = []
    with shared_gpu("1", said.append) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "1"}
    assert said == [f"fits have GPU 1 in turns, as the Multi-Process Service does not serve ({why})"]


def test_where_it_is_not_installed_a_sentence_says_so(service, monkeypatch):
    monkeypatch.setenv("PATH", "")
    said = []
    with shared_gpu("1", said.append) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "1"} and control_program() is None
    assert said == [f"fits have GPU 1 in turns, as the Multi-Process Service ({PROGRAM}) is not installed"]


def test_a_service_that_runs_already_is_left_alone(service, monkeypatch, tmp_path):
    asked, said = service(), []
    (tmp_path / "none").mkdir()
    pid = tmp_path / "none" / f"{PROGRAM}.pid"
    assert str(DEFAULT_PIPES) == "/tmp/nvidia-mps" and not runs_already()
    pid.write_text(str(os.getpid()))
    assert runs_already()
    with shared_gpu("1", said.append) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "1"}
    pid.unlink()
    assert not runs_already()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with shared_gpu("1", said.append) as environment:
        assert environment == {"CUDA_VISIBLE_DEVICES": "1"}
    assert said == [] and not (tmp_path / "asked").exists() and asked is not None


def test_a_program_without_a_gpu_is_told():
    assert multi_process_service.client_problem({"LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": ""}) != ""
