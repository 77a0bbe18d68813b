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
    finer = density_level(density_map, model.topology, model.positions, 2.5)
    assert (density_map.data > finer).sum() * density_map.voxel_volume == pytest.approx(inside / 2, rel=0.02)


def test_it_scales_with_the_map_and_is_known_outside_of_it(found):
    model, density_map = found
    level = density_level(density_map, model.topology, model.positions, RESOLUTION)
    scaled = DensityMap(3 * density_map.data + 1, density_map.matrix, density_map.origin)
    assert density_level(scaled, model.topology, model.positions, RESOLUTION) == pytest.approx(3 * level + 1)
    away = model.positions + 500.0
    assert np.isfinite(density_level(density_map, model.topology, away, RESOLUTION))
