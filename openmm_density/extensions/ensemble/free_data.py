"""What replicas are fitted to, and what they never see: data by which an ensemble is compared with one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from openmm import app

from ...base.errors import InputError
from ...maps.density_map import DensityMap
from ...maps.fourier import fourier_filtered
from ...maps.half_maps import check_halves_of_map
from ...maps.model_density import B_PER_RESOLUTION, MASK_RADIUS, ModelDensity, non_hydrogens
from .noise_model import NoiseModel

FREE_BAND = 1.2
"""Without half maps all that is finer than so many times the resolution is free: replicas are fitted to the map without it."""
BLOCK_PER_RESOLUTION = 3.0
"""Of the resolution is the side of the cubes of voxels that are taken for independent."""
HALF_MAPS, SHELLS = "half maps", "shells"


@dataclass(frozen=True)
class FreeData:
    """A map to fit to, and one to test with."""

    # `HALF_MAPS`: the noise of the two is independent (Scheres and Chen 2012; Amunts et al. 2014). `SHELLS`: what is
    # tested is a band of high frequencies, which was not fitted (Falkner and Schröder 2013).
    kind: str
    work: DensityMap
    free: DensityMap
    resolution: float  # Of the map that is fitted to, in Å
    full_resolution: float  # Of the map, in Å
    noise: NoiseModel | None = None  # Of a half map

    @classmethod
    def of(cls, density_map: DensityMap, half_maps: Sequence[DensityMap], resolution: float) -> FreeData:
        """Return that of half maps where there are two, else of the shells of the map."""
        if len(half_maps) == 1:
            raise InputError(
                "must be two, to fit to the one and test with the other",
                argument="half_maps",
                found="one",
                remedy="give both, or none",
            )
        if half_maps:
            first, second = half_maps
            noise = NoiseModel.from_half_maps(first, second, resolution)
            check_halves_of_map(first, second, density_map, resolution)
            return cls(HALF_MAPS, noise.whitened(first), second, resolution, resolution, noise)
        coarser = FREE_BAND * resolution
        work = _filtered(density_map, 0.0, 1 / coarser)
        return cls(SHELLS, work, density_map, coarser, resolution)

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and highest frequency (1/Å) that are tested."""
        return (0.0 if self.kind == HALF_MAPS else 1 / self.resolution), 1 / self.full_resolution


def _filtered(density_map: DensityMap, lowest: float, highest: float) -> DensityMap:
    """Return the frequencies from the lowest on (1/Å) up to the highest, and the mean where the lowest is 0."""

    def transfer(s2: np.ndarray) -> np.ndarray:
        return (s2 >= lowest**2) & (s2 <= highest**2)

    return replace(density_map, data=fourier_filtered(density_map.data, density_map.matrix, transfer))


@dataclass(frozen=True)
class WeightedModels:
    """Models that share a map."""

    models: np.ndarray  # (R, N, 3), in Å
    weights: np.ndarray  # (R,)
    # (N,), in Å², in place of the uniform 8 d of every reported correlation
    b_factors: np.ndarray | None = None


@dataclass(frozen=True)
class Comparison:
    """Correlations of two ensembles with a map over the same voxels, which are near an atom of either."""

    correlations: tuple[float, float]  # Of each
    # Standard error of the difference, by leaving out one block of voxels after another (jackknife)
    error: float

    @property
    def gain(self) -> float:
        """By how much the second is better."""
        return self.correlations[1] - self.correlations[0]


def compare_ensembles(
    first: WeightedModels,
    second: WeightedModels,
    topology: app.Topology,
    density_map: DensityMap,
    resolution: float,
    band: tuple[float, float] | None = None,
) -> Comparison:
    """Correlate two ensembles with a map, as `validation.correlation.cc_mask` does one model, but over the same voxels.

    `resolution` of the models' density, in Å. `band`: frequencies in 1/Å from and to which map and densities are
    compared; all by default.
    """
    part = _around(density_map, np.concatenate([first.models, second.models]).reshape(-1, 3), resolution)
    densities = [mean_density(each, topology, part, resolution) for each in (first, second)]
    observed = part.data
    if band is not None and band[0] > 0:
        observed, *densities = (
            _filtered(replace(part, data=each), *band).data for each in (observed, *densities)
        )
    mask = _mask(np.concatenate([first.models, second.models]), topology, part)
    blocks = _blocks(part, mask, BLOCK_PER_RESOLUTION * resolution)
    values = [each[mask].astype(np.float64) for each in (observed, *densities)]
    return _compared(values, blocks)


def mean_density(
    ensemble: WeightedModels, topology: app.Topology, grid: DensityMap, resolution: float
) -> np.ndarray:
    """Return the mean density of an ensemble on the grid of a map, by gemmi as of every reported correlation."""
    b = B_PER_RESOLUTION * resolution if ensemble.b_factors is None else ensemble.b_factors
    density = ModelDensity(topology, resolution, b_factors=b)
    found = np.zeros(grid.shape, np.float32)
    for positions, weight in zip(ensemble.models, ensemble.weights):
        start, own = density.on_grid(positions, grid.matrix, grid.origin)
        on_map, of_box = grid.overlap(start, np.array(own.shape[::-1]))
        np.add.at(found, on_map, np.float32(weight) * own[of_box])
    return found


def _around(density_map: DensityMap, positions: np.ndarray, resolution: float) -> DensityMap:
    if density_map.periodic:
        return density_map
    return density_map.crop(positions, 3 * resolution)


def _mask(models: np.ndarray, topology: app.Topology, grid: DensityMap) -> np.ndarray:
    heavy = non_hydrogens(topology)
    mask = np.zeros(grid.shape, dtype=bool)
    for positions in models:
        mask |= grid.mask_around(positions[heavy], MASK_RADIUS)
    return mask


def _blocks(grid: DensityMap, mask: np.ndarray, side: float) -> np.ndarray:
    """Return the number of the cube that each voxel of a mask is in, shape (n,)."""
    k, j, i = np.nonzero(mask)
    along = [
        np.floor(index * step / side).astype(np.int64) for index, step in zip((i, j, k), grid.voxel_size)
    ]
    numbers = (along[2] * (along[1].max() + 1) + along[1]) * (along[0].max() + 1) + along[0]
    return np.unique(numbers, return_inverse=True)[1].reshape(-1)


def _compared(values: Sequence[np.ndarray], blocks: np.ndarray) -> Comparison:
    observed, *densities = values
    n = int(blocks.max()) + 1

    def sums(of: np.ndarray) -> np.ndarray:
        return np.bincount(blocks, of, n)

    common = sums(np.ones_like(observed)), sums(observed), sums(observed**2)
    each = [(sums(density), sums(density**2), sums(density * observed)) for density in densities]

    def correlation(chosen: tuple[np.ndarray, ...], keep: np.ndarray | None) -> np.ndarray:
        total = [part.sum() - (0.0 if keep is None else part) for part in (*common, *chosen)]
        count, t, tt, d, dd, dt = total
        covariance = dt - t * d / count
        variance = (tt - t * t / count) * (dd - d * d / count)
        return covariance / np.sqrt(np.maximum(variance, 1e-300))

    whole = tuple(float(correlation(chosen, None)) for chosen in each)
    left_out = [correlation(chosen, blocks) for chosen in each]
    difference = left_out[1] - left_out[0]
    error = np.sqrt((n - 1) / n * ((difference - difference.mean()) ** 2).sum()) if n > 1 else np.inf
    return Comparison(whole, float(error))
