"""Alternate conformers of a unit, fitted in the density of its copies in a crystal."""

from dataclasses import replace

import gemmi
import numpy as np

from openmm_density import DensityMap, SymmetryOperators
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.protocols import find_protocol
from openmm_density.models import read_model

from ...fragments import write_fragment
from .conftest import RESOLUTION, SHARES, write_conformers


def test_conformers_are_told_apart_beside_mates(tmp_path):
    structure = gemmi.read_structure(str(write_fragment(tmp_path / "chain.pdb", residues=22)))
    for _ in range(9):
        del structure[0][0][0]
    structure.remove_hydrogens()
    places = np.array([each.atom.pos.tolist() for each in structure[0].all()])
    sides = np.ptp(places, axis=0) + 8.0
    for each in structure[0].all():
        each.atom.b_iso = 15.0
        each.atom.pos += gemmi.Position(*(sides * [0.5, 0.5, 0.25] - places.mean(axis=0)))
    cell = gemmi.UnitCell(*np.round(sides * [1.0, 1.0, 2.0], 2), 90, 90, 90)
    structure.cell, structure.spacegroup_hm = cell, "P 1 1 21"
    truth = write_conformers(tmp_path / "truth.pdb", structure)
    write_conformers(tmp_path / "start.pdb", structure, starts=True)
    calculator = gemmi.DensityCalculatorX()
    calculator.d_min = RESOLUTION
    calculator.set_refmac_compatible_blur(truth[0])
    calculator.set_grid_cell_and_spacegroup(truth)
    calculator.put_model_density_on_grid(truth[0])
    factors = gemmi.transform_map_to_f_phi(calculator.grid)
    grid = factors.prepare_asu_data(dmin=RESOLUTION, unblur=calculator.blur).transform_f_phi_to_map(
        sample_rate=2.6
    )
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    density_map = DensityMap(np.ascontiguousarray(grid.array.T), matrix, np.zeros(3), periodic=True)
    operators = SymmetryOperators.crystal(cell, structure.spacegroup_hm)
    protocol = replace(find_protocol("quick", RESOLUTION).with_steps(100), search="off", strength=60.0)
    protocol = replace(protocol, final_strength=None, conformers="both", b_factors="residue")
    model = read_model(tmp_path / "start.pdb")
    options = {"threads": 1, "place": "off", "operators": operators}
    result = FlexibleFit(model, density_map, RESOLUTION, protocol, **options).run()
    found = result.conformers
    assert [group.name for group in found.copies.groups] == ["A LYS 13", "A PHE 19", "A GLU 22"]
    assert [(missing.residue, missing.label) for missing in found.not_shown] == [("A GLU 22", "B")]
    for shares in found.copies.shares[:2]:
        assert abs(shares["A"] - SHARES["A"]) < 0.06 and abs(shares["B"] - SHARES["B"]) < 0.06
    assert found.cc_both > 0.98 and found.cc_both > found.cc_major + 0.05
    assert result.not_refined is None and abs(result.b_factors.b_factors.mean() - 15) < 3
