import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.maps.checks import check_map, check_resolution


def test_the_path_of_a_map_is_no_map():
    check_map(DensityMap(np.ones((2, 2, 2)), np.eye(3), np.zeros(3)))
    with pytest.raises(InputError, match=r"found str: read one with DensityMap\.from_file\(path\)"):
        check_map("map.mrc")


@pytest.mark.parametrize("periodic", [False, True])
def test_resolutions_are_between_the_smallest_voxel_and_the_widest_side(periodic):
    density_map = DensityMap(np.ones((20, 15, 10)), np.diag([1.0, 1.2, 1.5]), np.zeros(3), periodic)
    for resolution in (1.0, 3.0, 30.0):
        check_resolution(density_map, resolution)
    with pytest.raises(
        InputError,
        match=r"resolution must not be finer than the map's voxels of 1\.00 Å, found 0\.99: .*2\.0 Å at best",
    ):
        check_resolution(density_map, 0.99)
    with pytest.raises(
        InputError, match=r"resolution must not be coarser than the map is wide, 30 Å, found 30\.1: "
    ):
        check_resolution(density_map, 30.1)
