"""Batches on this machine and by Dask: nothing is lost, and the results are those of an undisturbed run."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.extensions.batch import Batch
from openmm_density.extensions.batch.clusters import scheduler_engine
from openmm_density.extensions.batch.engines import ThisMachine

from .conftest import OPTIONS


@pytest.fixture(scope="module")
def undisturbed(fits):
    """Return the coordinates of all frames and models of a batch that nothing disturbs."""
    return coordinates(fits.output)


def coordinates(folder):
    found = {}
    for job in sorted(each for each in Path(folder).iterdir() if each.is_dir()):
        frames = mdtraj.load(str(job / "trajectory.dcd"), top=str(job / "fitted.cif")).xyz
        found[job.name] = frames, (job / "fitted.pdb").read_text(), (job / "log.csv").read_text()
    return found


def assert_same(found, expected):
    assert found and found.keys() <= expected.keys()
    for name, (frames, model, log) in found.items():
        np.testing.assert_array_equal(frames, expected[name][0])
        assert (model, log) == expected[name][1:]


def children(pid):
    """Return the processes that a process has started, with their arguments."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
    return found


def is_alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def saved_states(folder):
    return [*Path(folder).glob("*/unfinished/state.npz")]


COUNTING = """
unfinished, steps = folder / "unfinished", folder / "steps"
unfinished.mkdir(exist_ok=True)
(unfinished / "command.json").write_text("{}")
while (done := len(steps.read_text().split()) if steps.exists() else 0) < 3:
    with steps.open("a") as file:
        print(done + 1, file=file)
    while done == 1 and not Path(%r).exists():
        time.sleep(0.01)
(unfinished / "command.json").unlink(); unfinished.rmdir()
finish(cc_final=0.5)
"""
"""A fit of three steps that goes on where it was, and takes the third when a file is there."""


def assert_counted(jobs, results):
    assert sorted((result.job.name, result.state) for result in results) == [
        (job.name, "finished") for job in jobs
    ]
    assert all((Path(job.folder) / "steps").read_text().split() == ["1", "2", "3"] for job in jobs)


def two_steps_done(jobs):
    steps = [Path(job.folder) / "steps" for job in jobs]
    return all(each.exists() and len(each.read_text().split()) == 2 for each in steps)


def run_in_thread(batch, engine, settings):
    """Return a thread that runs a batch, and its results."""
    results = []
    thread = threading.Thread(target=lambda: results.extend(batch.run_on(engine, settings)))
    thread.start()
    return thread, results


def test_a_killed_fit_makes_no_difference(jobs, program, tmp_path):
    jobs, go = jobs[:2], tmp_path / "go"
    engine = nullcontext(ThisMachine([{}, {}]))
    thread, results = run_in_thread(Batch(jobs, tmp_path / "out"), engine, program(COUNTING % str(go)))
    wait_until(lambda: two_steps_done(jobs))
    (killed, *_) = (pid for pid, words in children(os.getpid()).items() if jobs[0].folder in words)
    os.kill(killed, signal.SIGKILL)
    go.touch()
    thread.join()
    assert_counted(jobs, results)


def test_fits_are_ended_where_no_more_results_are_wanted(jobs, program):
    settings = program("finish(cc_final=.5) if folder.name == 'a_seed0' else time.sleep(600)")
    found = ThisMachine([{}, {}]).run(jobs, settings, lambda *_: None)
    assert next(found).job == jobs[0]
    found.close()
    assert not [words for words in children(os.getpid()).values() if "--output" in words]
    assert not any((Path(job.folder) / "summary.json").exists() for job in jobs[1:])


def test_a_killed_command_goes_on_when_it_is_given_again(fragment, tmp_path, undisturbed):
    words = ["a.pdb", "--map", "map.mrc", "--resolution", "5", "--output", str(tmp_path / "out")]
    words += [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "openmm_density", "batch", *words]
    killed = subprocess.Popen(command, cwd=fragment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: saved_states(tmp_path / "out"))
    below = [*children(killed.pid)]
    killed.kill()
    killed.communicate()
    wait_until(lambda: not any(map(is_alive, below)))
    again = subprocess.run(command, cwd=fragment, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert again.stderr == "openmm-density batch: a: begun before, continued\n"
    assert "1 of 1 fit finished; results are in" in again.stdout
    assert_same(coordinates(tmp_path / "out"), undisturbed)


class Scheduler:
    """A scheduler and a worker, as a user starts them."""

    def __init__(self, folder):
        pytest.importorskip("distributed", reason='no Dask: pip install "openmm-density[batch]"')
        file = folder / f"scheduler-{time.time_ns()}.json"
        own = ("--no-dashboard", "--local-directory", str(folder))
        listening = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        # They end by themselves where nobody is left to end them.
        listening = (*listening, "--idle-timeout", "900s")
        program = (sys.executable, "-m", "distributed.cli.dask_scheduler", *listening)
        self._processes = [
            subprocess.Popen([*program, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL)
        ]
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        program = (
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            self.address,
            "--nthreads",
            "2",
            "--no-nanny",
            "--death-timeout",
            "600",
        )
        self._processes.append(subprocess.Popen([*program, *own], stderr=subprocess.DEVNULL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
            process.wait()

    def kill(self):
        """End the scheduler at once."""
        self._processes[0].kill()
        self._processes[0].wait()


def test_a_scheduler_of_the_users_own_runs_jobs_and_tells_of_them(jobs, program, tmp_path, monkeypatch):
    settings = program("tell(stage='heat', step=3, total=9); time.sleep(0.2); finish(cc_final=.5)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    heard = []
    with Scheduler(tmp_path) as scheduler, scheduler_engine(scheduler.address) as engine:
        found = list(engine.run(jobs, settings, lambda name, told: heard.append((name, told["stage"]))))
        wait_until(lambda: len({name for name, _ in heard}) == 4)
    assert sorted(result.job.name for result in found) == [job.name for job in jobs]
    assert all(result.figures["cc"] == 0.5 for result in found)


def test_a_scheduler_that_is_lost_is_told(jobs, program, tmp_path, monkeypatch):
    settings = program("tell(stage='heat', step=3, total=9); time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with (
        Scheduler(tmp_path) as scheduler,
        scheduler_engine(scheduler.address) as engine,
        pytest.raises(SimulationError, match="the Dask scheduler was lost, and 4 jobs are left"),
    ):
        list(engine.run(jobs, settings, lambda *_: scheduler.kill()))


def test_a_scheduler_that_does_not_answer_is_refused(monkeypatch):
    monkeypatch.setattr("openmm_density.extensions.batch.clusters._ANSWER", 1)
    with (
        pytest.raises(
            InputError,
            match=r'scheduler must be the address of a Dask scheduler that answers .*, found "tcp://127.0.0.1:9"',
        ),
        scheduler_engine("tcp://127.0.0.1:9"),
    ):
        pass
