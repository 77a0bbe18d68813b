"""The level of a surface encloses as much as the molecule fills."""

import numpy as np
import pytest

from openmm_density.maps import DensityMap
from openmm_density.validation.density_level import density_level

from ..fragments import RESOLUTION, fragment, map_of


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("level")
    return fragment(folder / "model.pdb", residues=24), map_of(24, 0.0, 0, folder)


def test_the_surface_encloses_the_molecules_volume(found):
    model, density_map = found
    level = density_level(density_map, model.topology, model.positions, RESOLUTION)
    inside = (density_map.data > level).sum() * density_map.voxel_volume
    # By mdtraj's masses, hydrogens counted as amino acids have them: 7% of the mass.
    mass = sum(atom.element.mass._value for atom in model.topology.atoms() if atom.element.symbol != "H")
    assert inside == pytest.approx(1.21 * 1.07 * mass, rel=0.02)


def test_in_a_fine_map_it_encloses_less_and_most_atoms(found):
    model, density_map = found
    coarse, level = (
        density_level(density_map, model.topology, model.positions, resolution) for resolution in (5.0, 2.5)
    )
    volumes = [(density_map.data > each).sum() for each in (coarse, level)]
    assert level > coarse and volumes[1] <= 0.51 * volumes[0]
    enclosed = (density_map.value_at(model.positions) > level).mean()
    assert 0.5 < enclosed < 0.87


def test_what_a_mask_has_left_is_no_density(found):
    model, density_map = found
    empty = density_map.data < np.quantile(density_map.data, 0.9)
    masked = DensityMap(np.where(empty, 0, density_map.data), density_map.matrix, density_map.origin)
    assert density_level(masked, model.topology, model.positions, 3.0) > 0

    # Half of the model is outside the mask.
    half = np.arange(density_map.data.shape[0])[:, None, None] < density_map.data.shape[0] // 2
    masked = DensityMap(np.where(half, 0, density_map.data), density_map.matrix, density_map.origin)
    assert density_level(masked, model.topology, model.positions, 3.0) > 0


def test_a_model_that_lies_beside_its_density_is_not_enclosed(found):
    model, density_map = found
    beside = model.positions + np.array([12.0, 0.0, 0.0])
    level = density_level(density_map, model.topology, beside, RESOLUTION)
    at_atoms, mean = density_map.value_at(beside), density_map.data.mean()
    assert level >= mean + (np.nanmedian(at_atoms) - mean) / 5 - 1e-6 and level > mean


def test_it_scales_with_the_map_and_is_known_outside_of_it(found):
    model, density_map = found
    level = density_level(density_map, model.topology, model.positions, RESOLUTION)
    scaled = DensityMap(3 * density_map.data + 1, density_map.matrix, density_map.origin)
    assert density_level(scaled, model.topology, model.positions, RESOLUTION) == pytest.approx(3 * level + 1)
    away = model.positions + 500.0
    assert np.isfinite(density_level(density_map, model.topology, away, RESOLUTION))
