"""The map of a fit, and what correlates models with it."""

import weakref

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.fitting.fit_map import FitMap
from openmm_density.maps.corrections import MapCorrections


def test_a_corrected_map_takes_the_place_of_the_one_that_was_read(fitted):
    read = fitted[0].density_map
    copy = DensityMap(read.data.copy(), read.matrix, read.origin, read.periodic)
    held = weakref.ref(copy)
    fit_map = FitMap(copy, 5.0, MapCorrections(invert=True))
    assert np.array_equal(fit_map.density_map.data, -read.data)
    del copy
    assert held() is None
    assert FitMap(read, 5.0).density_map is read


def test_a_point_is_carried_along_with_its_voxel(fitted):
    read = fitted[0].density_map
    wider = FitMap(read, 5.0, MapCorrections(voxel_size=tuple(1.1 * read.voxel_size)))
    voxel = np.array([3.0, 5.5, 7.25])
    there, here = (each.origin + each.matrix @ voxel for each in (wider.density_map, read))
    assert wider.carried_along(here) == pytest.approx(there)
    assert FitMap(read, 5.0).carried_along(here) == pytest.approx(here)
