"""Checks of a map, and of the resolution given for it, before anything is compared with it."""

from __future__ import annotations

from typing import Any

from ..base.errors import InputError
from .density_map import DensityMap


def check_map(density_map: Any) -> None:
    """Raise InputError for what is no map, such as the path of one."""
    if not isinstance(density_map, DensityMap):
        raise InputError(
            "must be a DensityMap",
            argument="density_map",
            found=type(density_map).__name__,
            remedy="read one with DensityMap.from_file(path)",
        )


def widest_side(density_map: DensityMap) -> float:
    """Return the length in Å of the longest side of a map, the coarsest resolution that it can have."""
    return float((density_map.size * density_map.voxel_size).max())


def check_resolution(density_map: DensityMap, resolution: float) -> None:
    """Raise InputError for a resolution (Å) that a map cannot have, such as one in nm, which is ten times too fine."""
    # The coarsest step of an anisotropic map need not be that of what is seen.
    voxel, side = density_map.voxel_size.min(), widest_side(density_map)
    if 0 < resolution < voxel:
        raise InputError(
            f"must not be finer than the map's voxels of {voxel:.2f} Å",
            argument="resolution",
            found=resolution,
            remedy=f"give that of the map, which is {2 * voxel:.1f} Å at best",
        )
    if side < resolution:
        raise InputError(
            f"must not be coarser than the map is wide, {side:.0f} Å",
            argument="resolution",
            found=resolution,
            remedy="give that of the map",
        )
