"""structured_scatter_add and structured_gather on the GPU.

Additions by atomics come in another order every time. Here a stable sort brings the voxels of one element of the map together, in
the order of the input, and the lane that finds the first of them adds them all: the same bits every time, and those of cpu.cpp.
"""

# No annotations from __future__: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..table_checks import check_once
from . import _as_float32, _check_cubes, _check_indices, _check_map, _check_range

_VOXELS = 256
# The second dimension of a launch ends at 65535 programs.
_MOST_PROGRAMS = 65535


def structured_scatter_add(density_cube: Tensor, wa: Tensor, wbwc: Tensor, map_size: int) -> Tensor:
    """Return what `openmm_density.kernels.scatter.structured_scatter_add` does, with the same arguments.

    Tables are checked when they are first seen, which reads from the device. While a CUDA graph is captured they cannot be: in a
    sum of which a voxel lies outside the map, all that is touched then becomes NaN.

    Raises
    ------
    ValueError
        As the operator.
    """
    _check_indices(wa, wbwc, map_size)
    _check_cubes(density_cube, wa, wbwc)
    values = _as_float32(density_cube, "density_cube").contiguous()
    check_once("scatter", lambda: _check_range(wa, wbwc, map_size), (wa, wbwc), map_size)
    density_map = values.new_zeros(map_size)
    n_voxels = values.numel()
    if n_voxels == 0 or map_size == 0:
        return density_map
    keys = torch.empty(values.shape, dtype=wa.dtype, device=values.device)
    _over_cubes(_keys_kernel, keys, wa.contiguous(), wbwc.contiguous(), keys, map_size)
    keys, order = torch.sort(keys.view(-1), stable=True)
    with torch.cuda.device_of(values):
        _sum_kernel[(triton.cdiv(n_voxels, _VOXELS),)](
            keys, order, values, density_map, n_voxels, map_size, VOXELS=_VOXELS, num_warps=4
        )
    return density_map


def structured_gather(density_map: Tensor, wa: Tensor, wbwc: Tensor) -> Tensor:
    """Return what `openmm_density.kernels.scatter.structured_gather` does, with the same arguments.

    Tables are checked when they are first seen, which reads from the device. While a CUDA graph is captured they cannot be: a
    voxel outside the map is then NaN.

    Raises
    ------
    ValueError
        As the operator.
    """
    _check_map(density_map)
    map_size = density_map.numel()
    _check_indices(wa, wbwc, map_size)
    values = _as_float32(density_map, "density_map").contiguous()
    check_once("scatter", lambda: _check_range(wa, wbwc, map_size), (wa, wbwc), map_size)
    cubes = torch.empty((*wa.shape, *wbwc.shape[1:]), dtype=torch.float32, device=values.device)
    if cubes.numel() > 0:
        _over_cubes(_gather_kernel, cubes, wa.contiguous(), wbwc.contiguous(), values, map_size)
    return cubes


def _over_cubes(
    kernel: triton.JITFunction, cubes: Tensor, wa: Tensor, wbwc: Tensor, other: Tensor, map_size: int
) -> None:
    """Launch a kernel over cubes (C, nx, ny, nz), several slices of one cube and index of wa to a program."""
    n_slices = cubes.shape[0] * cubes.shape[1]
    plane = cubes.shape[2] * cubes.shape[3]
    grid = (n_slices, min(triton.cdiv(plane, _VOXELS), _MOST_PROGRAMS))
    with torch.cuda.device_of(cubes):
        kernel[grid](wa, wbwc, other, cubes, cubes.shape[1], plane, map_size, VOXELS=_VOXELS, num_warps=4)


