"""Which atoms are near contact."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from openmm import app

from openmm_density.models import Model
from openmm_density.models.chemistry.contacts import ContactAtoms

RADII = {"C": 1.70, "N": 1.55, "O": 1.40, "S": 1.80}
"""Probe's, of heavy atoms."""


def is_in_a_small_ring(bonds: nx.Graph, atom: int, other: int) -> bool:
    """Return whether a bond closes a ring of six atoms or fewer."""
    without = nx.restricted_view(bonds, [], [(atom, other)])
    return other in nx.single_source_shortest_path_length(without, atom, cutoff=5)


def clashes_one_by_one(model: Model, positions: np.ndarray) -> set[tuple[int, int]]:
    bonds = nx.Graph((a.index, b.index) for a, b in model.topology.bonds())
    near = dict(nx.all_pairs_shortest_path_length(bonds, cutoff=3))
    rings = {atom for atom in bonds for other in bonds[atom] if is_in_a_small_ring(bonds, atom, other)}
    atoms = list(model.topology.atoms())
    radii = []
    for atom in atoms:
        symbol, around = atom.element.symbol, [atoms[k] for k in bonds[atom.index]]
        oxygen = any(each.element.symbol == "O" and bonds.degree(each.index) == 1 for each in around)
        # Without hydrogens proline's is flat, too.
        radii.append(
            RADII[symbol] if symbol != "C" else 1.75 if atom.index in rings else 1.65 if oxygen else 1.70
        )
    apart = np.linalg.norm(positions[:, None] - positions, axis=2)
    clash = np.add.outer(radii, radii) - 0.4 > apart
    return {(i, j) for i, j in zip(*np.nonzero(np.triu(clash, 1))) if j not in near[i]}


def test_clashes_are_those_of_a_search_one_by_one(emd5925: Model) -> None:
    centre = emd5925.positions.mean(axis=0)
    pressed = centre + 0.9 * (emd5925.positions - centre)
    pairs, clash = ContactAtoms(emd5925.topology).near(pressed)
    assert {tuple(sorted(pair)) for pair in pairs.tolist()} == clashes_one_by_one(emd5925, pressed)
    assert len(pairs) > 20 and len(clash) == len(pairs)
    distances = np.linalg.norm(pressed[pairs[:, 0]] - pressed[pairs[:, 1]], axis=1)
    assert (distances < clash).all()


def test_hydrogens_are_among_them_and_may_be_bonded() -> None:
    """Three atoms in a row: H of N, O beyond contact, and C; and two waters, which meet others only."""
    topology = app.Topology()
    chain = topology.addChain()
    atoms = [
        topology.addAtom(name[0], app.Element.getBySymbol(name[0]), topology.addResidue(name[1:], chain))
        for name in ("NUNK", "HUNK", "OUNK", "CUNK", "OHOH", "OHOH")
    ]
    topology.addBond(*atoms[:2])
    positions = np.array([[0.0, 0, 0], [1.0, 0, 0], [2.6, 0, 0], [1.0, 2.2, 0], [9, 0, 0], [10, 0, 0]])
    pairs, clash = ContactAtoms(topology).near(positions, 0.3)
    limits = dict(zip(map(tuple, pairs.tolist()), clash))
    assert limits.keys() == {(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert limits[1, 2] == pytest.approx(1.0 + 1.4 - 0.4 - 0.6)
    assert limits[1, 3] == pytest.approx(1.0 + 1.7 - 0.4)
