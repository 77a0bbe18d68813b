"""A stretch alone with what is around it."""

from __future__ import annotations

import numpy as np
import openmm
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.chemistry.elements import is_hydrogen
from openmm_density.fitting.rebuilding.bonded_terms import BondedTerms
from openmm_density.fitting.rebuilding.bound_hydrogens import BoundHydrogens
from openmm_density.fitting.rebuilding.density_model import DensityModel
from openmm_density.fitting.rebuilding.local_system import LocalSystem
from openmm_density.fitting.rebuilding.molecule import Molecule
from openmm_density.fitting.stability import Unstable
from openmm_density.models.preparation import Prepared, prepare

from ...fragments import fragment

RESIDUES, RESOLUTION, STRENGTH = 30, 3.0, 40.0
REGION = np.arange(10, 18)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(fragment(tmp_path_factory.mktemp("local") / "model.pdb", residues=RESIDUES))


@pytest.fixture(scope="module")
def molecule(prepared: Prepared) -> Molecule:
    return Molecule(prepared.topology)


@pytest.fixture(scope="module")
def density(prepared: Prepared, molecule: Molecule) -> DensityModel:
    density_map = DensityMap.simulate(
        prepared.topology, prepared.positions, RESOLUTION, 0.9, noise=0.05, seed=3
    )
    fit = DensityFit(density_map, prepared.topology, RESOLUTION, positions=prepared.positions)
    return DensityModel.of_fit(fit, molecule, STRENGTH * fit.n_fitted_atoms)


@pytest.fixture(scope="module")
def local(prepared: Prepared, molecule: Molecule, density: DensityModel) -> LocalSystem:
    system = prepared.system(constraints=None, rigidWater=False)
    return LocalSystem(BondedTerms(system), molecule, density, prepared.positions, REGION)


def test_heavy_atoms_of_the_residues_move_and_no_others(prepared: Prepared, local: LocalSystem) -> None:
    wanted = [a.index for a in prepared.topology.atoms() if a.residue.index in REGION and not is_hydrogen(a)]
    assert local.moving.tolist() == wanted
    moved = local.annealed(prepared.positions, (300.0, 100.0), 20)
    changed = np.flatnonzero((moved != prepared.positions).any(axis=1))
    assert set(changed.tolist()) == set(wanted)


def test_the_same_calls_give_the_same(prepared: Prepared, molecule: Molecule, density: DensityModel) -> None:
    system = prepared.system(constraints=None, rigidWater=False)
    first, second = (
        LocalSystem(BondedTerms(system), molecule, density, prepared.positions, REGION).annealed(
            prepared.positions, (300.0, 100.0), 20
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_density_is_that_of_the_search_to_first_order(
    prepared: Prepared, molecule: Molecule, density: DensityModel, local: LocalSystem
) -> None:
    """The forces of map and overlaps are those of k S: bonded terms and contacts are the same with another strength."""
    weaker = DensityModel(density.target, density.weights, density.sigma, 0.0)
    system = prepared.system(constraints=None, rigidWater=False)
    without = LocalSystem(BondedTerms(system), molecule, weaker, prepared.positions, REGION)
    rng = np.random.default_rng(5)
    moved = prepared.positions.copy()
    # A side chain's end, far from excluded neighbours' overlaps.
    for _ in range(3):
        shift = np.zeros_like(moved)
        shift[local.moving] = rng.normal(0, 0.02, 3)
        trial = moved + shift
        ours = (local.energy(trial) - without.energy(trial)) - (local.energy(moved) - without.energy(moved))
        fitted = len(np.flatnonzero(density.weights))
        wanted = -STRENGTH * fitted * (density.similarity(trial) - density.similarity(moved))
        assert ours == pytest.approx(wanted, abs=0.1 * abs(wanted) + 0.5)


def test_what_was_shaken_comes_back(prepared: Prepared, local: LocalSystem) -> None:
    shaken = prepared.positions.copy()
    shaken[local.moving] += np.random.default_rng(2).normal(0, 0.4, (len(local.moving), 3))
    relaxed = local.minimized(local.minimized(shaken, soft=True))
    assert local.energy(relaxed) < local.energy(shaken)
    off = np.linalg.norm((relaxed - prepared.positions)[local.moving], axis=1)
    assert np.sqrt((off**2).mean()) < 0.35


def test_hydrogens_follow_what_they_are_bound_to(
    prepared: Prepared, molecule: Molecule, local: LocalSystem
) -> None:
    moved = local.annealed(prepared.positions, (300.0,), 50)
    whole = BoundHydrogens(molecule, local.moving).carried(prepared.positions, moved)
    of_bonds = [
        (a.index, b.index)
        for a, b in prepared.topology.bonds()
        if (is_hydrogen(a) or is_hydrogen(b)) and {a.residue.index, b.residue.index} <= set(REGION.tolist())
    ]
    before, after = (
        np.linalg.norm(x[[a for a, _ in of_bonds]] - x[[b for _, b in of_bonds]], axis=1)
        for x in (prepared.positions, whole)
    )
    np.testing.assert_allclose(after, before, atol=1e-6)
    np.testing.assert_array_equal(whole[local.moving], moved[local.moving])


def test_another_force_field_has_the_bonds_of_a_local_system(
    prepared: Prepared, molecule: Molecule, density: DensityModel
) -> None:
    other = prepare(prepared.model, "charmm36")
    assert other.topology.getNumAtoms() == prepared.topology.getNumAtoms()
    system = other.system(constraints=None, rigidWater=False)
    local = LocalSystem(BondedTerms(system), molecule, density, prepared.positions, REGION)
    relaxed = local.minimized(prepared.positions)
    assert np.linalg.norm((relaxed - prepared.positions)[local.moving], axis=1).max() < 1.0


@pytest.mark.parametrize("method", ["minimized", "annealed"])
def test_what_blows_up_is_tried_more_gently(
    prepared: Prepared,
    molecule: Molecule,
    density: DensityModel,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    minimize = openmm.LocalEnergyMinimizer.minimize
    calls = []

    def spoilt(context: openmm.Context, **options: int) -> None:
        minimize(context, **options)
        calls.append(context.getIntegrator().getStepSize()._value)
        if len(calls) <= blown:
            positions = np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)
            positions[3] = np.nan
            context.setPositions(positions)

    local = LocalSystem(
        BondedTerms(prepared.system(constraints=None, rigidWater=False)),
        molecule,
        density,
        prepared.positions,
        REGION,
    )
    atom = list(prepared.topology.atoms())[local._members[3]]
    arguments = (prepared.positions,) if method == "minimized" else (prepared.positions, (300.0,), 20)
    monkeypatch.setattr(openmm.LocalEnergyMinimizer, "minimize", spoilt)
    blown = 1
    found = getattr(local, method)(*arguments)
    assert np.isfinite(found).all() and len(calls) == 2
    assert calls == pytest.approx([0.003, 0.003 if method == "minimized" else 0.0015])
    calls.clear()
    blown = 2
    with pytest.raises(Unstable, match=f"A {atom.residue.name} {atom.residue.id} {atom.name} are not"):
        getattr(local, method)(*arguments)
    assert np.isfinite(local.energy(prepared.positions))
    assert np.isfinite(getattr(local, method)(*arguments)).all()
