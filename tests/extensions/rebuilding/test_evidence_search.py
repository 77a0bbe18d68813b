"""The search for stretches that belong elsewhere along their chain, by the density beside the backbone."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import evidence_search
from openmm_density.extensions.rebuilding.evidence_search import (
    SHIFTS,
    EvidenceSearch,
    Moved,
    _best_different,
    _Candidate,
    gains_of_shifts,
    proposed_ends,
    proposed_shifts,
    stretches_of_most,
)
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.register_search import FLANK, ChainShift, RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.side_chain_evidence import SideChainEvidence
from openmm_density.extensions.rebuilding.stretch_trial import TrialTools
from openmm_density.models import Model, read_model

from .searched import Going, StillPlace

RESOLUTION = 3.64


class Stopped:
    requested = True


@pytest.fixture(scope="module")
def native(small_data: Path) -> Model:
    return read_model(small_data / "emd5925_frag/5925_native.pdb")


@pytest.fixture(scope="module")
def evidence(native: Model, small_data: Path) -> SideChainEvidence:
    real = DensityMap.from_file(small_data / "emd5925_frag/emd5925.mrc.gz")
    return SideChainEvidence(native.topology, real, RESOLUTION)


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


def test_stretches_next_to_each_other_are_proposed_together(
    native: Model, evidence: SideChainEvidence
) -> None:
    registers = RegisterSearch(native.topology)
    (chain,) = registers.chains
    shift = ChainShift(chain, 36, (2,) * 9 + (1,) * 9)
    wrong = registers.displaced(native.positions, shift)
    proposed = proposed_shifts(chain, evidence.log_odds(wrong, chain))
    assert any({-2, -1} <= set(each.by) for each in proposed)


def test_without_evidence_nothing_is_proposed() -> None:
    assert proposed_shifts(np.arange(40), np.zeros((40, 40))) == []
    assert proposed_shifts(np.arange(2), np.zeros((2, 2))) == []


@pytest.mark.parametrize("at_begin", [True, False])
def test_ends_that_the_evidence_is_against_are_drawn_in(at_begin: bool) -> None:
    odds = np.eye(50)
    bad = np.arange(8) if at_begin else np.arange(42, 50)
    odds[bad, bad] = -1.0
    proposed = proposed_ends(np.arange(50), odds)
    # Of twelve it is against most, and of sixteen on the whole against none.
    assert [len(shift.by) for shift in proposed] == [8] * 4 + [5] * 4 + [12] * 4
    for shift in proposed:
        steps = np.array(shift.by if at_begin else shift.by[::-1])
        assert (shift.first == 0) if at_begin else (shift.stretch.last == 49)
        inward = steps if at_begin else -steps
        assert inward[0] in (2, 4, 6, 8) and (np.diff(inward) < 0).all() and inward[-1] > 0
    assert proposed_ends(np.arange(50), np.eye(50)) == []
    assert proposed_ends(np.arange(9), -np.eye(9)) == []


def test_the_best_of_different_models_are_followed() -> None:
    chain, positions = np.arange(20), np.zeros((1, 3))
    one, two, three = (Moved(ChainShift(chain, first, (1,)), 5.0 + first, 0.0) for first in range(3))
    models = [_Candidate(positions, moved) for moved in ((one, two), (two, one), (three,), (), (one,))]
    assert _best_different(models) == [models[0], models[2], models[4], models[3]]
    assert Moved(ChainShift(chain, 0, (1,)), 5.0, 800.0).gain == pytest.approx(3.0)


def test_flanks_are_moved_by_parts_of_a_place() -> None:
    shift = ChainShift(np.arange(20), 2, (2, 2, 1))
    by = shift.with_flanks()
    assert len(by) == 20 and by[2:5].tolist() == [2, 2, 1]
    np.testing.assert_allclose(by[:2], [1.2, 1.6])
    np.testing.assert_allclose(by[5 : 5 + FLANK], [0.8, 0.6, 0.4, 0.2])
    assert not by[5 + FLANK :].any()
    assert shift.usual == 2 and shift.residues.tolist() == [2, 3, 4]
    assert (shift.stretch.first, shift.stretch.last) == (2, 4)


def test_residues_are_moved_by_their_own_numbers_of_places(native: Model) -> None:
    registers = RegisterSearch(native.topology)
    (chain,) = registers.chains
    moved = registers.displaced(native.positions, ChainShift(chain, 30, (2, 2, 2, -1, -1)))
    alphas = np.array([a.index for a in native.topology.atoms() if a.name == "CA"])
    for place, onto in ((30, 32), (32, 34), (33, 32), (34, 33)):
        np.testing.assert_allclose(moved[alphas[place]], native.positions[alphas[onto]], atol=1e-9)
    still = np.setdiff1d(np.arange(len(chain)), np.arange(30 - FLANK, 35 + FLANK))
    np.testing.assert_array_equal(moved[alphas[still]], native.positions[alphas[still]])


class Weighed:
    """A density that all atoms have a part in."""

    def __init__(self, count: int) -> None:
        self.weights = np.ones(count)


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
