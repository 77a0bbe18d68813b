"""Whether two maps are of one molecule in one place, or one map, and whether one can test what is fitted into the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError

if TYPE_CHECKING:
    from .density_map import DensityMap


CUBE = 5.0
"""Å: maps are averaged over cubes of this side or of the resolution."""
SAME = 0.99999
"""Correlation from which two maps are one map, scaled or rounded: noise of its own keeps another one well below it."""
_MOST_COMPARED = 200_000


def is_same_map(other: DensityMap, density_map: DensityMap) -> bool:
    """Return whether another map is the map, also scaled, rounded, cut out of it or put into a larger box."""
    n = density_map.data.size
    # Every so many voxels, with no common factor of the grid's rows.
    index = np.arange(0, n, max(n // _MOST_COMPARED, 1) | 1)
    z, y, x = np.unravel_index(index, density_map.shape)
    places = np.stack([x, y, z], axis=1) @ density_map.matrix.T + density_map.origin
    # At another map's voxels nothing is interpolated.
    values = np.stack([other.value_at(places), density_map.data[z, y, x].astype(np.float64)])
    values = values[:, np.isfinite(values).all(axis=0)]
    correlation = _correlated(values, np.ones(values.shape[1], bool))
    return correlation is not None and correlation > SAME


def agreement_in_either(other: DensityMap, density_map: DensityMap, resolution: float) -> float | None:
    """Return the correlation of two maps, averaged over cubes, where either has density.

    Two molecules in the middle of their boxes share an outline, which does not count here; noise of both lowers it.
    `resolution` in Å. Returns None where the other map does not reach the map, or one of them does not vary.
    """
    values = _over_cubes(other, density_map, resolution)
    return _correlated(values, _is_dense(values).any(axis=0))


def agreement_inside(other: DensityMap, density_map: DensityMap, resolution: float) -> float | None:
    """Return the same as `agreement_in_either` where the map has density, which noise of the other map's own lowers less."""
    values = _over_cubes(other, density_map, resolution)
    return _correlated(values, _is_dense(values)[1])


def _over_cubes(other: DensityMap, density_map: DensityMap, resolution: float) -> np.ndarray:
    """Return the means over cubes that both maps reach, shape (2, n); they see little of sharpening, masks and noise."""
    side = max(CUBE, resolution) / 2
    theirs, own = (_coarse(each, side) for each in (other, density_map))
    places = np.indices(own.shape).reshape(3, -1)[::-1].T @ own.matrix.T + own.origin
    if other.periodic:  # its cell may be another one of the crystal's lattice, and begin elsewhere
        cells = np.floor((other.to_index(places) + 0.5) / other.size)
        places = places - (cells * other.size) @ other.matrix.T
    # On the map's grid, and then cubes of twice the side: interpolation between those would blur more than it compares.
    there = theirs.value_at(places).reshape(own.shape)
    twice = np.minimum(2, own.shape)
    values = np.stack([_block_means(each, twice).ravel() for each in (there, own.data.astype(np.float64))])
    return values[:, np.isfinite(values).all(axis=0)]


def _is_dense(values: np.ndarray) -> np.ndarray:
    if not values.size:
        return np.zeros(values.shape, bool)
    return values > values.mean(axis=1, keepdims=True) + values.std(axis=1, keepdims=True)


def _correlated(values: np.ndarray, chosen: np.ndarray) -> float | None:
    values = values[:, chosen]
    if values.shape[1] < 2 or (values.std(axis=1) == 0).any():
        return None
    return float(np.corrcoef(values)[0, 1])


def _coarse(density_map: DensityMap, side: float) -> DensityMap:
    """Return a map of the means over blocks of about a cube's side (Å), without what is left over at its ends."""
    counts = np.clip(np.rint(side / density_map.voxel_size).astype(int), 1, density_map.size)
    matrix = density_map.matrix
    return replace(
        density_map,
        data=_block_means(density_map.data, counts[::-1]),
        matrix=matrix * counts,
        origin=density_map.origin + matrix @ ((counts - 1) / 2),
        periodic=False,
    )


def _block_means(data: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the means over blocks of so many voxels along each axis."""
    (nz, ny, nx), (cz, cy, cx) = np.array(data.shape) // counts, counts
    whole = data[: nz * cz, : ny * cy, : nx * cx].reshape(nz, cz, ny, cy, nx, cx)
    return whole.mean(axis=(1, 3, 5))


REFUSED, DOUBTED = 0.2, 0.6
"""Correlations inside the density, see `agreement_inside`, below which a free map is refused, or doubted. Half maps have 0.9
and more, with noise of as much as the density's standard deviation 0.75, of twice as much 0.24 to 0.5; maps of other molecules
0 to 0.25, so that some of them are only doubted, of another conformation of the same molecule 0.4, and moved by as much as the
resolution 0.1 to 0.5."""
_REMEDY = (
    "give another map of the same molecule in the same place, such as the half map that was not fitted into"
)


def check_free_map(free_map: DensityMap, density_map: DensityMap, resolution: float) -> str | None:
    """Refuse a free map that cannot test what is fitted into a map (resolution in Å); return a sentence where it is doubtful."""
    if is_same_map(free_map, density_map):
        raise InputError("the free map is the very map that is fitted into", remedy=_REMEDY)
    agreement = agreement_inside(free_map, density_map, resolution)
    if agreement is None:
        raise InputError(
            "the free map has no density where the map has it: its box is another, or it is empty",
            remedy=_REMEDY,
        )
    if agreement < -REFUSED:
        raise InputError(
            f"the contrast of the free map is inverted beside the map's (inside the density they correlate by {agreement:.2f})",
            remedy="write it with its sign changed",
        )
    if agreement < REFUSED:
        raise InputError(
            f"the free map does not show what the map shows, or lies elsewhere: inside the map's density they must correlate by "
            f"{REFUSED} or more",
            found=f"{agreement:.2f}",
            remedy=_REMEDY,
        )
    if agreement < DOUBTED:
        return (
            f"The free map agrees poorly with the map (inside its density they correlate by {agreement:.2f}; half maps by 0.7 or "
            "more): it may be of another conformation or a little out of place, or noise outweighs what it tests."
        )
    return None
