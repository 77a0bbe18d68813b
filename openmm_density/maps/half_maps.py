"""Half maps: whether two maps can be the halves of one reconstruction, each from its own particles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError
from .map_agreement import SAME, agreement_in_either, is_same_map

if TYPE_CHECKING:
    from .density_map import DensityMap

LEAST_AGREEMENT = 0.5
"""Correlation of the mean of two half maps with their map, see `agreement_in_either`."""


def check_half_maps(first: DensityMap, second: DensityMap) -> None:
    """Refuse two maps that cannot be the halves of one reconstruction."""
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
            f"the two half maps are the same map (their voxels correlate by {correlation:.6f}), so neither can test the other",
            remedy="give the two halves of one reconstruction",
        )


def check_halves_of_map(
    first: DensityMap, second: DensityMap, density_map: DensityMap, resolution: float
) -> None:
    """Refuse half maps that are those of another map (resolution in Å), and a map in place of one of its halves."""
    for which, half in (("first", first), ("second", second)):
        if is_same_map(half, density_map):
            raise InputError(
                f"the {which} half map is the map itself, which contains both halves, so that it tests nothing",
                remedy="give the two halves of the reconstruction that the map is of",
            )
    mean = replace(first, data=(first.data + second.data) / 2)
    agreement = agreement_in_either(mean, density_map, resolution) or 0.0
    if agreement < LEAST_AGREEMENT:
        raise InputError(
            f"the half maps do not belong to the map: their mean must correlate with it by {LEAST_AGREEMENT} or more",
            found=f"{agreement:.2f}",
            remedy="give the two halves of the reconstruction that the map is of, in the same place",
        )


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
