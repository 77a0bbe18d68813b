"""Structured scatter-add and gather in plain PyTorch: slow, differentiable, in any floating-point type."""

from __future__ import annotations

from torch import Tensor


def added_in_order(total: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Return a tensor with values added to its rows of some indices, in an order that depends on the input alone."""
    if values.is_cuda:  # by sorted indices, where index_add has atomics
        return total.index_put((index,), values, accumulate=True)
    return total.index_add(0, index, values)


def flat_indices(wa: Tensor, wbwc: Tensor) -> Tensor:
    """Return the flat map index of every voxel, int64 (C, nx, ny, nz). `wa` (C, nx); `wbwc` (C, ny, nz)."""
    return wa.long()[:, :, None, None] + wbwc.long()[:, None]


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Sum cubes (C, nx, ny, nz), with wa (C, nx) and wbwc (C, ny, nz), into a flat map (map_size,), as the operator."""
    index = flat_indices(wa, wbwc).reshape(-1)
    return added_in_order(density_cube.new_zeros(map_size), index, density_cube.reshape(-1))


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Read cubes (C, nx, ny, nz) from a flat map (map_size,), with wa (C, nx) and wbwc (C, ny, nz), as the operator."""
    return density_map[flat_indices(wa, wbwc)]
