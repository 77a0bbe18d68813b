"""Searches of a unit in the density of all its copies, against the model of all copies written out."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import app
from scipy.spatial import cKDTree

from openmm_density import DensityFit, DensityMap, SymmetryOperators
from openmm_density.extensions.rebuilding.bonded_terms import BondedTerms
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.local_system import LocalSystem
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.rebuilding import Rebuilding
from openmm_density.extensions.rebuilding.rotamer_search import RotamerSearch
from openmm_density.extensions.rebuilding.surrounding_mates import REACH, SurroundingMates
from openmm_density.models import Model, prepare
from openmm_density.models.assembly import copied_topology
from openmm_density.models.preparation import Prepared
from openmm_density.validation.correlation import MapCorrelation

from ...fragments import fragment
from .searched import RESOLUTION, Going

QUARTER = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])

RING = SymmetryOperators.from_matrices(
    [np.linalg.matrix_power(QUARTER, k) for k in range(4)], np.zeros((4, 3))
)

STRENGTH = 60.0

# Its side chain touches a mate, see `ring`.
LYSINE = 22


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return one of four fragments in a ring that touch each other, the nearest heavy atoms 3.8 Å apart."""
    model = fragment(tmp_path_factory.mktemp("ring") / "unit.pdb", residues=24)
    turned = model.positions - model.positions.mean(axis=0)
    angle = np.radians(60)
    turned[:, 1:] = turned[:, 1:] @ np.array(
        [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    )
    model.positions[:] = turned + np.array([15.5, 0, 0])
    return model


def of_all(model: Model, atoms: np.ndarray | None = None) -> DensityMap:
    """Return the map of all copies, of some atoms of each."""
    kept = np.arange(len(model.positions)) if atoms is None else atoms
    modeller = app.Modeller(model.topology, model.positions)
    left_out = set(range(len(model.positions))) - set(kept.tolist())
    modeller.delete([atom for atom in model.topology.atoms() if atom.index in left_out])
    everything = copied_topology(modeller.topology, len(RING))
    places = RING.expanded(model.positions[kept]).reshape(-1, 3)
    return DensityMap.simulate(everything, places, RESOLUTION, 0.9, margin=12.0)


@pytest.fixture(scope="module")
def searched(ring: Model) -> tuple[Prepared, BondedTerms, DensityFit]:
    """Return the unit with its hydrogens, the terms of its force field, and its fit to the map of all."""
    unit = prepare(ring)
    terms = BondedTerms(unit.system(constraints=None, rigidWater=False))
    target = of_all(ring)
    return (
        unit,
        terms,
        DensityFit(target, unit.topology, RESOLUTION, positions=unit.positions, operators=RING),
    )


def distances(model: Model, positions: np.ndarray) -> np.ndarray:
    """Return how far from its nearest mates' atom each is."""
    return cKDTree(RING.expanded(model.positions)[1:].reshape(-1, 3)).query(positions)[0]


def test_mates_are_images_of_whole_residues_in_reach(ring: Model) -> None:
    mates = SurroundingMates(ring.topology, ring.positions, RING)
    everywhere = mates.around(ring.positions)
    np.testing.assert_array_equal(everywhere[: mates.n_own], ring.positions)
    images = everywhere[mates.n_own :]
    apart = np.linalg.norm(RING.expanded(ring.positions)[1:, mates.originals] - images, axis=2)
    assert apart.min(axis=0).max() < 1e-9
    copies = RING.expanded(ring.positions)[1:].reshape(-1, 3)
    in_reach = cKDTree(ring.positions).query(copies)[0] < REACH
    assert cKDTree(images).query(copies[in_reach])[0].max() < 1e-9
    assert len(images) < 0.9 * len(copies)
    own, behind = list(ring.topology.atoms()), list(mates.topology.atoms())
    assert [atom.name for atom in behind] == [own[i].name for i in [*range(len(own)), *mates.originals]]
    residues = {}
    for atom in behind:
        residues.setdefault(atom.residue, []).append(atom.name)
    names = [[atom.name for atom in residue.atoms()] for residue in ring.topology.residues()]
    assert all(each in names for each in residues.values())
    # Each as it is bonded in the unit.
    lengths = [np.linalg.norm(everywhere[a.index] - everywhere[b.index]) for a, b in mates.topology.bonds()]
    assert len(lengths) > ring.topology.getNumBonds() and max(lengths) < 2.2


def test_those_of_a_crystal_are_in_all_cells_and_links_across_are_bonds(ring: Model) -> None:
    x = ring.positions - ring.positions.mean(axis=0) + 5.0
    crystal = SymmetryOperators.crystal((36, 34, 40, 90, 97, 90), "P 1 21 1")
    mates = SurroundingMates(ring.topology, x, crystal)
    assert mates.n_copies == 2
    names = {atom.index: atom.name for atom in ring.topology.atoms()}
    # Images by translations alone are among them.
    moved = mates.around(x)[mates.n_own :] - x[mates.originals]
    vectors = np.unique(np.round(moved, 3), axis=0)
    assert any(np.allclose(np.abs(vector), (0, 34, 0), atol=1e-2) for vector in vectors)
    two = SymmetryOperators.from_matrices([np.eye(3), np.diag([-1.0, -1, 1])], np.zeros((2, 3)))
    first = next(index for index, name in names.items() if name == "CB")
    beside = ring.positions - ring.positions[first] + np.array([1.0, 0, 0])
    linked = SurroundingMates(ring.topology, beside, two, [(first, first)])
    (bond,) = [
        {a.index, b.index} for a, b in linked.topology.bonds() if (a.index < len(x)) != (b.index < len(x))
    ]
    assert first in bond and linked.originals[max(bond) - len(x)] == first
    on_axis = SurroundingMates(ring.topology, beside - np.array([0.9, 0, 0]), two)
    assert first not in on_axis.originals  # it lies on itself


def test_density_is_that_of_all_copies(ring: Model) -> None:
    target = of_all(ring)
    n = len(ring.positions)
    moved = ring.positions + np.random.default_rng(0).normal(scale=0.5, size=(n, 3))
    mates = SurroundingMates(ring.topology, moved, RING)
    fit = DensityFit(target, ring.topology, RESOLUTION, positions=ring.positions, operators=RING)
    unit = DensityModel.of_fit(fit, Molecule(mates.topology), STRENGTH * fit.n_fitted_atoms, mates)
    assert unit.strength_per_atom == pytest.approx(STRENGTH)
    every = DensityModel(fit.target, np.tile(unit.weights[:n], 4), unit.sigma, 1.0)

    def of_all_copies(x: np.ndarray) -> float:
        return every.similarity(RING.expanded(x).reshape(-1, 3))

    around = mates.around(moved)
    assert unit.similarity(around) == pytest.approx(of_all_copies(moved), rel=1e-6)
    # As the unit moves among fixed mates, the energy changes as it does where all of them move.
    step = 1e-4 * (ring.positions - moved)
    aside = [np.concatenate([moved + sign * step, around[n:]]) for sign in (1, -1)]
    found = unit.similarity(aside[0]) - unit.similarity(aside[1])
    assert found == pytest.approx(of_all_copies(moved + step) - of_all_copies(moved - step), rel=1e-3)
    alone = DensityModel.of_fit(fit, Molecule(ring.topology), 1.0)
    assert abs(alone.similarity(moved) - unit.similarity(around)) > 0.05


def test_a_side_chain_without_density_does_not_take_that_of_a_mate(ring: Model) -> None:
    residue = list(ring.topology.residues())[LYSINE]
    backbone = ("N", "CA", "C", "O", "CB")
    side = np.array([atom.index for atom in residue.atoms() if atom.name not in backbone])
    assert residue.name == "LYS" and distances(ring, ring.positions[side]).min() < 4.5
    target = of_all(ring, np.setdiff1d(np.arange(len(ring.positions)), side))
    nearest = {}
    for operators in (RING, None):
        options = {} if operators is None else {"operators": operators}
        fit = DensityFit(target, ring.topology, RESOLUTION, positions=ring.positions, **options)
        mates = None if operators is None else SurroundingMates(ring.topology, ring.positions, operators)
        molecule = Molecule(ring.topology if mates is None else mates.topology)
        density = DensityModel.of_fit(fit, molecule, STRENGTH * fit.n_fitted_atoms, mates)
        positions = ring.positions if mates is None else mates.around(ring.positions)
        search = RotamerSearch(molecule, density)
        assert {each.residue for each in search.free_side_chains(positions)} < set(range(24))
        found, _ = search.improved(positions, np.array([LYSINE]))
        nearest[operators is None] = distances(ring, found[side]).min()
    # That of the unit alone does.
    assert nearest[False] > 3.0 and nearest[True] < 1.0


def test_side_chains_that_are_wrong_in_all_copies_are_mended(
    ring: Model, searched: tuple[Prepared, BondedTerms, DensityFit]
) -> None:
    prepared, terms, fit = searched

    def rebuilding(positions: np.ndarray) -> Rebuilding:
        mates = SurroundingMates(prepared.topology, positions, RING)
        correlation = MapCorrelation(fit.target, mates.topology, RESOLUTION)
        return Rebuilding(prepared, terms, correlation, fit, STRENGTH * fit.n_fitted_atoms, mates=mates)

    right = rebuilding(prepared.positions)
    assert right.with_fitted_rotamers(prepared.positions) is prepared.positions
    wrong, changed = prepared.positions.copy(), []
    near = distances(ring, prepared.positions)
    for chain in right._rotamers.free_side_chains(right._mates.around(prepared.positions)):
        own = wrong[chain.atoms]
        scored = own[chain.scored]
        turned = chain.conformations(own)
        far = np.linalg.norm(turned[:, chain.scored] - scored, axis=2).max(axis=1) > 2.5
        clear = [distances(ring, each[chain.scored]).min() > 2.5 for each in turned]
        if len(chain.scored) > 2 and near[chain.scored_atoms].min() < 6 and (far & clear).any():
            wrong[chain.atoms] = turned[far & clear][0]
            changed.append(chain)
    assert len(changed) >= 2
    search = rebuilding(wrong)
    mended = search.with_fitted_rotamers(wrong, Going())
    for chain in changed:
        atoms = chain.scored_atoms
        # Oxygens of a carboxyl group may change places.
        assert cKDTree(mended[atoms]).query(prepared.positions[atoms])[0].max() < 1.3
    # One end was only turned half around.
    assert {each.row for each in search.changes.side_chains} == {1, 18, 20, 21, 22}


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stretch_moves_among_mates_that_repel_it(
    searched: tuple[Prepared, BondedTerms, DensityFit], compiled: bool
) -> None:
    prepared, terms, fit = searched
    mates = SurroundingMates(prepared.topology, prepared.positions, RING)
    molecule = Molecule(mates.topology)
    density = DensityModel.of_fit(fit, molecule, 1e-3, mates)
    everywhere = mates.around(prepared.positions)
    region = np.arange(LYSINE - 1, LYSINE + 2)
    local = LocalSystem(terms, molecule, density, everywhere, region, compiled=compiled)
    assert set(local.moving) < set(range(mates.n_own))
    # Moved into a mate it costs more than as far to the other side.
    toward = np.array([-1.0, 0, 0]) * 3.0
    energies = []
    for sign in (1, -1):
        displaced = everywhere.copy()
        displaced[local.moving] += sign * toward
        energies.append(local.energy(displaced))
    alone = LocalSystem(
        terms,
        Molecule(prepared.topology),
        DensityModel.of_fit(fit, Molecule(prepared.topology), 1e-3),
        prepared.positions,
        region,
        compiled=compiled,
    )
    without = []
    for sign in (1, -1):
        displaced = prepared.positions.copy()
        displaced[alone.moving] += sign * toward
        without.append(alone.energy(displaced))
    assert energies[0] - energies[1] > without[0] - without[1] + 50.0
