"""Whether a model's crystal is that of a map."""

from dataclasses import replace

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import read_model
from openmm_density.validation.crystal_mates import crystal_mates


@pytest.fixture(scope="module")
def crystal(tmp_path_factory):
    """Return a model of some atoms in P 31 2 1, and the map of its cell."""
    structure = gemmi.Structure()
    structure.cell, structure.spacegroup_hm = gemmi.UnitCell(24, 24, 30, 90, 90, 120), "P 31 2 1"
    residue = gemmi.Residue()
    residue.name, residue.seqid = "LIG", gemmi.SeqId("1")
    rng = np.random.default_rng(0)
    for number in range(9):
        atom = gemmi.Atom()
        atom.name, atom.element, atom.b_iso = f"C{number}", gemmi.Element("C"), 15.0
        atom.pos = gemmi.Position(*(rng.uniform(2, 9, 3)))
        residue.add_atom(atom)
    chain = gemmi.Chain("A")
    chain.add_residue(residue)
    structure.add_model(gemmi.Model(1))
    structure[0].add_chain(chain)
    structure.setup_cell_images()
    path = tmp_path_factory.mktemp("crystal") / "model.pdb"
    structure.write_pdb(str(path))
    calculator = gemmi.DensityCalculatorX()
    calculator.d_min = 3.0
    calculator.set_grid_cell_and_spacegroup(structure)
    calculator.put_model_density_on_grid(structure[0])
    grid = calculator.grid
    matrix = np.array(grid.unit_cell.orth.mat.tolist()) / (grid.nu, grid.nv, grid.nw)
    return read_model(path), DensityMap(np.array(grid.array.T), matrix, np.zeros(3), periodic=True)


def test_file_and_map_of_one_crystal_give_its_operators(crystal):
    found = crystal_mates(*crystal)
    assert len(found.operators) == 6 and found.agreement > 0.98
    assert "P 31 2 1" in found.sentence()


def test_what_is_no_crystal_or_another_one_says_why(crystal):
    model, density_map = crystal
    finite = DensityMap(density_map.data, density_map.matrix, np.zeros(3))
    moved = DensityMap(np.roll(density_map.data, 7, axis=2), density_map.matrix, np.zeros(3), periodic=True)
    for given, its_map, said in (
        (model, finite, "not that of a crystal's whole cell"),
        (replace(model, cell=None), density_map, "no cell"),
        (replace(model, space_group="Q 5"), density_map, "not known"),
        (replace(model, space_group="P 32 2 1"), density_map, "has not the symmetry P 32 2 1"),
        (model, moved, "has not the symmetry"),
        (replace(model, cell=(30.0, 30.0, 30.0, 90.0, 90.0, 120.0)), density_map, "another one"),
    ):
        found = crystal_mates(given, its_map)
        assert found.operators is None and said in found.problem, found.problem
