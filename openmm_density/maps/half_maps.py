"""Half maps: whether two maps can be the halves of one reconstruction, each from its own particles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from .density_map import DensityMap

SAME = 0.99999
"""Correlation from which two maps are one map, scaled or rounded: noise of their own keeps halves well below it."""
LEAST_AGREEMENT = 0.5
"""Correlation of the mean of two half maps with their map, see `agreement_with_map`."""
CUBE = 5.0
"""Å."""


def check_half_maps(first: DensityMap, second: DensityMap) -> None:
    """Refuse two maps that cannot be the halves of one reconstruction.

    Parameters
    ----------
    first, second : DensityMap

    Raises
    ------
    InputError
        If they are on different grids, one of them is the same everywhere, or their voxels are the same up to a scale.
    """
    same_grid = (
        first.shape == second.shape
        and np.allclose(first.matrix, second.matrix, atol=1e-4)
        and np.allclose(first.origin, second.origin, atol=1e-2)
    )
    if not same_grid:
        raise InputError(
            "the half maps are on different grids",
            found=f"{_grid(first)} and {_grid(second)}",
            remedy="give the two halves of one reconstruction",
        )
    for which, half in (("first", first), ("second", second)):
        if half.data.min() == half.data.max():
            raise InputError(
                f"the {which} half map has the value {half.data.min():g} everywhere, so that it holds no density",
                remedy="give the two halves of one reconstruction",
            )
    correlation = 1.0 if np.array_equal(first.data, second.data) else _correlation(first.data, second.data)
    if correlation > SAME:
        raise InputError(
            f"the two half maps are one map (their voxels correlate by {correlation:.6f}), so that neither can test the other",
            remedy="give the two halves of one reconstruction",
        )


def check_halves_of_map(
    first: DensityMap, second: DensityMap, density_map: DensityMap, resolution: float
) -> None:
    """Refuse half maps that are those of another map.

    Parameters
    ----------
    first, second : DensityMap
        Two that `check_half_maps` has let pass.
    density_map : DensityMap
        On any grid.
    resolution : float
        Of the map, in Å.

    Raises
    ------
    InputError
        If their mean correlates by less than `LEAST_AGREEMENT` with the map.
    """
    agreement = agreement_with_map(first, second, density_map, resolution)
    if agreement < LEAST_AGREEMENT:
        raise InputError(
            f"the half maps are not those of the map: their mean must correlate with it by {LEAST_AGREEMENT} or more",
            found=f"{agreement:.2f}",
            remedy="give the two halves of the reconstruction that the map is of, in the same place",
        )


def agreement_with_map(
    first: DensityMap, second: DensityMap, density_map: DensityMap, resolution: float
) -> float:
    """Return the correlation of the mean of two half maps with a map, both averaged over cubes.

    Maps are sharpened, filtered and masked, and half maps mostly not. Cubes of `CUBE` or more see little of that, nor of noise.

    Parameters
    ----------
    first, second : DensityMap
    density_map : DensityMap
    resolution : float
        Å.

    Returns
    -------
    float
        0 where the half maps do not reach the map.
    """
    side = max(CUBE, resolution) / 2
    mean, own = (
        _coarse(each, side) for each in (replace(first, data=(first.data + second.data) / 2), density_map)
    )
    places = np.indices(own.shape).reshape(3, -1)[::-1].T @ own.matrix.T + own.origin
    # On the map's grid, and then cubes of twice the side: interpolation between those would blur more than it compares.
    there = mean.value_at(places).reshape(own.shape)
    twice = np.minimum(2, own.shape)
    values = np.stack([_block_means(each, twice).ravel() for each in (there, own.data.astype(np.float64))])
    values = values[:, np.isfinite(values).all(axis=0)]
    if not values.size:
        return 0.0
    # Where either has density: two molecules in the middle of their boxes share an outline.
    dense = (values > values.mean(axis=1, keepdims=True) + values.std(axis=1, keepdims=True)).any(axis=0)
    values = values[:, dense]
    if values.shape[1] < 2 or (values.std(axis=1) == 0).any():
        return 0.0
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


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return the Pearson correlation of all voxels, section by section to save memory."""
    means = [data.mean(dtype=np.float64) for data in (first, second)]
    products = np.zeros((2, 2))
    for sections in zip(first, second):
        off = np.stack([section.astype(np.float64).ravel() - mean for section, mean in zip(sections, means)])
        products += off @ off.T
    return float(products[0, 1] / np.sqrt(products[0, 0] * products[1, 1]))


def _grid(half: DensityMap) -> str:
    size, voxel, origin = (
        " x ".join(f"{value:g}" for value in values) for values in (half.size, half.voxel_size, half.origin)
    )
    return f"{size} voxels of {voxel} Å from {origin.replace(' x ', ', ')} Å"
