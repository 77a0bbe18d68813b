"""The noise of half maps, shell by shell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.ensemble.noise_model import NoiseModel
from openmm_density.maps.fourier import fourier_filtered


@pytest.fixture(scope="module")
def halves():
    """Noise of 1 at each voxel, three times as much beyond 8 Å, and a Gaussian blob of density."""
    z, y, x = np.mgrid[:40, :36, :32] - np.array([20, 18, 16])[:, None, None, None]
    blob = 5 * np.exp(-(x**2 + y**2 + z**2) / 18.0)

    def half(seed):
        white = np.random.default_rng(seed).normal(size=blob.shape)
        coloured = fourier_filtered(white, np.eye(3), lambda s2: np.where(s2 > 1 / 64, 3.0, 1.0))
        return DensityMap((blob + coloured).astype(np.float32), np.eye(3), np.zeros(3))

    return half(1), half(2)


def test_sigma_is_that_of_the_noise_in_each_shell(halves):
    noise = NoiseModel.from_half_maps(*halves, 4.0)
    coarse, fine = noise.frequency < 0.9 / 8, noise.frequency > 1.2 / 8
    assert noise.sigma[coarse][1:].mean() == pytest.approx(1.0, rel=0.1)
    assert noise.sigma[fine].mean() == pytest.approx(3.0, rel=0.05)
    assert noise.is_known


def test_whitened_maps_have_the_same_noise_everywhere_and_nothing_beyond_the_resolution(halves):
    noise = NoiseModel.from_half_maps(*halves, 4.0)
    white = [noise.whitened(half) for half in halves]
    again = NoiseModel.from_half_maps(*white, 4.0)
    # Within the shell in which the noise changes nothing can be told apart.
    assert again.sigma[1:-1] == pytest.approx(np.full(len(again.sigma) - 2, noise.sigma.min()), rel=0.25)
    beyond = fourier_filtered(white[0].data, np.eye(3), lambda s2: s2 > 1.01 / 16)
    assert np.abs(beyond).max() < 1e-4 * np.abs(white[0].data).max()


def test_more_noise_asks_for_less_strength(halves):
    mask = np.zeros(halves[0].shape, dtype=bool)
    mask[10:30, 10:26, 8:24] = True
    noise = NoiseModel.from_half_maps(*halves, 4.0)
    scale = noise.likelihood_scale(noise.whitened(halves[0]), mask)
    noisier = [
        replace(
            half, data=half.data + np.random.default_rng(seed).normal(size=half.shape).astype(np.float32) * 3
        )
        for seed, half in zip((5, 6), halves)
    ]
    more = NoiseModel.from_half_maps(*noisier, 4.0)
    assert 0 < more.likelihood_scale(more.whitened(noisier[0]), mask) < scale / 2


def test_what_is_no_pair_of_halves_is_refused(halves):
    with pytest.raises(InputError, match="are the same map"):
        NoiseModel.from_half_maps(halves[0], halves[0], 4.0)
