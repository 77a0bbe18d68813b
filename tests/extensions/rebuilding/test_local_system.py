"""A stretch alone with what is around it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import openmm
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.rebuilding.bonded_terms import BondedTerms
from openmm_density.extensions.rebuilding.compiled_dynamics import CompiledDynamics, kernel_serves
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.local_system import LocalContext, LocalSystem
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.stretch_trial import TrialPlace, TrialTools
from openmm_density.fitting.stability import Unstable
from openmm_density.kernels.compilation import BuildError, loading
from openmm_density.kernels.local_dynamics import LocalDynamics
from openmm_density.models.chemistry.contacts import BONDS_APART
from openmm_density.models.chemistry.elements import is_hydrogen
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
def bonded(prepared: Prepared) -> BondedTerms:
    return BondedTerms(prepared.system(constraints=None, rigidWater=False))


@pytest.fixture(scope="module")
def local(prepared: Prepared, bonded: BondedTerms, molecule: Molecule, density: DensityModel) -> LocalSystem:
    return LocalSystem(bonded, molecule, density, prepared.positions, REGION)


@pytest.fixture(scope="module")
def in_openmm(
    prepared: Prepared, bonded: BondedTerms, molecule: Molecule, density: DensityModel
) -> LocalSystem:
    return LocalSystem(bonded, molecule, density, prepared.positions, REGION, compiled=False)


def shaken(prepared: Prepared, local: LocalSystem, by: float, seed: int = 2) -> np.ndarray:
    """Return positions in Å of which those that move are displaced at random."""
    result = prepared.positions.copy()
    result[local.moving] += np.random.default_rng(seed).normal(0, by, (len(local.moving), 3))
    return result


def test_the_kernel_computes_what_openmm_does(
    prepared: Prepared, local: LocalSystem, in_openmm: LocalSystem
) -> None:
    """But for the energy of what does not move, and the steps of the table in which OpenMM has the map."""
    assert isinstance(local._dynamics, CompiledDynamics) and isinstance(in_openmm._dynamics, LocalContext)
    conformations = [prepared.positions, *(shaken(prepared, local, by) for by in (0.02, 0.1, 0.3))]
    ours, theirs = (np.array([each.energy(x) for x in conformations]) for each in (local, in_openmm))
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=5e-3, atol=5.0)
    ends = [each.minimized(conformations[2]) for each in (local, in_openmm)]
    assert in_openmm.energy(ends[0]) == pytest.approx(in_openmm.energy(ends[1]), abs=40.0)


def test_openmm_serves_where_the_kernel_cannot(
    prepared: Prepared,
    molecule: Molecule,
    density: DensityModel,
    bonded: BondedTerms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: str) -> None:
        raise BuildError("no compiler")

    assert kernel_serves()
    monkeypatch.setattr(loading, "entry_points", missing)
    with pytest.warns(RuntimeWarning, match="go on in OpenMM, about seven times slower: no compiler"):
        assert not kernel_serves()
    tools = TrialTools(bonded, molecule, density, None, None, compiled=False)
    local = TrialPlace(tools, prepared.positions, REGION)._local
    assert isinstance(local._dynamics, LocalContext)
    system = prepared.system(constraints=None, rigidWater=False)
    bends = openmm.RBTorsionForce()
    bends.addTorsion(*local.moving[:4].tolist(), *range(6))
    system.addForce(bends)
    local = LocalSystem(BondedTerms(system), molecule, density, prepared.positions, REGION)
    assert isinstance(local._dynamics, LocalContext)


def test_heavy_atoms_of_the_residues_move_and_no_others(prepared: Prepared, local: LocalSystem) -> None:
    wanted = [a.index for a in prepared.topology.atoms() if a.residue.index in REGION and not is_hydrogen(a)]
    assert local.moving.tolist() == wanted
    moved = local.annealed(prepared.positions, (300.0, 100.0), 20)
    changed = np.flatnonzero((moved != prepared.positions).any(axis=1))
    assert set(changed.tolist()) == set(wanted)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_same_calls_give_the_same(
    prepared: Prepared, bonded: BondedTerms, molecule: Molecule, density: DensityModel, compiled: bool
) -> None:
    first, second = (
        LocalSystem(bonded, molecule, density, prepared.positions, REGION, compiled=compiled).annealed(
            prepared.positions, (300.0, 100.0), 20
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_density_is_that_of_the_search_to_first_order(
    prepared: Prepared, bonded: BondedTerms, molecule: Molecule, density: DensityModel, local: LocalSystem
) -> None:
    """But for the overlaps of atoms up to four bonds apart; bonded terms and contacts are the same with another strength."""
    weaker = DensityModel(density.target, density.weights, density.sigma, 0.0)
    without = LocalSystem(bonded, molecule, weaker, prepared.positions, REGION)
    bonds = nx.Graph((a.index, b.index) for a, b in prepared.topology.bonds())
    near = dict(nx.all_pairs_shortest_path_length(bonds, cutoff=BONDS_APART))
    heavy = np.flatnonzero(density.weights).tolist()
    i, j = np.array([(a, b) for a in heavy for b in heavy if a < b and b in near[a]]).T
    weights = density.slopes(prepared.positions).per_pair * density.weights[i] * density.weights[j]

    def energy(x: np.ndarray) -> float:
        overlaps = weights @ np.exp(-((x[i] - x[j]) ** 2).sum(axis=1) / (4 * density.sigma**2))
        return -STRENGTH * len(heavy) * density.similarity(x) - overlaps

    rng = np.random.default_rng(5)
    ours, wanted = [], []
    for _ in range(10):
        trial = prepared.positions.copy()
        trial[local.moving] += rng.normal(0, 0.1, 3)
        ours.append([each.energy(trial) - each.energy(prepared.positions) for each in (local, without)])
        wanted.append(energy(trial) - energy(prepared.positions))
    # Of 90 such shifts in 3 maps the worst differed by 0.05, and they were 17 in the mean.
    np.testing.assert_allclose(-np.diff(ours, axis=1)[:, 0], wanted, atol=0.2)
    assert np.std(wanted) > 2.0


def test_another_force_field_with_maps_and_other_impropers_is_computed_alike(
    prepared: Prepared, molecule: Molecule, density: DensityModel
) -> None:
    other = prepare(prepared.model, "charmm36")
    assert other.topology.getNumAtoms() == prepared.topology.getNumAtoms()
    terms = BondedTerms(other.system(constraints=None, rigidWater=False))
    local, in_openmm = (
        LocalSystem(terms, molecule, density, prepared.positions, REGION, compiled=each)
        for each in (True, False)
    )
    assert isinstance(local._dynamics, CompiledDynamics)
    conformations = [prepared.positions, *(shaken(prepared, local, by) for by in (0.02, 0.1))]
    ours, theirs = (np.array([each.energy(x) for x in conformations]) for each in (local, in_openmm))
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=5e-3, atol=5.0)
    relaxed = local.minimized(prepared.positions)
    assert np.linalg.norm((relaxed - prepared.positions)[local.moving], axis=1).max() < 1.0


@pytest.mark.parametrize("method", ["minimized", "annealed"])
@pytest.mark.parametrize(("spoilt", "why"), [(np.nan, "flew away"), (9.0, "flew away")])
def test_what_blows_up_is_tried_more_gently(
    prepared: Prepared,
    local: LocalSystem,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    spoilt: float,
    why: str,
) -> None:
    minimized, calls = LocalDynamics.minimized, []

    def blowing_up(self: LocalDynamics, *arguments: object) -> tuple[float, np.ndarray]:
        energy, found = minimized(self, *arguments)
        calls.append(found)
        if len(calls) <= blown:
            found[3] += spoilt
        return energy, found

    arguments = (prepared.positions,) if method == "minimized" else (prepared.positions, (300.0,), 20)
    monkeypatch.setattr(LocalDynamics, "minimized", blowing_up)
    blown = 1
    found = getattr(local, method)(*arguments)
    assert np.isfinite(found).all() and len(calls) == 2
    assert np.linalg.norm(found - prepared.positions, axis=1).max() < 5.0
    calls.clear()
    blown = 2
    with pytest.raises(Unstable, match=why):
        getattr(local, method)(*arguments)


def test_what_is_no_number_from_the_start_is_unstable(prepared: Prepared, local: LocalSystem) -> None:
    positions = prepared.positions.copy()
    positions[local.moving[5]] = np.nan
    for lost in (local.energy, local.minimized):
        with pytest.raises(Unstable):
            lost(positions)
