"""Where ends of ligands belong that no molecule has."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import app

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


def test_a_hydrogen_within_its_atom_is_moved_out():
    topology, rigid = made(["C", "O", "H"], [(0, 1), (1, 2)])
    positions = np.array([[0, 0, 0], [1.43, 0, 0], [1.43, 0.3, 0]])
    (place,) = mended_ends(topology, positions, rigid).values()
    assert 0.8 < np.linalg.norm(place - positions[1]) < 1.2
