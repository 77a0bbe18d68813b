"""Whether a model lies in the density of a map."""

from __future__ import annotations

import numpy as np

from ...maps.density_map import DensityMap

IN_DENSITY = 0.25
"""A model whose `coverage` is less lies outside the density."""
ATOM_VOLUME = 18.0
"""Å³: mean volume of a heavy atom with its share of hydrogens and packing, as in proteins (1.35 g/cm³)."""

# So many voxels, evenly taken, stand for all of a larger map.
_SAMPLE = 1 << 22


def sampled(density_map: DensityMap) -> np.ndarray:
    """Return the values of all voxels, or of so many, evenly taken, that they tell as much."""
    return density_map.data.reshape(-1)[:: -(-density_map.data.size // _SAMPLE)]


def densest(n_atoms: int, density_map: DensityMap, *, sign: int = 1) -> np.ndarray:
    """Return the values of the densest `sampled` voxels that so many heavy atoms fill; `sign` -1: of the inverted map."""
    values = sign * sampled(density_map)
    volume = density_map.voxel_volume * density_map.data.size
    count = int(np.clip(n_atoms * ATOM_VOLUME / volume * values.size, 1, values.size))
    return np.partition(values, values.size - count)[-count:]


def coverage(heavy: np.ndarray, density_map: DensityMap, *, sign: int = 1) -> float:
    """Return how far a model lies in density: about 1 or more where it fills the densest places of the map, 0 beside them.

    That is the mean density at its heavy atoms, at positions (N, 3) in Å, over that of as many of the densest voxels as it has
    volume, both above the mean of the map; atoms outside the map count as in its mean. `heavy` (N, 3); `sign` {1, -1}: −1: for
    the map with its sign changed.
    """
    values = sign * density_map.value_at(heavy)
    mean = sign * float(sampled(density_map).mean(dtype=np.float64))
    own = float(np.where(np.isnan(values), mean, values).mean()) - mean
    filled = float(densest(len(values), density_map, sign=sign).mean(dtype=np.float64)) - mean
    return own / filled if filled > 0 else 0.0
