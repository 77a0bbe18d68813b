from itertools import pairwise

import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.energies.checks import check_system, check_unit, first_bonds

from ..contexts import system_of


def chain_of(n):
    """Carbons on a line, 1.5 Å apart."""
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    atoms = [topology.addAtom(f"C{i}", app.element.carbon, residue) for i in range(n)]
    for one, other in pairwise(atoms):
        topology.addBond(one, other)
    return topology, np.arange(n)[:, None] * np.array([1.5, 0.0, 0.0])


def test_a_topology_is_that_of_its_system():
    topology, _ = chain_of(4)
    check_system(topology, system_of(4))
    check_system(topology, None)
    with pytest.raises(
        InputError, match=r"topology has 4 atoms but system has 6 particles.*modeller\.topology"
    ):
        check_system(topology, system_of(6))


def test_positions_in_nm_are_known_by_their_bonds():
    topology, positions = chain_of(5)
    bonds = first_bonds(topology)
    assert bonds.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    check_unit(bonds, positions)
    with pytest.raises(
        InputError, match=r"positions look like nm, as half of the bonds are shorter than 0\.15 Å"
    ):
        check_unit(bonds, positions / 10)
    # Most bonds decide, and nothing is known of atoms that have none, are in one place or nowhere.
    positions[1] = positions[0]
    check_unit(bonds, positions)
    check_unit(bonds, positions * 0)
    check_unit(bonds, positions * np.nan)
    check_unit(bonds[:0], positions / 10)


def test_a_part_of_many_bonds_is_enough():
    assert first_bonds(chain_of(3000)[0]).shape == (1000, 2)
    assert first_bonds(chain_of(1)[0]).shape == (0, 2)
