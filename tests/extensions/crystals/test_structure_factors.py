"""Structure factors from a grid are those of direct summation."""

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.crystals.structure_factors import calculated

from .simulated import direct_structure_factors


@pytest.mark.parametrize("group", ["P 1 21 1", "P 21 21 21", "P 61 2 2", "R 3 :H", "C 1 2 1"])
def test_they_are_those_of_direct_summation(protein, group):
    structure = gemmi.Structure()
    structure.add_model(protein[0])
    angles = {"P 61 2 2": (90, 90, 120), "R 3 :H": (90, 90, 120)}.get(group, (90, 90, 90))
    angles = (90, 98.26, 90) if group in ("P 1 21 1", "C 1 2 1") else angles
    sides = (60, 60, 70) if angles[2] == 120 else (46, 61, 70)
    structure.cell, structure.spacegroup_hm = gemmi.UnitCell(*sides, *angles), group
    structure.setup_cell_images()
    hkl = gemmi.make_miller_array(structure.cell, gemmi.SpaceGroup(group), 4.0)
    hkl = np.ascontiguousarray(hkl[:: len(hkl) // 60 + 1], dtype=np.int32)
    found = calculated(structure, hkl, 4.0).atoms
    direct = direct_structure_factors(structure, hkl)
    assert np.abs(found - direct).max() < 2e-3 * np.abs(direct).max()
