"""Structured scatter-add and gather in plain PyTorch: slow, differentiable, in any floating-point type."""

from __future__ import annotations

from torch import Tensor

from ..sums import added_in_order


def flat_indices(wa: Tensor, wbwc: Tensor) -> Tensor:
    """Return the flat map index of every voxel, int64 (C, nx, ny, nz). `wa` (C, nx); `wbwc` (C, ny, nz)."""
    return wa.long()[:, :, None, None] + wbwc.long()[:, None]


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Sum cubes of voxels into a flat map; arguments as of the operator.

    `density_cube` (C, nx, ny, nz); `wa` (C, nx); `wbwc` (C, ny, nz); `map_size`: length of the map. Returns shape
    (map_size,).
    """
    index = flat_indices(wa, wbwc).reshape(-1)
    return added_in_order(density_cube.new_zeros(map_size), index, density_cube.reshape(-1))


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Read cubes of voxels from a flat map; arguments as of the operator.

    `density_map` (map_size,); `wa` (C, nx); `wbwc` (C, ny, nz). Returns shape (C, nx, ny, nz).
    """
    return density_map[flat_indices(wa, wbwc)]
