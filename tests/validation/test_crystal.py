"""Models whose cell or space group contradicts the map or the model itself."""

from dataclasses import replace

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.models.structures import read_model
from openmm_density.validation.crystal import check_crystal


@pytest.fixture(scope="module")
def crystal(small_data):
    folder = small_data / "xray_1g8a_P21"
    return read_model(folder / "1G8A_refined.pdb"), DensityMap.from_file(folder / "composite_omit_map.mtz")


def test_a_model_in_its_own_crystal_and_one_without_a_cell_are_let_through(crystal):
    model, density_map = crystal
    check_crystal(model, density_map)
    check_crystal(replace(model, cell=None), density_map)
    check_crystal(
        replace(model, cell=(20.0, 20.0, 20.0, 90.0, 90.0, 90.0)), replace(density_map, periodic=False)
    )


def test_another_cell_and_an_impossible_space_group_are_refused(crystal):
    model, density_map = crystal
    cell = model.cell
    for other in ((*cell[:2], 1.05 * cell[2], *cell[3:]), (*cell[:4], cell[4] + 3, cell[5])):
        with pytest.raises(InputError, match="its cell is not that of the map"):
            check_crystal(replace(model, cell=other), density_map)
    with pytest.raises(InputError, match="space group P 43 21 2 is not possible in its cell"):
        check_crystal(replace(model, space_group="P 43 21 2"), density_map)


@pytest.mark.parametrize(
    "cell", [(60.0, 60.0, 60.0, 70.0, 70.0, 70.0), (60.0, 60.0, 150.0, 90.0, 90.0, 120.0)]
)
def test_r_groups_are_those_of_rhombohedral_and_of_hexagonal_cells(crystal, cell):
    model, density_map = crystal
    edges = np.array(gemmi.UnitCell(*cell).orth.mat.tolist())
    in_cell = replace(density_map, matrix=edges / density_map.size)
    check_crystal(replace(model, cell=cell, space_group="R 3"), in_cell)
    with pytest.raises(InputError, match="space group P 21 3 is not possible in its cell"):
        check_crystal(replace(model, cell=cell, space_group="P 21 3"), in_cell)


def test_copies_that_the_symmetry_would_make_again_are_refused(crystal):
    model, density_map = crystal
    # Half of the atoms where the screw axis lays the other half.
    to_fraction = np.linalg.inv(density_map.matrix * density_map.size)
    places = model.positions @ to_fraction.T
    half = len(places) // 2
    places[half : 2 * half] = places[:half] * [-1, 1, -1] + [1, 0.5, 1]
    doubled = replace(model, positions=places @ np.linalg.inv(to_fraction).T)
    with pytest.raises(InputError, match=r"lays \d+% of its atoms onto others of the file"):
        check_crystal(doubled, density_map)
    check_crystal(replace(doubled, space_group="P 1"), density_map)
