"""The search for stretches that belong elsewhere along their chain, by the density beside the backbone."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from openmm_density.extensions.rebuilding import evidence_search
from openmm_density.extensions.rebuilding.evidence_search import (
    SHIFTS,
    EvidenceSearch,
    gains_of_shifts,
    lowest_path,
    proposed_shifts,
    stretches_of_most,
)
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.side_chain_evidence import SideChainEvidence
from openmm_density.extensions.rebuilding.stretch_trial import TrialTools
from openmm_density.models import Model

from .searched import Going, StillPlace, Weighed


class Stopped:
    requested = True


def test_gains_are_against_the_own_place() -> None:
    odds = np.random.default_rng(0).normal(size=(9, 9))
    gains = gains_of_shifts(odds)
    for residue, (column, by) in itertools.product(range(9), enumerate(SHIFTS.tolist())):
        there = residue + by
        inside = 0 <= there < 9
        expected = odds[residue, there] - odds[residue, residue] if inside else evidence_search._BEYOND
        assert gains[residue, column] == pytest.approx(expected)


def test_stretches_of_most_evidence_are_those_of_all_that_there_are() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        gains = rng.normal(-0.1, 1.0, 30)
        sums = {
            (first, last): gains[first : last + 1].sum()
            for first in range(30)
            for last in range(first + 4, 30)
        }
        best = max(sums, key=sums.__getitem__)
        found = stretches_of_most(gains)
        if sums[best] <= 0.5:
            assert found == []
            continue
        assert found[0] == best
        assert [sums[each] for each in found] == sorted((sums[each] for each in found), reverse=True)
        for (a, b), (c, d) in itertools.combinations(found, 2):
            shared = min(b, d) - max(a, c) + 1
            assert shared < 0.6 * max(b - a + 1, d - c + 1)


@pytest.mark.parametrize("by", [1, -1, 2, -2, 3])
def test_the_way_back_of_a_shifted_stretch_is_proposed_in_an_experimental_map(
    native: Model, evidence: SideChainEvidence, by: int
) -> None:
    registers = RegisterSearch(native.topology)
    (chain,) = registers.chains
    for first, last in ((8, 20), (36, 50), (60, 75)):
        wrong = registers.shifted(native.positions, [Stretch(chain, first, last)], by)
        proposed = proposed_shifts(chain, evidence.log_odds(wrong, chain))[:16]
        assert any(
            shift.usual == -by and abs(shift.first - first) <= 4 and abs(shift.stretch.last - last) <= 4
            for shift in proposed
        )


class NoAnnealing:
    """In place of workers: stretches stay where they are put, and the energy is what a test says, moved and not."""

    def __init__(self) -> None:
        self.moved, self.own = 0.0, 0.0
        self.asked, self.built_in_vain = [], []

    def run(self, tools, positions, trials, stop, progress) -> bool:
        for number, trial in enumerate(trials):
            place = StillPlace(tools, positions, trial, (self.moved, self.own))
            trial.take(trial.run(place))
            self.asked += place.asked
            progress(number)
            if trial.gain < evidence_search.HOPELESS:
                atoms = tools.registers.atoms_of(trial.region)
                shift = trial.shift
                self.built_in_vain.append((shift.first, shift.by, positions[atoms].tobytes()))
        return True


def search_of(native: Model, evidence: SideChainEvidence) -> tuple[EvidenceSearch, NoAnnealing]:
    molecule, registers, workers = Molecule(native.topology), RegisterSearch(native.topology), NoAnnealing()
    tools = TrialTools(None, molecule, Weighed(len(molecule.atoms)), None, registers, evidence=evidence)
    return EvidenceSearch(tools, workers), workers


def test_two_shifted_stretches_come_back(native: Model, evidence: SideChainEvidence) -> None:
    (chain,) = RegisterSearch(native.topology).chains
    registers = RegisterSearch(native.topology)
    wrong = registers.shifted(native.positions, [Stretch(chain, 8, 20)], 1)
    wrong = registers.shifted(wrong, [Stretch(chain, 60, 75)], -2)
    alphas = np.array([a.index for a in native.topology.atoms() if a.name == "CA"])

    def off(positions: np.ndarray) -> np.ndarray:
        return np.linalg.norm((positions - native.positions)[alphas], axis=1)

    told = []
    search, workers = search_of(native, evidence)
    found, moved = search.improved(wrong, Going(), progress=lambda *each: told.append(each))
    assert {each.shift.usual for each in moved} >= {-1, 2}
    assert evidence.total(found, [chain]) > evidence.total(wrong, [chain]) + 15.0
    assert (off(wrong) > 2).sum() > 28 and (off(found) > 2).sum() <= 14  # flanks are not annealed
    assert all(each.evidence > 1.0 and each.gain >= evidence_search.LEAST_GAIN for each in moved)
    # What the evidence speaks against once its backbone is built has no side chains turned.
    asked = Counter(workers.asked)
    assert asked["turn"] < 2 * asked["shift"]
    # What failed in one model is not tried in another one with the same stretch.
    assert max(Counter(workers.built_in_vain).values()) == 1
    # What the evidence does not speak for once it is built is not annealed.
    assert 0 < asked["anneal"] < 2 * asked["shift"] == 2 * search.tried
    assert all(1 <= number <= total for _, number, total in told)


def test_energy_can_outweigh_evidence(native: Model, evidence: SideChainEvidence) -> None:
    registers = RegisterSearch(native.topology)
    (chain,) = registers.chains
    wrong = registers.shifted(native.positions, [Stretch(chain, 36, 50)], 1)
    search, workers = search_of(native, evidence)
    for moved, own in ((2e4, 0.0), (math.inf, 0.0), (0.0, math.inf)):
        workers.moved, workers.own = moved, own
        found, made = search.improved(wrong, Going())
        assert found is wrong and made == []
    assert search.tried > 0 and search.work > 0


def test_a_search_without_room_or_stopped_does_nothing(native: Model, evidence: SideChainEvidence) -> None:
    registers = RegisterSearch(native.topology)
    (chain,) = registers.chains
    wrong = registers.shifted(native.positions, [Stretch(chain, 36, 50)], 1)
    search, _ = search_of(native, evidence)
    for options in ({"stop": Stopped()}, {"stop": Going(), "room": 0.0}):
        found, moved = search.improved(wrong, **options)
        assert found is wrong and moved == [] and search.tried == 0
        assert (search.left > 0) == ("room" in options)


def test_the_lowest_path_is_that_of_all_paths() -> None:
    rng = np.random.default_rng(3)
    shifts = np.array([0, -1, 1])
    for change in (0.0, 0.3, 2.0):
        energies = rng.normal(size=(7, 3))
        cost = {}
        for path in itertools.product(range(3), repeat=7):
            whole = np.array([0, *shifts[list(path)], 0])
            changes = np.abs(np.diff(whole)) * [0.5, *np.ones(6), 0.5]
            cost[path] = energies[np.arange(7), path].sum() + change * changes.sum()
        assert tuple(lowest_path(energies, shifts, change)) == min(cost, key=cost.__getitem__)
    assert len(lowest_path(np.zeros((0, 3)), shifts, 1.0)) == 0
    # Where nothing is told, nothing is shifted, nor all of a chain for little.
    assert not lowest_path(np.zeros((10, 3)), shifts, 1.0).any()
    little = np.zeros((10, 3))
    little[:, 1] = -0.05
    assert not lowest_path(little, shifts, 1.0).any()
    assert (lowest_path(4 * little, shifts, 1.0) == 1).all()
