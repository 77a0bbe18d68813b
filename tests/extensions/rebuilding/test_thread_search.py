"""Chains led through the helices of a map."""

from __future__ import annotations

import math

import numpy as np
import pytest

from openmm_density.extensions.rebuilding import thread_search
from openmm_density.extensions.rebuilding.evidence_search import LEAST_GAIN
from openmm_density.extensions.rebuilding.map_helices import MapHelix, helices_along
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import ChainShift, RegisterSearch
from openmm_density.extensions.rebuilding.side_chain_evidence import SideChainEvidence
from openmm_density.extensions.rebuilding.stretch_trial import TrialTools
from openmm_density.extensions.rebuilding.thread_search import ThreadSearch, least_gain
from openmm_density.models import Model

from .searched import Going, StillPlace, Weighed


class NoAnnealing:
    """In place of workers: models stay as they are built, with the energies that a test says, built and own."""

    def __init__(self) -> None:
        self.built, self.own = 0.0, 0.0
        self.asked: list[list[str]] = []

    def run(self, tools, positions, trials, stop, progress) -> bool:
        places = [StillPlace(tools, positions, trial, (self.built, self.own)) for trial in trials]
        for number, (trial, place) in enumerate(zip(trials, places)):
            trial.take(trial.run(place))
            progress(number)
        self.asked.append([place.asked[-1] for place in places])
        return True


@pytest.fixture(scope="module")
def registers(native: Model) -> RegisterSearch:
    return RegisterSearch(native.topology)


@pytest.fixture(scope="module")
def chain(registers: RegisterSearch) -> np.ndarray:
    (found,) = registers.chains
    return found


@pytest.fixture(scope="module")
def wrong(native: Model, registers: RegisterSearch, chain: np.ndarray) -> np.ndarray:
    """Helices entered up to three residues late and drawn out, one after the other, as in de novo models."""
    by = np.interp(np.arange(len(chain)), [0, 30, 42, 56, 66, 74, 82, len(chain)], [0, 0, 3, 1, -2, -3, 0, 0])
    return registers.displaced(native.positions, ChainShift(chain, 0, tuple(by.tolist())))


@pytest.fixture(scope="module")
def helices(evidence: SideChainEvidence, wrong: np.ndarray, chain: np.ndarray) -> list[MapHelix]:
    return helices_along(evidence.density_map, evidence.backbone(wrong, chain))


def search_of(native: Model, evidence: SideChainEvidence) -> tuple[ThreadSearch, NoAnnealing]:
    molecule, registers, workers = Molecule(native.topology), RegisterSearch(native.topology), NoAnnealing()
    tools = TrialTools(None, molecule, Weighed(len(molecule.atoms)), None, registers, evidence=evidence)
    return ThreadSearch(tools, workers), workers


@pytest.fixture
def known_helices(monkeypatch: pytest.MonkeyPatch, helices: list[MapHelix]) -> None:
    """Finding them takes seconds, and is tested by itself."""
    monkeypatch.setattr(thread_search, "helices_along", lambda density_map, backbone: helices)


def off(native: Model, registers: RegisterSearch, chain: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.linalg.norm(
        registers.alphas(positions, chain) - registers.alphas(native.positions, chain), axis=1
    )


def test_shifted_helices_come_back_together(
    native: Model,
    registers: RegisterSearch,
    chain: np.ndarray,
    evidence: SideChainEvidence,
    wrong: np.ndarray,
    known_helices: None,
) -> None:
    search, workers = search_of(native, evidence)
    told = []
    found, moved = search.improved(wrong, Going(), progress=lambda *each: told.append(each))
    before, after = (off(native, registers, chain, each) for each in (wrong, found))
    assert (before > 2).sum() > 30
    # Loops are not annealed here.
    assert np.sqrt((after**2).mean()) < 0.6 * np.sqrt((before**2).mean())
    assert (after > 2).sum() < 0.6 * (before > 2).sum()
    assert evidence.total(found, [chain]) > evidence.total(wrong, [chain]) + 15.0
    assert sum(each.gain for each in moved) >= LEAST_GAIN
    assert {-1, 1} <= {int(np.sign(each.shift.usual)) for each in moved}
    # All of a region together, with what it is compared with; of those that are built the best are annealed.
    (first, second), *_ = zip(workers.asked[0::2], workers.asked[1::2])
    assert set(first) == {"turn"} and set(second) == {"anneal"} and len(second) <= len(first)
    assert search.tried > 0 and search.work > 0 and search.left == 0 and told


def test_a_deposited_model_stays(native: Model, chain: np.ndarray, evidence: SideChainEvidence) -> None:
    search, _ = search_of(native, evidence)
    found, moved = search.improved(native.positions, Going())
    assert found is native.positions and moved == []


def test_energy_can_outweigh_evidence(
    native: Model, evidence: SideChainEvidence, wrong: np.ndarray, known_helices: None
) -> None:
    search, workers = search_of(native, evidence)
    assert least_gain(15) == LEAST_GAIN and least_gain(80) == pytest.approx(2 * LEAST_GAIN)
    for workers.built, workers.own in ((4e4, 0.0), (math.inf, 0.0), (0.0, math.inf)):
        found, moved = search.improved(wrong, Going())
        assert found is wrong and moved == []
