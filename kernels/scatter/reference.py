"""Structured scatter-add and gather in plain PyTorch: slow, differentiable, in any floating-point type."""

from __future__ import annotations

import torch


def flat_indices(wa: torch.Tensor, wbwc: torch.Tensor) -> torch.Tensor:
    """Return the flat map index of every voxel.

    Parameters
    ----------
    wa : torch.Tensor
        (C, nx) integer.
    wbwc : torch.Tensor
        (C, ny, nz) integer.

    Returns
    -------
    torch.Tensor
        (C, nx, ny, nz) int64.
    """
    return wa.long()[:, :, None, None] + wbwc.long()[:, None]


def structured_scatter_add(
    density_cube: torch.Tensor, wa: torch.Tensor, wbwc: torch.Tensor, map_size: int
) -> torch.Tensor:
    """Sum cubes of voxels into a flat map; arguments as of the operator.

    Parameters
    ----------
    density_cube : torch.Tensor
        (C, nx, ny, nz), any floating-point type.
    wa, wbwc : torch.Tensor
        (C, nx) and (C, ny, nz) integer.
    map_size : int
        Length of the map.

    Returns
    -------
    torch.Tensor
        (map_size,), of the type of density_cube.
    """
    index = flat_indices(wa, wbwc).reshape(-1)
    return density_cube.new_zeros(map_size).index_add(0, index, density_cube.reshape(-1))


def structured_gather(density_map: torch.Tensor, wa: torch.Tensor, wbwc: torch.Tensor) -> torch.Tensor:
    """Read cubes of voxels from a flat map; arguments as of the operator.

    Parameters
    ----------
    density_map : torch.Tensor
        (map_size,), any floating-point type.
    wa, wbwc : torch.Tensor
        (C, nx) and (C, ny, nz) integer.

    Returns
    -------
    torch.Tensor
        (C, nx, ny, nz), of the type of density_map.
    """
    return density_map[flat_indices(wa, wbwc)]
