"""What is done beside a fit by processes: the same as without them, and all of it where they end."""

from __future__ import annotations

import json
import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.cli import main
from openmm_density.fitting import FlexibleFit, helper_processes
from openmm_density.fitting.helper_processes import HelperProcesses
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.report import OutputFolder

from ..fragments import RESOLUTION, fragment, map_of, write_fragment

RESIDUES = 8
PROTOCOL = Protocol(
    (Stage("draw", 40), Stage("hold", 40)), strength=30.0, minimize_first=10, minimize_last=10
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", (0.5, -0.4, 0.3), RESIDUES), map_of(RESIDUES, 0.1, 0, folder)


@pytest.fixture(scope="module")
def processes():
    found = HelperProcesses(1)
    yield found
    found.end()


def written(parts, folder, with_processes, monkeypatch):
    model, density_map = parts
    made = HelperProcesses(1) if with_processes else HelperProcesses()
    with monkeypatch.context() as patch:
        patch.setattr(HelperProcesses, "of_fit", lambda *_: made)
        output = OutputFolder(folder)
        fit = FlexibleFit(
            model,
            density_map,
            RESOLUTION,
            PROTOCOL,
            threads=1,
            report_interval=20,
            save_interval=40,
            reference=model,
        )
        result = fit.run(output.run)
        output.write(fit, result, "model.pdb", "map.mrc")
    assert not fit.beside.has_processes
    return result


def test_a_fit_and_its_files_are_the_same_with_processes(parts, tmp_path, monkeypatch, drawing):
    with drawing():
        alone, beside_it = (
            written(parts, tmp_path / name, name == "beside", monkeypatch) for name in ("alone", "beside")
        )
    assert np.array_equal(alone.final, beside_it.final) and alone.rows == beside_it.rows
    names = sorted(each.name for each in (tmp_path / "alone").iterdir())
    assert names == sorted(each.name for each in (tmp_path / "beside").iterdir())
    for name in ("log.csv", "fitted.pdb", "overview.png"):
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "beside" / name).read_bytes(), name
    # NumPy's products of matrices add up in the order of their threads, of which a process has one.
    summaries = [
        json.loads(
            (tmp_path / name / "summary.json").read_text(), parse_float=lambda text: round(float(text), 10)
        )
        for name in ("alone", "beside")
    ]
    for name, value in summaries[0].items():
        assert value == summaries[1][name] or "ms_per_step" in name or "seconds" in name, name


class Running(HelperProcesses):
    """Says that it has processes until they are ended."""

    ended = False

    @property
    def has_processes(self):
        return not self.ended

    def end(self):
        self.ended = True
        super().end()


@pytest.fixture
def running(monkeypatch):
    made = Running()
    monkeypatch.setattr(HelperProcesses, "of_fit", lambda *_: made)
    return made


def short_fit(parts, **options):
    model, density_map = parts
    protocol = Protocol((Stage("draw", 20),), strength=30.0, minimize_first=0, minimize_last=0)
    return FlexibleFit(model, density_map, RESOLUTION, protocol, threads=1, **options)


