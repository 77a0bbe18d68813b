"""Sugars that are put into the other pucker, and bases that are turned over, and turned back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.sugar_search import LEAST_GAIN, SugarSearch
from openmm_density.fitting.protocols import Stage
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.sugar_puckers import C2_ENDO, C3_ENDO
from openmm_density.restraints.sugar_puckers import GlycosidicRestraint, SugarPuckerRestraint
from openmm_density.restraints.torsions import TorsionRestraint

from .searched import Going, fit_of, simulated, turned_over

# A guanine and a cytosine of one pair.
GUANINE, CYTOSINE = 3, 20


@pytest.fixture(scope="module")
def native(small_data: Path) -> Model:
    return read_model(small_data / "zoo/1bna_duplex.pdb")


def search_of(rebuilding: Rebuilding) -> SugarSearch:
    return rebuilding._sugars


@pytest.mark.parametrize("residue", [GUANINE, CYTOSINE])
def test_a_turned_base_is_turned_back(positions: np.ndarray, rebuilding: Rebuilding, residue: int) -> None:
    search = search_of(rebuilding)
    base = search.bases[residue]
    wrong = turned_over(rebuilding, positions, base)
    assert base.residue == residue and base.is_flipped(positions, wrong)
    rebuilding.changes.sugars.clear()
    found = rebuilding.with_flipped_sugars(wrong, Going())
    assert not any(each.is_flipped(positions, found) for each in search.bases)
    (change,) = rebuilding.changes.sugars
    assert (change.row, change.kind) == (residue, "base") and change.gain > LEAST_GAIN
    assert abs(change.after - base.angle(positions)) < 30
    off = np.linalg.norm([each[base.atoms] - positions[base.atoms] for each in (wrong, found)], axis=2)
    assert off[0].max() > 3 and off[1].max() < 0.8


def test_what_the_map_shows_stays(positions: np.ndarray, rebuilding: Rebuilding) -> None:
    assert rebuilding.with_flipped_sugars(positions, Going()) is positions
    assert (
        search_of(rebuilding).candidates(positions, np.zeros(24), by_density=False) == []
    )  # no rule for DNA


def test_a_ring_is_put_into_the_other_pucker_with_its_bonds_and_hands(
    positions: np.ndarray, rebuilding: Rebuilding
) -> None:
    for pucker in search_of(rebuilding).puckers[::5]:
        for phase in (C2_ENDO, C3_ENDO):
            moved = positions.copy()
            moved[pucker.atoms] = pucker.turned(positions, float(np.degrees(phase)))
            assert pucker.angle(moved) == pytest.approx(np.degrees(phase), abs=8)
            ring = np.stack([pucker.ring, np.roll(pucker.ring, -1)], axis=1)
            before, after = (
                np.linalg.norm(each[ring[:, 0]] - each[ring[:, 1]], axis=1) for each in (positions, moved)
            )
            assert np.abs(after - before).max() < 0.25
            # The hand of C3', and the bond to O3'.
            c3, (o3, _, c2, c4) = pucker.ring[2], pucker.carried[-1]
            hands = [np.linalg.det(each[[o3, c2, c4]] - each[c3]) for each in (positions, moved)]
            assert hands[0] * hands[1] > 0
            assert np.linalg.norm(moved[o3] - moved[c3]) == pytest.approx(
                np.linalg.norm(positions[o3] - positions[c3]), abs=1e-6
            )


def test_a_pucker_that_pperp_contradicts_is_tried_whatever_the_map_shows(small_data: Path) -> None:
    rna = read_model(small_data / "zoo/4p5j_rna.pdb")
    molecule = Molecule(rna.topology)
    density_map = DensityMap.simulate(rna.topology, rna.positions, 6.0, 2.5)
    search = SugarSearch(
        molecule, DensityModel(density_map, molecule.is_heavy * 1.0, 1.35, 1e5), rna.topology
    )
    fitting = np.zeros(len(search.puckers))
    assert search.candidates(rna.positions, fitting, by_density=False) == []
    moved = rna.positions.copy()
    pucker = search.puckers[20]
    moved[pucker.atoms] = pucker.turned(moved, float(np.degrees(C2_ENDO)))
    ((flip, phase),) = search.candidates(moved, fitting, by_density=False)
    assert flip is pucker and phase == pytest.approx(np.degrees(C3_ENDO))
    assert flip.region.tolist() == [19, 20, 21]
    assert search.candidates(moved, fitting, False, changed=np.array([40])) == []


def test_what_was_flipped_is_held_as_it_then_was(rebuilding: Rebuilding, native: Model) -> None:
    fit = fit_of(native, simulated(native), Stage("hold", 20, restraints=("sugar-puckers",)))
    systems = fit._systems
    _, system = systems.at()
    pucker, base = (
        next(each for each in systems.restraints if isinstance(each, kind))
        for kind in (SugarPuckerRestraint, GlycosidicRestraint)
    )
    before = base.targets.copy(), pucker.targets.copy()

    def held(restraint: TorsionRestraint) -> np.ndarray:
        (force,) = [each for each in system.getForces() if each.getName() == type(restraint).__name__]
        return np.array([force.getTorsionParameters(k)[4][0] for k in range(force.getNumTorsions())])

    assert np.allclose(held(base), before[0])
    systems.hold_sugars({"base": {GUANINE: 1.0}, "pucker": {CYTOSINE: C3_ENDO}}, None)
    assert held(base)[GUANINE] == 1.0 and np.allclose(np.delete(held(base) - before[0], GUANINE), 0)
    changed = np.flatnonzero(~np.isclose(held(pucker), before[1]))
    assert changed.tolist() == [3 * CYTOSINE + k for k in range(3)]
    assert np.allclose(held(pucker), pucker.targets)
    systems.hold_sugars({"base": {}, "pucker": {}}, None)
    assert np.allclose(held(base), before[0]) and np.allclose(held(pucker), before[1])
