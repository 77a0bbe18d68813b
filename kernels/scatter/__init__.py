"""Sum cubes of voxels whose map indices separate into two tables, and the gather that is its adjoint.

An atom's cube of voxels in a periodic map is such a sum, whatever images it reaches: the density's oracle
(`openmm_density.kernels.density.reference`) adds its atoms by the one of this folder. PyTorch serves on every device; tables are
checked when they are first seen, which reads from a GPU, and not while a CUDA graph is captured.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ..library import LIBRARY, define_in_pytorch
from ..table_checks import check_once
from . import reference

__all__ = ["structured_gather", "structured_scatter_add"]

_INT32_MAX = 2**31 - 1
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_converted: set[torch.dtype] = set()


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Sum cubes of voxels into a flat map.

    Voxel (i, j, k) of cube c is added to element ``wa[c, i] + wbwc[c, j, k]`` of the map, so that the
    indices of nx · ny · nz voxels take only nx + ny · nz numbers: with the map's strides, wa holds the
    (wrapped) index along the slowest axis and wbwc those along the other two.

    On a CPU every element of the map receives its additions in the order of density_cube, and on a GPU in one that the
    indices decide: the same input gives the same bits, for every number of threads. Differentiable any number of times
    in density_cube; the gradient is `structured_gather`.

    Parameters
    ----------
    density_cube : Tensor, shape (C, nx, ny, nz), float32
        float64, float16 and bfloat16 are converted to float32, with one warning per type and process.
    wa : Tensor, shape (C, nx), int32
        int64 for a map of more than 2³¹ − 1 elements.
    wbwc : Tensor, shape (C, ny, nz), of the type of wa
    map_size : int
        Number of elements of the map.

    Returns
    -------
    Tensor, shape (map_size,), float32

    Raises
    ------
    ValueError
        If shapes or types do not fit together, if map_size is negative or beyond the reach of int32 indices,
        or if an index lies outside the map. Nothing is written then.
    """
    return _SCATTER_ADD(_as_float32(density_cube, "density_cube"), wa, wbwc, map_size)


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Read cubes of voxels from a flat map: the adjoint of `structured_scatter_add`.

    Differentiable any number of times in density_map; the gradient is `structured_scatter_add`.

    Parameters
    ----------
    density_map : Tensor, shape (map_size,), float32
        Other floating-point types as in `structured_scatter_add`.
    wa : Tensor, shape (C, nx), int32 or int64
    wbwc : Tensor, shape (C, ny, nz), of the type of wa

    Returns
    -------
    Tensor, shape (C, nx, ny, nz), float32
        Voxel (i, j, k) of cube c is ``density_map[wa[c, i] + wbwc[c, j, k]]``.

    Raises
    ------
    ValueError
        As `structured_scatter_add`.
    """
    return _GATHER(_as_float32(density_map, "density_map"), wa, wbwc)


def _scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    _check_indices(wa, wbwc, map_size)
    _check_cubes(density_cube, wa, wbwc)
    values = _as_float32(density_cube, "density_cube")
    _check_range_of(wa, wbwc, map_size)
    return reference.structured_scatter_add(values, wa, wbwc, map_size)


def _gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    _check_map(density_map)
    _check_indices(wa, wbwc, len(density_map))
    values = _as_float32(density_map, "density_map")
    _check_range_of(wa, wbwc, len(values))
    return reference.structured_gather(values, wa, wbwc)


def _check_range_of(wa: Tensor, wbwc: Tensor, map_size: int) -> None:
    """Check the range of indices: on a GPU, which has to be waited for, once for the same tables."""
    if wa.is_cuda:
        check_once("scatter", lambda: _check_range(wa, wbwc, map_size), (wa, wbwc), map_size)
    else:
        _check_range(wa, wbwc, map_size)


def _check_cubes(density_cube: Tensor, wa: Tensor, wbwc: Tensor) -> None:
    if density_cube.shape != (*wa.shape, *wbwc.shape[1:]):
        raise ValueError(
            "density_cube must have the shape (C, nx, ny, nz) for wa (C, nx) and wbwc (C, ny, nz), "
            f"got {list(density_cube.shape)} for {list(wa.shape)} and {list(wbwc.shape)}"
        )


def _check_map(density_map: Tensor) -> None:
    if density_map.dim() != 1:
        raise ValueError(
            f"density_map must have the shape (map_size,), got {list(density_map.shape)}: flatten it first"
        )


def _check_indices(wa: Tensor, wbwc: Tensor, map_size: int) -> None:
    if wa.dtype != wbwc.dtype or wa.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"wa and wbwc must both be int32 or both int64, got {wa.dtype} and {wbwc.dtype}")
    if wa.dim() != 2 or wbwc.dim() != 3 or len(wa) != len(wbwc):
        raise ValueError(
            "wa must have the shape (C, nx) and wbwc (C, ny, nz), "
            f"got {list(wa.shape)} and {list(wbwc.shape)}"
        )
    if map_size < 0:
        raise ValueError(f"map_size must not be negative, got {map_size}")
    if wa.dtype == torch.int32 and map_size > _INT32_MAX:
        raise ValueError(
            f"map_size {map_size} is beyond the reach of int32 indices ({_INT32_MAX}): "
            "pass wa and wbwc as int64"
        )


def _check_range(wa: Tensor, wbwc: Tensor, map_size: int) -> None:
    if wa.numel() == 0 or wbwc.numel() == 0:
        return
    # In Python's integers, which do not overflow.
    planes = wbwc.flatten(1)
    spans = zip(
        *(table.tolist() for table in (wa.amin(1), planes.amin(1), wa.amax(1), planes.amax(1))), strict=True
    )
    for cube, (low_a, low_bc, high_a, high_bc) in enumerate(spans):
        if low_a + low_bc < 0 or high_a + high_bc >= map_size:
            raise ValueError(
                f"wa + wbwc of cube {cube} leaves the map: it spans {low_a + low_bc} to {high_a + high_bc}, "
                f"and map_size {map_size} allows 0 to {map_size - 1}; wrap or clip the indices first"
            )


def _as_float32(values: Tensor, argument: str) -> Tensor:
    if values.dtype not in _FLOATS:
        raise ValueError(
            f"{argument} must be real floating-point numbers, got {values.dtype}: "
            "convert it with .to(torch.float32)"
        )
    if values.dtype != torch.float32 and values.dtype not in _converted:
        _converted.add(values.dtype)
        warnings.warn(
            f"{argument} is {values.dtype} and is converted to float32, as is the result: "
            "pass float32 to avoid this",
            stacklevel=3,
        )
    return values.to(torch.float32)


_SCATTER_ADD = define_in_pytorch(
    "structured_scatter_add(Tensor density_cube, Tensor wa, Tensor wbwc, int map_size) -> Tensor",
    _scatter_add,
)
_GATHER = define_in_pytorch(
    "structured_gather(Tensor density_map, Tensor wa, Tensor wbwc) -> Tensor", _gather
)


def _save_for_scatter_add(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, wa, wbwc, _ = inputs
    ctx.save_for_backward(wa, wbwc)


def _scatter_add_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
    return _GATHER(gradient, *ctx.saved_tensors), None, None, None


def _save_for_gather(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    density_map, wa, wbwc = inputs
    ctx.save_for_backward(wa, wbwc)
    ctx.map_size = density_map.shape[0]


def _gather_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return _SCATTER_ADD(gradient, *ctx.saved_tensors, ctx.map_size), None, None


torch.library.register_autograd(
    _SCATTER_ADD, _scatter_add_backward, setup_context=_save_for_scatter_add, lib=LIBRARY
)
torch.library.register_autograd(_GATHER, _gather_backward, setup_context=_save_for_gather, lib=LIBRARY)


@torch.library.register_fake(_SCATTER_ADD, lib=LIBRARY)
def _scatter_add_shape(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    return density_cube.new_empty((map_size,), dtype=torch.float32)


@torch.library.register_fake(_GATHER, lib=LIBRARY)
def _gather_shape(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    return density_map.new_empty((*wa.shape, *wbwc.shape[1:]), dtype=torch.float32)