def test_processes_end_where_a_fit_cannot_be_prepared_or_run(parts, running):
    fit = short_fit(parts)

    def told(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit.run(progress=told)
    assert running.ended
    running.ended = False
    with pytest.raises(InputError):
        short_fit(parts, planarity=-1.0)
    assert running.ended


def test_what_a_process_cannot_do_is_done_here(processes, parts):
    model, _ = parts
    odd = processes.begin(model.topology.__class__.getNumAtoms, SimpleNamespace(_numAtoms=3))
    assert odd.result() == 3  # what cannot be pickled would not come there
    assert processes.begin(lambda: 5).result() == 5
    # The error is raised as if there were no processes.
    wrong = processes.begin(DensityMap.from_file, "nowhere.mrc")
    with pytest.raises(InputError, match=r"nowhere\.mrc"):
        wrong.result()
    there = processes.begin(os.getpid)
    while not there.is_done:
        time.sleep(0.01)
    assert there.result() != os.getpid()


def test_what_no_process_has_begun_is_done_here(processes, tmp_path):
    os.mkfifo(tmp_path / "end")
    slow = processes.begin((tmp_path / "end").read_text)
    while not slow._future.running():
        time.sleep(0.01)
    assert processes.begin(os.getpid).result() == os.getpid() and not slow.is_done
    (tmp_path / "end").write_text("done")
    assert slow.result() == "done"


def test_where_a_process_ends_all_is_done_here():
    beside_it = HelperProcesses(1)
    os.kill(beside_it._pool.workers[0].answer(), signal.SIGKILL)
    assert [beside_it.begin(os.getpid).result() for _ in range(2)] == [os.getpid()] * 2
    left = beside_it.begin(time.sleep, 0.0)
    beside_it.end()
    assert left.result() is None and not beside_it.has_processes
    assert beside_it.begin(os.getpid).result() == os.getpid()


def test_processes_are_for_gpus_with_cores_and_maps_that_are_not_too_large(monkeypatch):
    counts = []
    monkeypatch.setattr(HelperProcesses, "__init__", lambda self, count=0: counts.append(count))
    monkeypatch.setattr(helper_processes, "available_cores", lambda: 8)
    small = DensityMap(np.zeros((4, 4, 4), np.float32), np.eye(3), np.zeros(3))
    for platform, threads in (("CUDA", None), ("CUDA", 2), ("CUDA", 1), ("CPU", None), ("Reference", None)):
        HelperProcesses.of_fit(platform, threads, small)
    monkeypatch.setattr(helper_processes, "LARGEST_MAP", 100)
    HelperProcesses.of_fit("CUDA", None, small)
    assert counts == [6, 1, 0, 0, 0, 0]


def test_at_the_end_a_large_model_has_processes_on_a_cpu_too(monkeypatch):
    counts = []
    monkeypatch.setattr(
        helper_processes, "WorkerPool", lambda n, *_: SimpleNamespace(workers=[*range(n)], n=n)
    )
    monkeypatch.setattr(helper_processes, "available_cores", lambda: 8)
    density_map = DensityMap(np.zeros((4, 4, 4), np.float32), np.eye(3), np.zeros(3))
    for n_atoms, threads in ((helper_processes.MANY_ATOMS, 3), (helper_processes.MANY_ATOMS, 1), (100, 8)):
        beside = HelperProcesses.of_fit("CPU", threads, density_map)
        beside.begin_after_steps(n_atoms, threads, density_map)
        counts.append(beside._pool.n if beside.has_processes else 0)
    assert counts == [2, 0, 0]


@pytest.fixture
def pools(monkeypatch):
    """Pools that were made, of no processes, where there are 8 cores."""
    made = []

    def pool(count, *_):
        made.append(SimpleNamespace(workers=[*range(count)], ended=False))
        made[-1].end = lambda of=made[-1]: setattr(of, "ended", True)
        return made[-1]

    monkeypatch.setattr(helper_processes, "WorkerPool", pool)
    monkeypatch.setattr(helper_processes, "available_cores", lambda: 8)
    return made


def test_a_command_starts_the_processes_of_a_fit_on_a_gpu_ahead(pools, monkeypatch):
    density_map = DensityMap(np.zeros((4, 4, 4), np.float32), np.eye(3), np.zeros(3))
    helper_processes.begin_ahead("CUDA", 3)
    taken = HelperProcesses.of_fit("CUDA", 3, density_map)
    assert taken._pool is pools[0] and len(pools) == 1 and taken._pool.workers == [0, 1]
    assert HelperProcesses.of_fit("CUDA", 3, density_map)._pool is pools[1] and not pools[0].ended
    helper_processes.begin_ahead("CUDA", 8)  # for which memory does not do any more
    assert HelperProcesses.of_fit("CUDA", 4, density_map)._pool is pools[3] and pools[2].ended

    # One that runs on a CPU after all does not use them.
    monkeypatch.setattr(helper_processes, "_NVIDIA", [os.devnull])
    helper_processes.begin_ahead(None, None)
    assert not HelperProcesses.of_fit("CPU", None, density_map).has_processes and pools[4].ended
    monkeypatch.setattr(helper_processes, "_NVIDIA", [os.devnull + "/nowhere"])
    for platform, threads in (("CPU", None), ("Reference", None), (None, None), ("CUDA", 1)):
        helper_processes.begin_ahead(platform, threads)
    assert len(pools) == 5 and not helper_processes._ahead


def test_what_was_started_ahead_ends_where_no_fit_begins(pools, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(helper_processes, "_NVIDIA", [os.devnull])
    model = write_fragment(tmp_path / "model.pdb", residues=RESIDUES)
    (tmp_path / "map.mrc").write_text("no map")
    asked = "fit", model, tmp_path / "map.mrc", "--resolution", 3, "--output", tmp_path / "run"
    assert main(list(map(str, asked))) == 2 and "map.mrc" in capsys.readouterr().err
    assert [each.ended for each in pools] == [True] and not helper_processes._ahead
