"""Filters and resampling in Fourier space."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density.maps.fourier import _resampled_period, fourier_filtered, low_passed

ORTHOGONAL = np.diag([0.5, 0.6, 0.7])
SKEW = np.array([[0.5, 0.1, 0.05], [0.0, 0.6, -0.1], [0.0, 0.0, 0.7]])


# The voxels hold what is coarser than 1.4 Å along z, 1.0 Å along x; every third point along x what is coarser than 3 Å.
@pytest.mark.parametrize("resolution", [0.9, 1.2, 1.4, 2.8, 3.0, 3.3, 8.0, 60.0])
@pytest.mark.parametrize("shape", [(24, 36, 30), (25, 18, 54), (1, 2, 6)])
@pytest.mark.parametrize("matrix", [ORTHOGONAL, SKEW], ids=["orthogonal", "skew"])
@pytest.mark.parametrize("every", [(1, 1, 1), (3, 2, 1)])
def test_what_is_cut_before_it_is_transformed_is_what_is_cut_after_it(resolution, shape, matrix, every):
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    every = [step if n % step == 0 else 1 for step, n in zip(every, shape[::-1])]

    def sharpened(s2):
        return np.exp(2 * s2)

    found = low_passed(data, matrix, resolution, sharpened, every)
    whole = fourier_filtered(data, matrix, lambda s2: np.where(s2 <= 1 / resolution**2, sharpened(s2), 0))
    x, y, z = every
    expected = whole[::z, ::y, ::x]
    assert found.dtype == np.float32 and found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(whole).max())


@pytest.mark.parametrize("n", [12, 13, 20, 23, 24, 25, 30, 48, 49])
@pytest.mark.parametrize("size", [24, 25])
def test_resampling_is_that_of_scipy(size, n):
    from scipy import signal

    data = np.random.default_rng(0).normal(size=(3, size, 4)).astype(np.float32)
    resampled = _resampled_period(data, 1, n)
    assert resampled.dtype == np.float32 and resampled.shape == (3, n, 4)
    np.testing.assert_allclose(resampled, signal.resample(data, n, axis=1), atol=1e-6)
