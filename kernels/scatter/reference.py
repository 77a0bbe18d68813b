"""Structured scatter-add and gather in plain PyTorch: slow, differentiable, in any floating-point type."""

from __future__ import annotations

from torch import Tensor

from ..sums import added_in_order


def flat_indices(wa: Tensor, wbwc: Tensor) -> Tensor:
    """Return the flat map index of every voxel.

    Parameters
    ----------
    wa : Tensor, shape (C, nx), integer
    wbwc : Tensor, shape (C, ny, nz), integer

    Returns
    -------
    Tensor, shape (C, nx, ny, nz), int64
    """
    return wa.long()[:, :, None, None] + wbwc.long()[:, None]


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Sum cubes of voxels into a flat map; arguments as of the operator.

    Parameters
    ----------
    density_cube : Tensor, shape (C, nx, ny, nz), of any floating-point type
    wa : Tensor, shape (C, nx), integer
    wbwc : Tensor, shape (C, ny, nz), integer
    map_size : int
        Length of the map.

    Returns
    -------
    Tensor, shape (map_size,), of the type of density_cube
    """
    index = flat_indices(wa, wbwc).reshape(-1)
    return added_in_order(density_cube.new_zeros(map_size), index, density_cube.reshape(-1))


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Read cubes of voxels from a flat map; arguments as of the operator.

    Parameters
    ----------
    density_map : Tensor, shape (map_size,), of any floating-point type
    wa : Tensor, shape (C, nx), integer
    wbwc : Tensor, shape (C, ny, nz), integer

    Returns
    -------
    Tensor, shape (C, nx, ny, nz), of the type of density_map
    """
    return density_map[flat_indices(wa, wbwc)]
