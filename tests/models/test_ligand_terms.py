"""Where ends of ligands belong that no molecule has."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density.models.chemistry.torsions import torsion_angles
from openmm_density.models.preparation.ligand_terms import mended_ends


def made(symbols, bonds):
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    atoms = [
        topology.addAtom(f"{symbol}{i}", app.Element.getBySymbol(symbol), residue)
        for i, symbol in enumerate(symbols)
    ]
    for a, b in bonds:
        topology.addBond(atoms[a], atoms[b])
    return topology, [np.arange(len(symbols))]


@pytest.mark.parametrize(("symbol", "length"), [("P", 1.85), ("S", 1.78), ("N", 1.36)])
def test_two_oxygens_on_a_carbon_that_no_other_carbon_holds_are_left(symbol, length):
    """Phosphonoformate, thiocarboxylates and carbamates have bonds of their own lengths."""
    topology, rigid = made(["C", symbol, "O", "O", "C"], [(0, 1), (0, 2), (0, 3), (1, 4)])
    out = np.radians(62.5)
    oxygens = 1.25 * np.array([[np.cos(out), np.sin(out), 0], [np.cos(out), -np.sin(out), 0]])
    positions = np.array([[0, 0, 0], [-length, 0, 0], *oxygens, [-length - 0.5, 1.4, 0]])
    assert mended_ends(topology, positions, rigid) == {}


def test_a_twisted_acetamide_with_hydrogens_is_flattened_and_its_bond_mended():
    topology, rigid = made(
        ["C", "N", "C", "O", "C", "H", "H", "H"],
        [(0, 1), (1, 2), (2, 3), (2, 4), (4, 5), (4, 6), (4, 7)],
    )
    flat = np.array([[-0.7, 1.27, 0], [0, 0, 0], [1.34, 0, 0], [1.95, 1.06, 0], [2.1, -1.3, 0]])
    methyl = flat[4] + 1.09 * np.array([[0.94, 0.34, 0], [-0.47, -0.34, 0.81], [-0.47, -0.34, -0.81]])
    positions = np.vstack([flat, methyl])
    assert mended_ends(topology, positions, rigid) == {}
    positions[3:] = positions[2] + Rotation.from_rotvec([np.pi / 2, 0, 0]).apply(positions[3:] - positions[2])
    positions[3] = positions[2] + 0.63 * (positions[3] - positions[2]) / np.linalg.norm(
        positions[3] - positions[2]
    )
    before = positions.copy()
    for atom, place in mended_ends(topology, before, rigid).items():
        positions[atom] = place
    assert abs(torsion_angles(positions, np.array([[0, 1, 2, 3]]))[0]) < 1e-3
    assert 1.1 < np.linalg.norm(positions[3] - positions[2]) < 1.4
    lengths = [np.linalg.norm(each[5:] - each[4], axis=1) for each in (before, positions)]
    np.testing.assert_allclose(*lengths, atol=1e-6)


def test_a_hydrogen_within_its_atom_is_moved_out():
    topology, rigid = made(["C", "O", "H"], [(0, 1), (1, 2)])
    positions = np.array([[0, 0, 0], [1.43, 0, 0], [1.43, 0.3, 0]])
    (place,) = mended_ends(topology, positions, rigid).values()
    assert 0.8 < np.linalg.norm(place - positions[1]) < 1.2
