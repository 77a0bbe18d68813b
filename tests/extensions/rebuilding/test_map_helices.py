"""Ideal helices, and those that a map shows along a chain."""

from __future__ import annotations

import mdtraj
import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding.helix_fragments import (
    FRAGMENT,
    ideal_helix,
)
from openmm_density.extensions.rebuilding.map_helices import SHORTEST, MapHelix, helices_along
from openmm_density.extensions.rebuilding.side_chain_evidence import backbone_atoms
from openmm_density.models import Model
from openmm_density.models.chemistry.backbone import atoms_by_name


@pytest.fixture(scope="module")
def backbone(native: Model) -> np.ndarray:
    return native.positions[backbone_atoms(atoms_by_name(native.topology))]


@pytest.fixture(scope="module")
def helices(map5925: DensityMap, backbone: np.ndarray) -> list[MapHelix]:
    return helices_along(map5925, backbone)


def trajectory_of(atoms: np.ndarray) -> mdtraj.Trajectory:
    """Return residues of alanine with N, Cα, C, O and Cβ (m, 5, 3) in Å."""
    topology = app.Topology()
    chain = topology.addChain()
    for _ in atoms:
        residue = topology.addResidue("ALA", chain)
        for name in ("N", "CA", "C", "O", "CB"):
            topology.addAtom(name, app.Element.getBySymbol(name[0]), residue)
    return mdtraj.Trajectory(atoms.reshape(-1, 3) / 10, mdtraj.Topology.from_openmm(topology))


def test_an_ideal_helix_is_one() -> None:
    atoms = ideal_helix(20)
    (structure,) = mdtraj.compute_dssp(trajectory_of(atoms), simplified=False)
    assert set(structure[2:-2]) == {"H"}
    alphas = atoms[:, 1]
    np.testing.assert_allclose(np.linalg.norm(alphas[:, :2], axis=1), 2.29, atol=0.03)
    np.testing.assert_allclose(np.diff(alphas[:, 2]), 1.5, atol=0.06)
    turned = np.degrees(np.unwrap(np.arctan2(alphas[:, 1], alphas[:, 0])))
    np.testing.assert_allclose(np.diff(turned), 100.0, atol=1.5)  # to the right
    assert abs(alphas[:, 2].mean()) < 1e-9
    for first, second, length in ((0, 1, 1.458), (1, 2, 1.525), (2, 3, 1.231), (1, 4, 1.53)):
        np.testing.assert_allclose(np.linalg.norm(atoms[:, first] - atoms[:, second], axis=1), length)


def test_side_chains_of_an_ideal_helix_are_those_of_l_amino_acids(native: Model) -> None:
    named = atoms_by_name(native.topology)
    # Within the longest helix of the deposited model.
    real = np.array([native.positions[[named[i][n] for n in ("N", "CA", "C", "CB")]] for i in range(52, 60)])
    for atoms in real:
        own = FRAGMENT[4, [0, 1, 2, 4]]
        _, error = Rotation.align_vectors(atoms - atoms.mean(axis=0), own - own.mean(axis=0))
        assert error < 0.25


def test_the_helices_of_an_experimental_map_are_found(
    helices: list[MapHelix], native: Model, backbone: np.ndarray
) -> None:
    """Helices that DSSP sees over two turns, whose 11 residues a fragment can lie in, are found to 1.2 Å or better."""
    trajectory = mdtraj.Trajectory(native.positions / 10, mdtraj.Topology.from_openmm(native.topology))
    (structure,) = mdtraj.compute_dssp(trajectory)
    edges = np.flatnonzero(np.diff(structure == "H", prepend=False, append=False))
    long = [(a, b) for a, b in edges.reshape(-1, 2).tolist() if b - a >= 11]
    assert len(long) == 5
    alphas = backbone[:, 1]
    for first, behind in long:
        inner = alphas[first + 2 : behind - 2]
        apart = [np.linalg.norm(inner[:, None] - helix.backbone[None, :, 1], axis=2) for helix in helices]
        nearest = min(apart, key=lambda each: each.min(axis=1).mean())
        assert np.sqrt((nearest.min(axis=1) ** 2).mean()) < 1.2
        places = nearest.argmin(axis=1)
        assert (np.diff(places) == 1).all()  # one place for each residue, from N to C
    middles = [float(np.median(helix.residues)) for helix in helices]
    assert middles == sorted(middles)
    assert all(len(helix.density) >= SHORTEST and helix.density.max() > 0.5 for helix in helices)


def test_the_residues_of_a_model_in_its_own_helices_are_known(
    helices: list[MapHelix], backbone: np.ndarray
) -> None:
    for helix in helices:
        apart = np.linalg.norm(helix.backbone[:, None, 1] - backbone[None, :, 1], axis=2)
        near = apart.min(axis=1) < 1.0
        assert near.any()
        # Beyond its ends the chain leaves the line of the others.
        assert np.median(np.abs(helix.residues[near] - apart.argmin(axis=1)[near])) == 0


def test_a_map_without_helices_has_none(map5925: DensityMap, backbone: np.ndarray) -> None:
    random = np.random.default_rng(0).normal(size=(30, 30, 30)).astype(np.float32)
    noise = DensityMap(random, 1.5 * np.eye(3), np.zeros(3)).gaussian_filter(2.0)
    along = np.linspace([8.0, 8.0, 8.0], [36.0, 36.0, 36.0], 20)[:, None]
    assert helices_along(noise, along + backbone[:1] - backbone[:1].mean(axis=1)) == []
    empty = DensityMap(np.zeros((8, 8, 8), dtype=np.float32), np.eye(3), np.zeros(3))
    assert helices_along(empty, backbone) == []
    assert helices_along(map5925, backbone[:4]) == [] and helices_along(map5925, backbone[:0]) == []


def test_the_same_helices_are_found_again(
    map5925: DensityMap, backbone: np.ndarray, helices: list[MapHelix]
) -> None:
    for one, other in zip(helices, helices_along(map5925, backbone), strict=True):
        np.testing.assert_array_equal(one.backbone, other.backbone)
