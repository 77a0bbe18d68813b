"""Energies of hydrogen bonds between backbones."""

from __future__ import annotations

import mdtraj
import numpy as np
import pytest

from openmm_density.models import read_model
from openmm_density.models.chemistry.secondary_structure import HydrogenBonds

from ...conftest import PROJECT

CLOSED = PROJECT / "examples" / "data" / "adk_closed.pdb"


def test_the_energy_of_hydrogen_bonds_is_that_of_dssp() -> None:
    model = read_model(CLOSED)
    bonds = HydrogenBonds(model.topology)
    everything = np.arange(len(model.positions))
    # mdtraj knows the two best bonds of each donor.
    best = 4.184 * mdtraj.kabsch_sander(mdtraj.load(str(CLOSED)))[0].sum()
    assert bonds.energy(model.positions, everything) == pytest.approx(best, rel=0.03)


def test_only_bonds_of_the_named_atoms_count() -> None:
    model = read_model(CLOSED)
    bonds, positions = HydrogenBonds(model.topology), model.positions
    part = np.array([atom.index for atom in model.topology.atoms() if 100 <= atom.residue.index < 110])
    rest = np.setdiff1d(np.arange(len(positions)), part)
    whole = bonds.energy(positions, np.arange(len(positions)))
    assert whole < bonds.energy(positions, part) < 0
    # Those between both count in both.
    assert bonds.energy(positions, part) + bonds.energy(positions, rest) < whole
    # What moves away keeps those within it.
    moved = positions.copy()
    moved[part] += 200.0
    assert 0 >= bonds.energy(moved, part) > bonds.energy(positions, part)
    assert bonds.energy(positions, np.zeros(0, dtype=np.int64)) == 0.0
