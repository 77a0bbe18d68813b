"""The noise of a map, shell by shell in Fourier space, from its half maps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from ...maps.density_map import DensityMap
from ...maps.fourier import fourier_filtered
from ...maps.half_maps import check_half_maps

LEAST_NOISE = 0.1
"""Of the median shell: less is a filter's doing, as beyond the resolution, and no precision."""


@dataclass(frozen=True)
class NoiseModel:
    """σ of the noise in each of S shells of Fourier space.

    Independent normal noise of one σ in each shell is the noise model that maps are compared with models by in metainference
    (Bonomi, Pellarin and Vendruscolo 2018) and in maximum-likelihood reconstruction (Scheres 2012): the likelihood of a model
    is that of its distance from the map where each shell is divided by its σ. `frequency` (S,) of the middle of each shell in
    1/Å; `sigma` (S,) of a voxel's Fourier coefficient in one half map, in the unit of the density times √voxels; `resolution`
    in Å: what is beyond it is no data.
    """

    frequency: np.ndarray
    sigma: np.ndarray
    resolution: float

    @classmethod
    def from_half_maps(cls, first: DensityMap, second: DensityMap, resolution: float) -> NoiseModel:
        """Return the noise of a half map up to a resolution in Å: two halves differ by √2 times it.

        Raises InputError if they are no halves of one map, see `openmm_density.maps.half_maps.check_half_maps`.
        """
        check_half_maps(first, second)
        difference = first.data.astype(np.float64) - second.data
        power = np.abs(fft.rfftn(difference)) ** 2 / (2 * difference.size)
        frequencies = np.sqrt(_square_frequencies(first))
        width = 1 / float((first.size * first.voxel_size).min())
        n_shells = max(int(np.ceil(1 / resolution / width)), 3)
        edges = np.linspace(0.0, 1 / resolution, n_shells + 1)
        shell = np.digitize(frequencies.ravel(), edges) - 1
        inside = (shell >= 0) & (shell < n_shells)
        count = np.bincount(shell[inside], minlength=n_shells)
        total = np.bincount(shell[inside], power.ravel()[inside], minlength=n_shells)
        known = count > 0
        middles = (edges[:-1] + edges[1:]) / 2
        sigma = np.sqrt(np.interp(middles, middles[known], total[known] / count[known]))
        sigma = np.maximum(sigma, LEAST_NOISE * np.median(sigma))
        return cls(middles, sigma, resolution)

    @property
    def is_known(self) -> bool:
        """Whether there is noise at all."""
        return bool(self.sigma.max() > 0)

    def whitened(self, density_map: DensityMap) -> DensityMap:
        """Return a map with each shell divided by its σ, in units of the smallest, and nothing beyond the resolution."""
        least = self.sigma.min()

        def transfer(s2: np.ndarray) -> np.ndarray:
            s = np.sqrt(s2)
            factor = least / np.interp(s, self.frequency, self.sigma)
            return np.where(s <= 1 / self.resolution, factor, 0.0)

        mean = np.float32(density_map.data.mean(dtype=np.float64))
        filtered = fourier_filtered(density_map.data - mean, density_map.matrix, transfer)
        return replace(density_map, data=filtered + mean)

    def likelihood_scale(self, whitened: DensityMap, mask: np.ndarray) -> float:
        """Return χ²: by how much −ln likelihood rises per unit of 1 − S, for the density of a `whitened` half map within a
        mask of its voxels.

        Σ |T|² / σ² over the independent coefficients that the density within the mask has: with the best scale, −ln L = ½ χ²
        (1 − S²), which is χ² (1 − S) where S is near 1 (S is the correlation of map and model, shells whitened).
        """
        # Noise that is white up to the resolution has this variance in a voxel: the part of the coefficients that it has.
        part = 4 / 3 * np.pi / self.resolution**3 * whitened.voxel_volume
        variance = float(self.sigma.min()) ** 2 * min(part, 1.0)
        signal = float((whitened.data[mask].astype(np.float64) ** 2).mean())
        # So many independent real numbers up to the resolution describe the density within the mask.
        coefficients = part * float(mask.sum())
        return coefficients * max(signal / variance - 1, 0.0)


def _square_frequencies(density_map: DensityMap) -> np.ndarray:
    nz, ny, nx = density_map.shape
    x, y, z = np.linalg.inv(density_map.matrix)
    plane = fft.fftfreq(nz)[:, None, None, None] * z + fft.fftfreq(ny)[:, None, None] * y
    return ((plane + fft.rfftfreq(nx)[:, None] * x) ** 2).sum(axis=-1)
