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


@pytest.mark.parametrize("periodic", [False, True])
def test_sharpened_by_its_blur_it_shows_an_atom_as_wide_as_its_resolution_says_and_nothing_finer(periodic):
    size, step, resolution, blur = 40, 1.0, 5.0, 1.5
    index = np.minimum(np.arange(size), size - np.arange(size))  # of an atom in the middle, seen from there
    square = sum(axis.astype(float) ** 2 for axis in np.meshgrid(index, index, index))

    def shown(sigma):
        return np.fft.fftshift(np.exp(-0.5 * step**2 * square / sigma**2) / sigma**3).astype(np.float32)

    sigma = 0.225 * resolution
    wide = DensityMap(shown(blur * sigma), step * np.eye(3), np.zeros(3), periodic)
    sharp = FitMap(wide, resolution).sharpened(blur).data
    found, expected = (np.abs(np.fft.fftn(each)) for each in (sharp, shown(sigma)))
    s = np.sqrt(square) / (size * step) * resolution
    # A finite box cuts off what rings farthest out.
    assert found[s < 0.88] == pytest.approx(expected[s < 0.88], abs=0.01 * float(expected.max()))
    assert found[s > 1.22].max() < 0.01 * found.max()


def test_maps_are_sharpened_where_they_are_coarse_and_blurred(fitted):
    asked = {
        (d, blur): FitMap(fitted[0].density_map, d).sharpening(blur)
        for d in (3.6, 5.0)
        for blur in (1.2, 1.5)
    }
    density = fitted[0].density_map
    # Widths are quotients of resolutions, which some of these do not return.
    assert all(FitMap(density, d).sharpening(1.35 * d / d) > 1.3 for d in (5.98, 6.06, 6.15))
    assert asked == {(3.6, 1.2): 1.0, (3.6, 1.5): 1.0, (5.0, 1.2): 1.0, (5.0, 1.5): 1.5}
