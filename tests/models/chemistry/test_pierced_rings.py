"""Rings that bonds pass through."""

import numpy as np
import pytest
from openmm import app

from openmm_density.models.chemistry.pierced_rings import pierced_rings, rings_of

from ...fragments import fragment

ANGLES = np.radians(60 * np.arange(6))
RING = np.stack([1.4 * np.cos(ANGLES), 1.4 * np.sin(ANGLES), 0 * ANGLES], axis=1)


def benzene_and_ethane(first, second):
    """A ring in the plane z = 0, and a bond between two places."""
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, count in (("BNZ", 6), ("ETH", 2)):
        residue = topology.addResidue(name, chain)
        for number in range(count):
            topology.addAtom(f"C{number + 1}", app.element.carbon, residue)
    atoms = list(topology.atoms())
    for number in range(6):
        topology.addBond(atoms[number], atoms[(number + 1) % 6])
    topology.addBond(atoms[6], atoms[7])
    return topology, np.concatenate([RING, [first, second]])


@pytest.mark.parametrize(
    ("first", "second", "passes"),
    [
        ((0, 0, -0.7), (0, 0, 0.8), True),
        ((0.9, 0.2, -0.7), (0.8, 0.1, 0.8), True),
        ((0, 0, 0.1), (0, 0, 1.6), False),
        ((1.5, 0, -0.7), (1.5, 0, 0.8), False),
        ((-0.7, 0, 3.0), (0.7, 0, 3.0), False),
        ((0.5, 0.1, -5.0), (0.5, 0.1, 5.0), True),
        ((0.1, 0.0, 0.0), (0.9, 0.0, 0.0), False),
    ],
)
def test_a_bond_passes_through_a_ring_or_beside_it(first, second, passes):
    topology, positions = benzene_and_ethane(first, second)
    for turn in (np.eye(3), np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])):
        found = pierced_rings(topology, positions @ turn.T)
        assert len(found) == passes
    if passes:
        assert set(found[0].ring) == set(range(6)) and found[0].bond == (6, 7)
        assert abs((found[0].point @ turn)[2]) < 1e-9
        assert found[0].described(topology) == "A BNZ 1 (by A ETH 2 C1 - A ETH 2 C2)"


def test_rings_are_those_of_residues(tmp_path):
    model = fragment(tmp_path / "model.pdb")
    names = [[list(model.topology.atoms())[i].name for i in ring] for ring in rings_of(model.topology)]
    residues = [residue.name for residue in model.topology.residues()]
    expected = sum({"PHE": 1, "TYR": 1, "HIS": 1, "PRO": 1, "TRP": 2}.get(name, 0) for name in residues)
    assert len(names) == expected > 3
    ring = next(names for names in names if "CZ" in names)
    joined = {frozenset(pair) for pair in zip(ring, [*ring[1:], ring[0]])}
    assert joined == {
        frozenset(pair)
        for pair in (
            ("CG", "CD1"),
            ("CD1", "CE1"),
            ("CE1", "CZ"),
            ("CZ", "CE2"),
            ("CE2", "CD2"),
            ("CD2", "CG"),
        )
    }
    assert pierced_rings(model.topology, model.positions) == []
