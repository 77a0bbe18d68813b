"""Stretches that several processes shift: the same as in one, and an end at once where it is asked for."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.base.errors import SimulationError
from openmm_density.extensions.rebuilding import TrialWorkers
from openmm_density.extensions.rebuilding.bonded_terms import BondedTerms
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.rotamer_search import RotamerSearch
from openmm_density.extensions.rebuilding.stretch_trial import StretchTrial, TrialTools
from openmm_density.models.preparation import prepare

from ...fragments import fragment
from .searched import Going

RESOLUTION = 2.8


@dataclass
class Search:
    """What trials are made of."""

    tools: TrialTools
    positions: np.ndarray

    def trials(self) -> list[StretchTrial]:
        chain = self.tools.registers.chains[0]
        places = [[Stretch(chain, 5, 7), Stretch(chain, 5, 8)], [Stretch(chain, 11, 12)]]
        regions = [np.unique(np.concatenate([each.region for each in place])) for place in places]
        return [StretchTrial(self.tools.molecule, self.positions, *place) for place in zip(places, regions)]

    def run(self, workers: TrialWorkers, stop: object = Going) -> tuple[bool, list[StretchTrial]]:
        trials = self.trials()
        return workers.run(self.tools, self.positions, trials, stop, lambda _: None), trials


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    prepared = prepare(fragment(tmp_path_factory.mktemp("trials") / "model.pdb", residues=18))
    density_map = DensityMap.simulate(
        prepared.topology, prepared.positions, RESOLUTION, 0.9, noise=0.05, seed=3
    )
    molecule = Molecule(prepared.topology)
    fit = DensityFit(density_map, prepared.topology, RESOLUTION, positions=prepared.positions)
    density = DensityModel.of_fit(fit, molecule, 60.0 * fit.n_fitted_atoms)
    registers = RegisterSearch(prepared.topology)
    tools = TrialTools(
        BondedTerms(prepared.system(constraints=None, rigidWater=False)),
        molecule,
        density,
        RotamerSearch(molecule, density),
        registers,
    )
    wrong = registers.shifted(prepared.positions, [Stretch(registers.chains[0], 5, 7)], 1)
    return Search(tools, wrong)


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openmm_density.extensions.rebuilding.stretch_trial.ANNEALING_STEPS", 10)
        yield


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialWorkers]:
    folder = tmp_path_factory.mktemp("elsewhere")
    # What lies in the working folder is not imported.
    (folder / "numpy.py").write_text("raise SystemExit")
    with pytest.MonkeyPatch.context() as patch, TrialWorkers(2) as workers:
        patch.chdir(folder)
        # Nor from what is no text, which Python passes over.
        patch.setattr("sys.path", ["", folder, *sys.path])
        workers.start()
        yield workers


@pytest.fixture(scope="module")
def alone(search: Search) -> list[StretchTrial]:
    done, trials = search.run(TrialWorkers(1))
    assert done
    return trials


def assert_same(found: list[StretchTrial], wanted: list[StretchTrial]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.gain == other.gain
        np.testing.assert_array_equal(one.shifted(), other.shifted())


def test_processes_find_bit_for_bit_what_one_alone_finds(
    search: Search, workers: TrialWorkers, alone: list[StretchTrial]
) -> None:
    done, trials = search.run(workers)
    assert done and max(trial.gain for trial in trials) > 0
    assert_same(trials, alone)


def test_a_process_that_is_lost_is_not_missed(
    search: Search, workers: TrialWorkers, alone: list[StretchTrial]
) -> None:
    lost, other = (worker.pid or worker.answer() for worker in workers._pool.workers)
    os.kill(lost, signal.SIGKILL)
    done, trials = search.run(workers)
    assert done
    assert_same(trials, alone)
    os.kill(other, signal.SIGKILL)
    with pytest.raises(SimulationError, match="use fewer threads"):
        search.run(workers)
    # The next search has new ones.
    assert workers._pool is None


def test_a_request_to_stop_ends_processes_in_the_middle(search: Search) -> None:
    class Soon:
        looked = 0

        @property
        def requested(self) -> bool:
            self.looked += 1
            return self.looked > 1

    with TrialWorkers(2) as workers:
        workers.start()
        connections = [worker.connection for worker in workers._pool.workers]
        done, trials = search.run(workers, Soon())
        assert not done
        assert all(connection.closed for connection in connections)
    assert [trial.gain for trial in trials] == [0.0, 0.0]
    done, _ = search.run(TrialWorkers(1), Soon())
    assert not done


def test_an_error_in_a_process_is_told_and_ends_the_others(search: Search) -> None:
    nowhere = StretchTrial(
        search.tools.molecule, search.positions, [Stretch(np.arange(3), 0, 1)], np.array([99])
    )
    with (
        TrialWorkers(2) as workers,
        pytest.raises(SimulationError, match="a part of the model could not be rebuilt: "),
    ):
        workers.start()
        workers.run(search.tools, search.positions, [nowhere], Going, lambda _: None)
    assert workers._pool is None


def test_processes_start_where_there_is_enough_to_do(
    search: Search, monkeypatch: pytest.MonkeyPatch, alone: list[StretchTrial]
) -> None:
    with TrialWorkers(2) as workers:
        done, trials = search.run(workers)
        assert done and workers._pool is None
        assert_same(trials, alone)
        monkeypatch.setattr("openmm_density.extensions.rebuilding.trial_workers._LITTLE", 10)
        done, trials = search.run(workers)
        assert done and len(workers._pool.workers) == 2
        assert_same(trials, alone)


def test_calls_beside_each_other_return_in_their_order_and_tell_in_this_thread(
    search: Search, workers: TrialWorkers
) -> None:
    told, meeting = [], threading.Barrier(2, timeout=60)

    def call(number: int, progress) -> int:
        progress(number, threading.current_thread())
        meeting.wait()  # both are under way
        assert search.run(workers)[0]
        return number

    def progress(number: int, where: threading.Thread) -> None:
        told.append((number, where is not threading.current_thread(), threading.current_thread()))

    found = workers.beside([partial(call, number) for number in range(2)], progress)
    assert found == [0, 1]
    assert sorted(told, key=lambda each: each[0]) == [
        (number, True, threading.current_thread()) for number in range(2)
    ]