@triton.jit
def _index(wa, wbwc, nx, plane, start, map_size, VOXELS: tl.constexpr):
    """Return where some voxels of a slice are among those of all cubes, whether they exist, their map index and if it is inside.

    The index is int64, in which sums of int32 indices do not overflow.
    """
    slice = tl.program_id(0).to(tl.int64)
    base = tl.load(wa + slice).to(tl.int64)
    voxel = start + tl.arange(0, VOXELS)
    exists = voxel < plane
    index = base + tl.load(wbwc + slice // nx * plane + voxel, mask=exists, other=0).to(tl.int64)
    return slice * plane + voxel, exists, index, (index >= 0) & (index < map_size)


@triton.jit
def _keys_kernel(wa, wbwc, other, keys, nx, plane, map_size, VOXELS: tl.constexpr):
    """Write the map index of every voxel; that of a voxel outside the map is map_size, the largest.

    Launch grid: ``(C · nx, programs)``, programs from 1 to 65535 over the ny · nz voxels of a slice, VOXELS at a time.

    ===========  ===============  =========  ==========================
    argument     shape            dtype      what it is
    ===========  ===============  =========  ==========================
    wa           (C, nx)          int32/64
    wbwc         (C, ny, nz)      of wa
    other                                    unused
    keys         (C, nx, ny, nz)  of wa      out
    nx           scalar           int32
    plane        scalar           int32/64   ny · nz
    map_size     scalar           int32/64
    VOXELS       constant                    voxels of a program's step
    ===========  ===============  =========  ==========================
    """
    start = tl.program_id(1) * VOXELS
    while start < plane:
        to, exists, index, inside = _index(wa, wbwc, nx, plane, start, map_size, VOXELS)
        key = tl.where(inside, index, map_size).to(keys.dtype.element_ty)
        tl.store(keys + to, key, mask=exists)
        start += tl.num_programs(1) * VOXELS


@triton.jit
def _gather_kernel(wa, wbwc, density_map, cubes, nx, plane, map_size, VOXELS: tl.constexpr):
    """Read every voxel from the map; one outside it is NaN.

    Launch grid: ``(C · nx, programs)``, programs from 1 to 65535 over the ny · nz voxels of a slice, VOXELS at a time.

    ===========  ===============  =========  ==========================
    argument     shape            dtype      what it is
    ===========  ===============  =========  ==========================
    wa           (C, nx)          int32/64
    wbwc         (C, ny, nz)      of wa
    density_map  (map_size,)      float32
    cubes        (C, nx, ny, nz)  float32    out
    nx           scalar           int32
    plane        scalar           int32/64   ny · nz
    map_size     scalar           int32/64
    VOXELS       constant                    voxels of a program's step
    ===========  ===============  =========  ==========================
    """
    start = tl.program_id(1) * VOXELS
    while start < plane:
        to, exists, index, inside = _index(wa, wbwc, nx, plane, start, map_size, VOXELS)
        value = tl.load(density_map + index, mask=exists & inside, other=float("nan"))
        tl.store(cubes + to, value, mask=exists)
        start += tl.num_programs(1) * VOXELS


@triton.jit
def _sum_kernel(keys, order, values, density_map, n_voxels, map_size, VOXELS: tl.constexpr):
    """Add the voxels of each element of the map, in the order of the input: the lane of its first voxel adds them all.

    Launch grid: ``(cdiv(n_voxels, VOXELS),)``: a lane to a voxel.

    ===========  ===========  ========  =====================================
    argument     shape        dtype     what it is
    ===========  ===========  ========  =====================================
    keys         (n_voxels,)  int32/64  map indices of all voxels, sorted
    order        (n_voxels,)  int64     the voxel of each
    values       (n_voxels,)  float32   by voxel
    density_map  (map_size,)  float32   0 before; out
    n_voxels     scalar       int32/64
    map_size     scalar       int32/64  the key of voxels outside the map
    VOXELS       constant               voxels of a program
    ===========  ===========  ========  =====================================
    """
    voxel = tl.program_id(0).to(tl.int64) * VOXELS + tl.arange(0, VOXELS)
    exists = voxel < n_voxels
    key = tl.load(keys + voxel, mask=exists, other=0)
    before = tl.load(keys + voxel - 1, mask=exists & (voxel > 0), other=-1)
    first = exists & (key != before) & (key != map_size)
    # Keys of voxels outside the map are the largest.
    outside = tl.load(keys + n_voxels - 1) == map_size
    total = tl.zeros((VOXELS,), tl.float32)
    more = first
    step = 0
    while tl.max(more.to(tl.int32), axis=0) > 0:
        source = tl.load(order + voxel + step, mask=more, other=0)
        total += tl.load(values + source, mask=more, other=0.0)
        step += 1
        following = tl.load(keys + voxel + step, mask=more & (voxel + step < n_voxels), other=-1)
        more = more & (following == key)
    total = tl.where(outside, float("nan"), total)
    tl.store(density_map + key, total, mask=first)
