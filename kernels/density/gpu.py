"""Density, its gradients and its similarity to a target on the GPU.

Every atom goes into the tile of 8x8x4 voxels where it lies: counted, scanned and filled by small kernels, in the order of the
atoms, so that every sum below has one order and the same input gives the same bits. A program then takes one tile after the
other. It collects the atoms that reach the tile from the tiles around it, lists for every block of 4x4x2 voxels those that
reach the block, and lets each of its lanes work off its share of a list for a block in registers. The density is written once,
with the tile's part of the similarity's sums; tiles that no atom reaches are neither written nor read. Once the sums are known
it is replaced by dS/d(density), from which a program for every few atoms gathers their forces. Between these kernels the
density lies tile by tile, so that what is near in space is near in memory.

Where voxels are, and how far a sphere reaches, is read on the device from `matrix` and `origin`: nothing here waits for the
GPU, allocates by the data or keeps anything between calls, so that calls can be captured in a CUDA graph. Positions become
voxel and fraction in float64; the loops over voxels run in float32 on coordinates relative to the tile or the atom.
"""

# No annotations from __future__: Triton reads those of its kernels.
import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import tuning

TILE_X, TILE_Y, TILE_Z = tl.constexpr(8), tl.constexpr(8), tl.constexpr(4)
TILE = tl.constexpr(256)
LANES = tl.constexpr(32)
# Voxels of a block along x, y, z, blocks of a tile along them, and in all; and the lanes that share a block.
BLOCK_X, BLOCK_Y, BLOCK_Z = tl.constexpr(4), tl.constexpr(4), tl.constexpr(2)
BLOCKS_X, BLOCKS_Y, BLOCKS_Z = tl.constexpr(2), tl.constexpr(2), tl.constexpr(2)
BLOCKS, SHARES = tl.constexpr(8), tl.constexpr(4)
# A step of the search looks at so many atoms, so many of each of some rows of tiles.
CANDIDATES, ATOMS_OF_ROW = tl.constexpr(128), tl.constexpr(8)
# Atoms that wait for their turn in a tile; they are turned to when another step of the search might not fit.
WAITING = tl.constexpr(512)
# Of these, so many for each lane are listed by block at once.
LISTED_AT_ONCE = tl.constexpr(8)
# Atoms that the gather looks at together, and the lanes of each.
ATOMS, RUNS = tl.constexpr(2), tl.constexpr(16)
SCAN_BLOCK = tl.constexpr(1024)
PLACE_BLOCK = 32
MARK_BLOCK = 128
# Programs that share the tiles: a constant, because it decides the order in which the sums are added.
SPLAT_PROGRAMS = 4096
CLEARING_PROGRAMS = 1024


CROSS_CORRELATION, ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES = (
    tl.constexpr(measure) for measure in range(5)
)
DENSITY_ONLY = tl.constexpr(-1)
LOG2_E = tl.constexpr(1.4426950408889634)
MAX_GAUSSIANS = 5
# Up to here there are too few atoms to give a program of the gather more than it looks at together.
_FEW_ATOMS = 40_000


class Configuration(NamedTuple):
    """How the two large kernels are launched; the results are the same to the last bit.

    Attributes
    ----------
    splat_registers, gather_registers : int
        At most so many registers for a thread.
    gather_turns : int
        How often a program of the gather turns to the next atoms.
    """

    splat_registers: int
    gather_registers: int
    gather_turns: int


_CANDIDATES = tuple(
    Configuration(splat, gather, turns)
    for splat, gather in ((96, 80), (112, 96), (128, 128), (128, 168))
    for turns in (1, 4)
)


def _default_configuration(n_atoms: int, gaussians: int) -> Configuration:
    """Give what was fastest on an H200. Ampere's multiprocessors have as many registers and run as many of these programs."""
    if gaussians > 1:
        return Configuration(128, 128, 4)
    return Configuration(112, 80, 4) if n_atoms > _FEW_ATOMS else Configuration(112, 96, 1)


_SIZES = ("nx", "ny", "nz")


def _kernel(*sizes: str) -> Any:
    """Compile a kernel once, and not again for a size that happens to be 1 or a multiple of 16."""
    return triton.jit(do_not_specialize=list(sizes))


@_kernel("n_tiles", "n_gradient")
def _begin(
    matrix, cutoff, inverse, geometry, count, touched, n_tiles, gradient, n_gradient, BLOCK: tl.constexpr
):
    """Clear the tiles' counts and marks and the gradient, and work out what the grid's steps mean for a sphere.

    Of the matrix its inverse, and in float32 how far the sphere reaches along each axis in voxels, rounded up a little; then the
    triangular matrix (xx, xy, xz, yy, yz, zz) of the same distances, that is of the same steps in a frame turned with them; then
    the matrix itself.
    """
    for i in range(tl.program_id(0) * BLOCK, n_tiles, tl.num_programs(0) * BLOCK):
        tile = i + tl.arange(0, BLOCK)
        tl.store(count + tile, tl.zeros([BLOCK], tl.int32), mask=tile < n_tiles)
        tl.store(touched + tile, tl.zeros([BLOCK], tl.int32), mask=tile < n_tiles)
    for i in range(tl.program_id(0) * BLOCK, n_gradient, tl.num_programs(0) * BLOCK):
        entry = i + tl.arange(0, BLOCK)
        tl.store(gradient + entry, tl.zeros([BLOCK], gradient.dtype.element_ty), mask=entry < n_gradient)
    if tl.program_id(0) == 0:
        xx = tl.load(matrix)
        xy = tl.load(matrix + 1)
        xz = tl.load(matrix + 2)
        yx = tl.load(matrix + 3)
        yy = tl.load(matrix + 4)
        yz = tl.load(matrix + 5)
        zx = tl.load(matrix + 6)
        zy = tl.load(matrix + 7)
        zz = tl.load(matrix + 8)
        cx = yy * zz - yz * zy
        cy = yz * zx - yx * zz
        cz = yx * zy - yy * zx
        scale = 1.0 / (xx * cx + xy * cy + xz * cz)
        _row(inverse, geometry, cutoff, cx * scale, (xz * zy - xy * zz) * scale, (xy * yz - xz * yy) * scale)
        _row(
            inverse + 3,
            geometry + 1,
            cutoff,
            cy * scale,
            (xx * zz - xz * zx) * scale,
            (xz * yx - xx * yz) * scale,
        )
        _row(
            inverse + 6,
            geometry + 2,
            cutoff,
            cz * scale,
            (xy * zx - xx * zy) * scale,
            (xx * yy - xy * yx) * scale,
        )
        step_x = tl.sqrt(xx * xx + yx * yx + zx * zx)
        tilt_xy = (xx * xy + yx * yy + zx * zy) / step_x
        tilt_xz = (xx * xz + yx * yz + zx * zz) / step_x
        step_y = tl.sqrt(xy * xy + yy * yy + zy * zy - tilt_xy * tilt_xy)
        tilt_yz = (xy * xz + yy * yz + zy * zz - tilt_xy * tilt_xz) / step_y
        step_z = tl.sqrt(xz * xz + yz * yz + zz * zz - tilt_xz * tilt_xz - tilt_yz * tilt_yz)
        # A rotated orthogonal grid is one but for rounding.
        small = 1e-13 * step_x
        tl.store(geometry + 3, step_x.to(tl.float32))
        tl.store(geometry + 4, tl.where(tl.abs(tilt_xy) > small, tilt_xy, 0.0).to(tl.float32))
        tl.store(geometry + 5, tl.where(tl.abs(tilt_xz) > small, tilt_xz, 0.0).to(tl.float32))
        tl.store(geometry + 6, step_y.to(tl.float32))
        tl.store(geometry + 7, tl.where(tl.abs(tilt_yz) > small, tilt_yz, 0.0).to(tl.float32))
        tl.store(geometry + 8, step_z.to(tl.float32))
        entry = tl.arange(0, 16)
        tl.store(geometry + 9 + entry, tl.load(matrix + entry, mask=entry < 9).to(tl.float32), mask=entry < 9)


@triton.jit
def _row(inverse, reach, cutoff, x, y, z):
    tl.store(inverse, x)
    tl.store(inverse + 1, y)
    tl.store(inverse + 2, z)
    tl.store(reach, (cutoff * (1.0 + 1e-6) * tl.sqrt(x * x + y * y + z * z)).to(tl.float32) + 1e-4)


@triton.jit
def _reach(geometry):
    return tl.load(geometry), tl.load(geometry + 1), tl.load(geometry + 2)


@triton.jit
def _steps(geometry):
    return (
        tl.load(geometry + 3),
        tl.load(geometry + 4),
        tl.load(geometry + 5),
        tl.load(geometry + 6),
        tl.load(geometry + 7),
        tl.load(geometry + 8),
    )


@triton.jit
def _floor_divide(i, n):
    quotient = i // n
    return quotient - (i - quotient * n < 0).to(tl.int32)


@triton.jit
def _numbered(i, n, size, count, PERIODIC: tl.constexpr):
    """Number the parts of `size` voxels, `count` to a cell of n, that voxel i lies in: on through the images."""
    if PERIODIC:
        image = _floor_divide(i, n)
        return image * count + (i - image * n) // size
    else:
        return tl.minimum(tl.maximum(i, 0), n - 1) // size


@triton.jit
def _reduced(u, n, PERIODIC: tl.constexpr):
    if PERIODIC:
        u = u - n * tl.floor(u / n)
        return tl.where(u >= n, 0.0, u)
    else:
        return u


@triton.jit
def _located(
    positions,
    atoms,
    atom,
    n_atoms,
    n_positions,
    inverse,
    geometry,
    origin,
    nx,
    ny,
    nz,
    SELECTED: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Whether atoms reach the grid, their voxels, and their fractions of a voxel."""
    there = atom < n_atoms
    if SELECTED:
        particle = tl.load(atoms + atom, mask=there, other=-1)
        there = there & (particle >= 0) & (particle < n_positions)
        particle = tl.where(there, particle, 0)
    else:
        particle = tl.where(there, atom, 0).to(tl.int64)
    dx = tl.load(positions + 3 * particle, mask=there, other=0.0).to(tl.float64) - tl.load(origin)
    dy = tl.load(positions + 3 * particle + 1, mask=there, other=0.0).to(tl.float64) - tl.load(origin + 1)
    dz = tl.load(positions + 3 * particle + 2, mask=there, other=0.0).to(tl.float64) - tl.load(origin + 2)
    ux = tl.load(inverse) * dx + tl.load(inverse + 1) * dy + tl.load(inverse + 2) * dz
    uy = tl.load(inverse + 3) * dx + tl.load(inverse + 4) * dy + tl.load(inverse + 5) * dz
    uz = tl.load(inverse + 6) * dx + tl.load(inverse + 7) * dy + tl.load(inverse + 8) * dz
    there = there & (tl.abs(ux) < 1e9) & (tl.abs(uy) < 1e9) & (tl.abs(uz) < 1e9)
    ux = _reduced(tl.where(there, ux, 0.0), nx, PERIODIC)
    uy = _reduced(tl.where(there, uy, 0.0), ny, PERIODIC)
    uz = _reduced(tl.where(there, uz, 0.0), nz, PERIODIC)
    reach_x, reach_y, reach_z = _reach(geometry)
    if not PERIODIC:
        there = there & (ux + reach_x >= 0) & (ux - reach_x <= nx - 1)
        there = there & (uy + reach_y >= 0) & (uy - reach_y <= ny - 1)
        there = there & (uz + reach_z >= 0) & (uz - reach_z <= nz - 1)
    vx = tl.floor(ux)
    vy = tl.floor(uy)
    vz = tl.floor(uz)
    fx = (ux - vx).to(tl.float32)
    fy = (uy - vy).to(tl.float32)
    fz = (uz - vz).to(tl.float32)
    return there, vx.to(tl.int32), vy.to(tl.int32), vz.to(tl.int32), fx, fy, fz


@triton.jit
def _tile_along(v, n, SIZE: tl.constexpr):
    return tl.minimum(tl.maximum(v, 0), n - 1) // SIZE


@_kernel("n_atoms", "n_positions", *_SIZES)
def _place(
    positions,
    atoms,
    n_atoms,
    n_positions,
    inverse,
    geometry,
    origin,
    nx,
    ny,
    nz,
    tile_of,
    arrival,
    count,
    SELECTED: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give every atom its tile (-1: out of reach), and count them."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, vx, vy, vz, _fx, _fy, _fz = _located(
        positions,
        atoms,
        atom,
        n_atoms,
        n_positions,
        inverse,
        geometry,
        origin,
        nx,
        ny,
        nz,
        SELECTED,
        PERIODIC,
    )
    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y
    tile = _tile_along(vz, nz, TILE_Z) * tiles_y + _tile_along(vy, ny, TILE_Y)
    tile = tl.where(there, tile * tiles_x + _tile_along(vx, nx, TILE_X), -1)
    tl.store(tile_of + atom, tile, mask=atom < n_atoms)
    tl.store(arrival + atom, tl.atomic_add(count + tile, 1, mask=there), mask=there)


@_kernel("n_tiles", *_SIZES)
def _mark(count, touched, n_tiles, geometry, nx, ny, nz, PERIODIC: tl.constexpr, BLOCK: tl.constexpr):
    """Mark the tiles that the box around an atom may touch, wherever in its tile the atom is."""
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    populated = tl.load(count + tile, mask=tile < n_tiles, other=0) > 0
    if tl.max(populated.to(tl.int32), axis=0) > 0:
        tiles_x = (nx + TILE_X - 1) // TILE_X
        tiles_y = (ny + TILE_Y - 1) // TILE_Y
        tiles_z = (nz + TILE_Z - 1) // TILE_Z
        reach_x, reach_y, reach_z = _reach(geometry)
        tx = tile % tiles_x
        ty = tile // tiles_x % tiles_y
        tz = tile // (tiles_x * tiles_y)
        first_x, many_x = _tiles_reached(tx, TILE_X, reach_x, nx, tiles_x, populated, PERIODIC)
        first_y, many_y = _tiles_reached(ty, TILE_Y, reach_y, ny, tiles_y, populated, PERIODIC)
        first_z, many_z = _tiles_reached(tz, TILE_Z, reach_z, nz, tiles_z, populated, PERIODIC)
        for k in range(0, tl.max(many_z, axis=0)):
            plane = _wrapped(first_z + k, tiles_z, PERIODIC) * tiles_y
            for j in range(0, tl.max(many_y, axis=0)):
                line = (plane + _wrapped(first_y + j, tiles_y, PERIODIC)) * tiles_x
                for i in range(0, tl.max(many_x, axis=0)):
                    reached = line + _wrapped(first_x + i, tiles_x, PERIODIC)
                    tl.store(touched + reached, 1, mask=(i < many_x) & (j < many_y) & (k < many_z))


@triton.jit
def _tiles_reached(tile, SIZE: tl.constexpr, reach, n, tiles, there, PERIODIC: tl.constexpr):
    """The first of the tiles along an axis, numbered on through the images, that atoms of a tile reach, and how many."""
    low = tile * SIZE - tl.floor(reach).to(tl.int32)
    high = tl.minimum(tile * SIZE + SIZE, n) + tl.floor(reach).to(tl.int32)
    first = _numbered(low, n, SIZE, tiles, PERIODIC)
    many = _numbered(high, n, SIZE, tiles, PERIODIC) - first + 1
    # Once around the cell is enough.
    return first, tl.where(there, tl.minimum(many, tiles), 0)


@triton.jit
def _wrapped(i, n, PERIODIC: tl.constexpr):
    if PERIODIC:
        i -= _floor_divide(i, n) * n
    return i


@triton.jit
def _tiles_in_reach(first, last, SIZE: tl.constexpr, reach, n, tiles, PERIODIC: tl.constexpr):
    """The first of the tiles along an axis, numbered on through the images, whose atoms reach some voxels, and how many."""
    first = _numbered(first - tl.ceil(reach).to(tl.int32), n, SIZE, tiles, PERIODIC)
    return first, _numbered(last + tl.floor(reach).to(tl.int32), n, SIZE, tiles, PERIODIC) - first + 1


@_kernel("n_tiles", "n_blocks")
def _add_blocks(count, touched, n_tiles, totals, n_blocks):
    """Sum every block of the tiles' counts of atoms, and of their marks."""
    block = tl.program_id(0)
    i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
    tl.store(totals + block, tl.sum(tl.load(count + i, mask=i < n_tiles, other=0), axis=0))
    tl.store(totals + n_blocks + block, tl.sum(tl.load(touched + i, mask=i < n_tiles, other=0), axis=0))


@triton.jit
def _add_before(totals, first, last):
    before = tl.zeros([SCAN_BLOCK], tl.int32)
    for begin in range(first, last, SCAN_BLOCK):
        i = begin + tl.arange(0, SCAN_BLOCK)
        before += tl.load(totals + i, mask=i < last, other=0)
    return tl.sum(before, axis=0)


@_kernel("n_tiles", "n_blocks")
def _scan(count, touched, n_tiles, totals, n_blocks, start, tiles, n_touched):
    """Turn counts into where each tile's atoms start, and marks into the list of tiles that are touched."""
    block = tl.program_id(0)
    i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
    atoms = tl.load(count + i, mask=i < n_tiles, other=0)
    after = _add_before(totals, 0, block) + tl.cumsum(atoms, axis=0)
    tl.store(start + 1 + i, after, mask=i < n_tiles)
    tl.store(start + i, 0, mask=i == 0)
    marks = tl.load(touched + i, mask=i < n_tiles, other=0)
    before = _add_before(totals, n_blocks, n_blocks + block)
    place = before + tl.cumsum(marks, axis=0) - 1
    tl.store(tiles + place, i, mask=(i < n_tiles) & (marks != 0))
    if block == n_blocks - 1:
        tl.store(n_touched, before + tl.sum(marks, axis=0))


@_kernel("n_atoms")
def _fill(tile_of, arrival, n_atoms, start, unsorted, BLOCK: tl.constexpr):
    """List the atoms of every tile as they arrived."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(tile_of + atom, mask=atom < n_atoms, other=-1)
    there = tile >= 0
    place = tl.load(start + tile, mask=there, other=0) + tl.load(arrival + atom, mask=there, other=0)
    tl.store(unsorted + place, atom, mask=there)


@_kernel("n_atoms", "n_positions", *_SIZES)
def _arrange(
    positions,
    atoms,
    n_atoms,
    n_positions,
    inverse,
    geometry,
    origin,
    nx,
    ny,
    nz,
    tile_of,
    start,
    n_listed,
    unsorted,
    amplitudes,
    exponents,
    cutoff,
    listed,
    voxel,
    fraction,
    in_tile,
    gaussians,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    SELECTED: tl.constexpr,
    PERIODIC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Put what the loops need of every atom in the order of the tiles, and of the atoms within a tile.

    `in_tile` holds where in its tile an atom is, in voxels, and the x of the tile (an integer); `gaussians` the amplitudes, then
    the exponents times log2(e), then the constant and the slope of what brings value and slope to zero at the cut-off.
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = slot < tl.load(n_listed)
    atom = tl.load(unsorted + slot, mask=there, other=0)
    tile = tl.load(tile_of + atom, mask=there, other=0)
    begin = tl.load(start + tile, mask=there, other=0)
    members = tl.load(start + tile + 1, mask=there, other=0) - begin
    place = begin
    for k in range(0, tl.max(members, axis=0)):
        other = tl.load(unsorted + begin + k, mask=there & (k < members), other=0x7FFFFFFF)
        place += (other < atom).to(tl.int32)
    _, vx, vy, vz, fx, fy, fz = _located(
        positions,
        atoms,
        atom,
        n_atoms,
        n_positions,
        inverse,
        geometry,
        origin,
        nx,
        ny,
        nz,
        SELECTED,
        PERIODIC,
    )
    tl.store(listed + place, atom, mask=there)
    tl.store(voxel + place, vx, mask=there)
    tl.store(voxel + n_atoms + place, vy, mask=there)
    tl.store(voxel + 2 * n_atoms + place, vz, mask=there)
    tl.store(fraction + place, fx, mask=there)
    tl.store(fraction + n_atoms + place, fy, mask=there)
    tl.store(fraction + 2 * n_atoms + place, fz, mask=there)
    tile_x = _tile_along(vx, nx, TILE_X) * TILE_X
    tile_y = _tile_along(vy, ny, TILE_Y) * TILE_Y
    tile_z = _tile_along(vz, nz, TILE_Z) * TILE_Z
    _store_four(
        in_tile,
        place,
        (vx - tile_x).to(tl.float32) + fx,
        (vy - tile_y).to(tl.float32) + fy,
        (vz - tile_z).to(tl.float32) + fz,
        tile_x.to(tl.float32, bitcast=True),
        there,
    )
    s_c = cutoff * cutoff
    constant = tl.zeros([BLOCK], tl.float32)
    slope = tl.zeros([BLOCK], tl.float32)
    words = ()
    exponents_2 = ()
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c, mask=there, other=0.0)
        alpha = tl.load(exponents + atom * GAUSSIANS + c, mask=there, other=0.0)
        edge = a * tl.exp(-alpha * s_c)
        constant -= edge * (1.0 + alpha * s_c)
        slope += edge * alpha
        words = words + (a,)  # noqa: RUF005
        exponents_2 = exponents_2 + (alpha * LOG2_E,)  # noqa: RUF005
    words = words + exponents_2 + (constant, slope, slope, slope)
    for k in tl.static_range(WORDS // 4):
        _store_four(
            gaussians,
            place * (WORDS // 4) + k,
            words[4 * k],
            words[4 * k + 1],
            words[4 * k + 2],
            words[4 * k + 3],
            there,
        )


@triton.jit
def _store_four(table, i, first, second, third, fourth, mask):
    """Store four numbers that lie together, of each entry, at once."""
    entries = tl.join(tl.join(first, third), tl.join(second, fourth))
    entries = tl.reshape(entries, i.shape + [4])  # noqa: RUF005
    tl.store(table + 4 * tl.expand_dims(i, -1) + tl.arange(0, 4), entries, mask=tl.expand_dims(mask, -1))


@triton.jit
def _four(table, i):
    """Four numbers that lie together, of each entry."""
    entries = tl.load(table + 4 * tl.expand_dims(i, -1) + tl.arange(0, 4))
    # 0 and 2, 1 and 3.
    even, odd = tl.split(tl.reshape(entries, i.shape + [2, 2]))  # noqa: RUF005
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _words(gaussians, i, WORDS: tl.constexpr):
    words = ()
    for k in tl.static_range(WORDS // 4):
        words = words + _four(gaussians, i * (WORDS // 4) + k)
    return words


@triton.jit
def _sum_of_lanes(of_lane):
    """For lanes that share a block, their sum, and that of those before."""
    by_block = tl.reshape(of_lane, [SHARES, BLOCKS])
    before = tl.cumsum(by_block, axis=0) - by_block
    total = tl.broadcast_to(tl.sum(by_block, axis=0)[None, :], [SHARES, BLOCKS])
    return tl.reshape(before, [LANES]), tl.reshape(total, [LANES])


@triton.jit
def _list_by_block(
    waiting,
    n_waiting,
    lists,
    corner_x,
    corner_y,
    corner_z,
    lxx,
    lxy,
    lxz,
    lyy,
    lyz,
    lzz,
    cutoff,
    orthogonal,
):
    """List for every block of a tile how many of the waiting atoms reach it, and which.

    In an orthogonal grid that is a matter of their distance from the block, else, with some to spare, from its middle.
    """
    lane = tl.arange(0, LANES)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, radius = _box(
        BLOCK_X, BLOCK_Y, BLOCK_Z, lxx, lxy, lxz, lyy, lyz, lzz, cutoff, orthogonal
    )
    middle_x = (corner_x + middle_x)[:, None]
    middle_y = (corner_y + middle_y)[:, None]
    middle_z = (corner_z + middle_z)[:, None]
    listed = tl.zeros([LANES], tl.int32)
    for first in range(0, n_waiting, LISTED_AT_ONCE * SHARES):
        m = first + (lane // BLOCKS)[:, None] + SHARES * tl.arange(0, LISTED_AT_ONCE)[None, :]
        there = m < n_waiting
        x, y, z, _ = _four(waiting, tl.where(there, m, 0))
        off_x = tl.maximum(tl.abs(x - middle_x) - half_x, 0.0)
        off_y = tl.maximum(tl.abs(y - middle_y) - half_y, 0.0)
        off_z = tl.maximum(tl.abs(z - middle_z) - half_z, 0.0)
        near = there & (off_x * off_x + off_y * off_y + off_z * off_z < radius * radius)
        before, total = _sum_of_lanes(tl.sum(near.to(tl.int32), axis=1))
        place = (listed + before)[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
        tl.store(lists + BLOCKS + place * BLOCKS + (lane % BLOCKS)[:, None], m.to(tl.int16), mask=near)
        listed += total
    tl.store(lists + lane % BLOCKS, listed.to(tl.int16))


@triton.jit
def _box(
    SIZE_X: tl.constexpr,
    SIZE_Y: tl.constexpr,
    SIZE_Z: tl.constexpr,
    lxx,
    lxy,
    lxz,
    lyy,
    lyz,
    lzz,
    cutoff,
    orthogonal,
):
    """Of a box of voxels its middle, seen from the first of them, and half of its size; and from where on atoms do not reach it.

    A skewed box is taken for the sphere around it.
    """
    half_x = lxx * ((SIZE_X - 1) / 2)
    half_y = lyy * ((SIZE_Y - 1) / 2)
    half_z = lzz * ((SIZE_Z - 1) / 2)
    middle_x = half_x + lxy * ((SIZE_Y - 1) / 2) + lxz * ((SIZE_Z - 1) / 2)
    middle_y = half_y + lyz * ((SIZE_Z - 1) / 2)
    wide_x = half_x + tl.abs(lxy) * ((SIZE_Y - 1) / 2) + tl.abs(lxz) * ((SIZE_Z - 1) / 2)
    wide_y = half_y + tl.abs(lyz) * ((SIZE_Z - 1) / 2)
    around = tl.sqrt(wide_x * wide_x + wide_y * wide_y + half_z * half_z)
    radius = tl.where(orthogonal, cutoff, cutoff + around) * (1.0 + 1e-5)
    middle_z = half_z
    half_x = tl.where(orthogonal, half_x, 0.0)
    half_y = tl.where(orthogonal, half_y, 0.0)
    half_z = tl.where(orthogonal, half_z, 0.0)
    return middle_x, middle_y, middle_z, half_x, half_y, half_z, radius


@triton.jit
def _add_listed(
    rho,
    waiting,
    lists,
    corner_x,
    corner_y,
    corner_z,
    gaussians,
    lxx,
    lxy,
    lxz,
    lyy,
    lyz,
    lzz,
    s_c,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    SKEWED: tl.constexpr,
):
    """Add the atoms that are listed for a block to the density of its voxels, each lane its share.

    In an orthogonal grid an exponential is a product of one for each axis, else only the whole distance gives it.
    """
    u = tl.arange(0, BLOCK_X)[None, None, :, None].to(tl.float32)
    v = tl.arange(0, BLOCK_Y)[None, :, None, None].to(tl.float32)
    w = tl.arange(0, BLOCK_Z)[:, None, None, None].to(tl.float32)
    lane = tl.arange(0, LANES)
    share = lane // BLOCKS
    listed = tl.load(lists + lane % BLOCKS).to(tl.int32)
    lists += BLOCKS
    # Each turn looks up the atom of the next, and where the one after that waits, so as not to wait for them.
    m = tl.load(lists + lane, mask=share < listed, other=0).to(tl.int32)
    x, y, z, i = _four(waiting, m)
    m = tl.load(lists + lane + LANES, mask=share + SHARES < listed, other=0).to(tl.int32)
    for e in range(0, tl.max(listed, axis=0), SHARES):
        words = _words(gaussians, i.to(tl.int32, bitcast=True), WORDS)
        constant = words[2 * GAUSSIANS][None, None, None, :]
        slope = words[2 * GAUSSIANS + 1][None, None, None, :]
        limit = tl.where(e + share < listed, s_c, -1.0)[None, None, None, :]
        x = (x - corner_x)[None, None, None, :]
        y = (y - corner_y)[None, None, None, :]
        z = (z - corner_z)[None, None, None, :]
        dz = w * lzz - z
        if SKEWED:
            dy = v * lyy + (w * lyz - y)
            dx = u * lxx + (v * lxy + (w * lxz - x))
            s = dx * dx + (dy * dy + dz * dz)
            near = s < limit
            value = constant + slope * s
            for c in tl.static_range(GAUSSIANS):
                minus = -words[GAUSSIANS + c][None, None, None, :]
                value += words[c][None, None, None, :] * tl.exp2(minus * s)
        else:
            dy = v * lyy - y
            dx = u * lxx - x
            s_x = dx * dx
            s_y = dy * dy
            s_z = dz * dz
            near = s_x < limit - (s_y + s_z)
            value = slope * s_x + (constant + slope * (s_y + s_z))
            for c in tl.static_range(GAUSSIANS):
                minus = -words[GAUSSIANS + c][None, None, None, :]
                e_z = words[c][None, None, None, :] * tl.exp2(minus * s_z)
                value += tl.exp2(minus * s_x) * (tl.exp2(minus * s_y) * e_z)
        rho = tl.where(near, rho + value, rho)
        x, y, z, i = _four(waiting, m)
        ahead = e + 2 * SHARES
        m = tl.load(lists + ahead * BLOCKS + lane, mask=ahead + share < listed, other=0).to(tl.int32)
    return rho


@_kernel("n_atoms", *_SIZES)
def _splat(
    tiles,
    n_touched,
    start,
    in_tile,
    gaussians,
    geometry,
    cutoff,
    nx,
    ny,
    nz,
    waiting,
    lists,
    density,
    target,
    moments,
    total_weight,
    partial_sums,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    PERIODIC: tl.constexpr,
    MEASURE: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Write the density of every touched tile, and each program's part of the sums of the similarity.

    SHARES lanes share the atoms of a block of the tile, and add up what they have at the end. With a measure, the density is
    written tile by tile, else as a grid.
    """
    program = tl.program_id(0)
    waiting += program * (4 * WAITING)
    lists += program * (BLOCKS * (WAITING + 1))
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    orthogonal = (lxy == 0.0) & (lxz == 0.0) & (lyz == 0.0)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, radius = _box(
        TILE_X, TILE_Y, TILE_Z, lxx, lxy, lxz, lyy, lyz, lzz, cutoff, orthogonal
    )
    lane = tl.arange(0, LANES)
    block_x = lane % BLOCKS_X * BLOCK_X
    block_y = lane // BLOCKS_X % BLOCKS_Y * BLOCK_Y
    block_z = lane % BLOCKS // (BLOCKS_X * BLOCKS_Y) * BLOCK_Z
    corner_x = block_x * lxx + block_y * lxy + block_z * lxz
    corner_y = block_y * lyy + block_z * lyz
    corner_z = block_z * lzz
    candidate = lane[:, None] + LANES * tl.arange(0, CANDIDATES // LANES)[None, :]
    row_of_candidate = candidate // ATOMS_OF_ROW
    place_in_row = candidate % ATOMS_OF_ROW
    ROWS: tl.constexpr = CANDIDATES // ATOMS_OF_ROW

    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y
    tiles_z = (nz + TILE_Z - 1) // TILE_Z

    sum_0 = tl.zeros([], tl.float64)
    sum_1 = tl.zeros([], tl.float64)
    sum_2 = tl.zeros([], tl.float64)
    for turn in range(program, tl.load(n_touched), tl.num_programs(0)):
        tile = tl.load(tiles + turn)
        x0 = tile % tiles_x * TILE_X
        y0 = tile // tiles_x % tiles_y * TILE_Y
        z0 = tile // (tiles_x * tiles_y) * TILE_Z
        x1 = tl.minimum(x0 + TILE_X, nx) - 1
        y1 = tl.minimum(y0 + TILE_Y, ny) - 1
        z1 = tl.minimum(z0 + TILE_Z, nz) - 1
        low_x = x0 - tl.ceil(reach_x).to(tl.int32)
        high_x = x1 + tl.floor(reach_x).to(tl.int32)
        first_y, many_y = _tiles_in_reach(y0, y1, TILE_Y, reach_y, ny, tiles_y, PERIODIC)
        first_z, many_z = _tiles_in_reach(z0, z1, TILE_Z, reach_z, nz, tiles_z, PERIODIC)
        if PERIODIC:
            image_x = _floor_divide(low_x, nx)
            many_x = _floor_divide(high_x, nx) - image_x + 1
        else:
            image_x = 0
            many_x = 1
        rows = many_x * many_y * many_z

        rho = tl.zeros([BLOCK_Z, BLOCK_Y, BLOCK_X, LANES], tl.float32)
        n_waiting = 0
        for first_row in range(0, rows, ROWS):
            # A row of tiles along x is one stretch of the list, in every image of the cell that the tile sees.
            row = first_row + row_of_candidate
            if PERIODIC:
                shift_x = (image_x + row % many_x) * nx
                row_yz = row // many_x
            else:
                shift_x = 0
                row_yz = row
            ty = first_y + row_yz % many_y
            tz = first_z + row_yz // many_y
            away_y = -y0
            away_z = -z0
            if PERIODIC:
                image_y = _floor_divide(ty, tiles_y)
                image_z = _floor_divide(tz, tiles_z)
                ty -= image_y * tiles_y
                tz -= image_z * tiles_z
                away_y += image_y * ny
                away_z += image_z * nz
            away_x = shift_x - x0
            away_y += ty * TILE_Y
            away_z += tz * TILE_Z
            line = (tz * tiles_y + ty) * tiles_x
            first_x = _tile_along(low_x - shift_x, nx, TILE_X)
            last_x = _tile_along(high_x - shift_x, nx, TILE_X)
            begin = tl.load(start + line + first_x, mask=row < rows, other=0)
            length = tl.load(start + line + last_x + 1, mask=row < rows, other=0) - begin
            longest = tl.max(tl.max(length, axis=0), axis=0)
            for k in range(0, tl.maximum(longest, 1), ATOMS_OF_ROW):
                there = k + place_in_row < length
                i = tl.where(there, begin + k + place_in_row, 0)
                x, y, z, tile_x = _four(in_tile, i)
                near_x = (tile_x.to(tl.int32, bitcast=True) + away_x).to(tl.float32) + x
                near_y = away_y.to(tl.float32) + y
                near_z = away_z.to(tl.float32) + z
                near_x = near_x * lxx + near_y * lxy + near_z * lxz
                near_y = near_y * lyy + near_z * lyz
                near_z = near_z * lzz
                off_x = tl.maximum(tl.abs(near_x - middle_x) - half_x, 0.0)
                off_y = tl.maximum(tl.abs(near_y - middle_y) - half_y, 0.0)
                off_z = tl.maximum(tl.abs(near_z - middle_z) - half_z, 0.0)
                near = there & (off_x * off_x + off_y * off_y + off_z * off_z < radius * radius)
                of_lane = tl.sum(near.to(tl.int32), axis=1)
                before = n_waiting + tl.cumsum(of_lane, axis=0) - of_lane
                place = before[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
                _store_four(waiting, place, near_x, near_y, near_z, i.to(tl.float32, bitcast=True), near)
                n_waiting += tl.sum(of_lane, axis=0)
                done = (first_row + ROWS >= rows) & (k + ATOMS_OF_ROW >= longest)
                if done | (n_waiting > WAITING - CANDIDATES):
                    tl.debug_barrier()
                    _list_by_block(
                        waiting,
                        n_waiting,
                        lists,
                        corner_x,
                        corner_y,
                        corner_z,
                        lxx,
                        lxy,
                        lxz,
                        lyy,
                        lyz,
                        lzz,
                        cutoff,
                        orthogonal,
                    )
                    tl.debug_barrier()
                    if orthogonal:
                        rho = _add_listed(
                            rho,
                            waiting,
                            lists,
                            corner_x,
                            corner_y,
                            corner_z,
                            gaussians,
                            lxx,
                            lxy,
                            lxz,
                            lyy,
                            lyz,
                            lzz,
                            cutoff * cutoff,
                            GAUSSIANS,
                            WORDS,
                            False,
                        )
                    else:
                        rho = _add_listed(
                            rho,
                            waiting,
                            lists,
                            corner_x,
                            corner_y,
                            corner_z,
                            gaussians,
                            lxx,
                            lxy,
                            lxz,
                            lyy,
                            lyz,
                            lzz,
                            cutoff * cutoff,
                            GAUSSIANS,
                            WORDS,
                            True,
                        )
                    n_waiting = 0
                    tl.debug_barrier()

        total = tl.sum(tl.reshape(rho, [BLOCK_Z, BLOCK_Y, BLOCK_X, SHARES, BLOCKS]), axis=3)
        by_block = tl.reshape(total, [BLOCK_Z, BLOCK_Y, BLOCK_X, BLOCKS_Z, BLOCKS_Y, BLOCKS_X])
        total = tl.reshape(tl.permute(by_block, [3, 0, 4, 1, 5, 2]), [TILE])
        at, inside = _voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE, ALIGNED)
        if MEASURE == DENSITY_ONLY:
            tl.store(density + at, total, mask=inside)
        else:
            tl.store(density + _voxels_by_tile(tile, WIDE), total)
            t = tl.load(target + at, mask=inside, other=0.0)
            counts = inside & (t - t == 0.0)
            if MEASURE == RELATIVE_ENTROPY:
                counts = counts & (t > 0.0)
            t = tl.where(counts, t, 0.0)
            total = tl.where(counts, total, 0.0)
            if MEASURE == RELATIVE_ENTROPY:
                inverse_floor = (1.0 / (1e-3 / tl.load(moments + 3) * total_weight)).to(tl.float32)
                shifted = tl.maximum(total * inverse_floor + 1.0, 1e-6)
                sum_0 += tl.sum(t * tl.log(shifted)).to(tl.float64)
            else:
                sum_0 += tl.sum(total).to(tl.float64)
                sum_1 += tl.sum(total * total).to(tl.float64)
                sum_2 += tl.sum(total * t).to(tl.float64)
    if MEASURE != DENSITY_ONLY:
        tl.store(partial_sums + program, sum_0)
        tl.store(partial_sums + tl.num_programs(0) + program, sum_1)
        tl.store(partial_sums + 2 * tl.num_programs(0) + program, sum_2)


@triton.jit
def _voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE: tl.constexpr, ALIGNED: tl.constexpr):
    """Where in a grid the voxels of a tile are, in their order, and whether they are there."""
    i = tl.arange(0, TILE)
    x = x0 + i % TILE_X
    y = y0 + i // TILE_X % TILE_Y
    z = z0 + i // (TILE_X * TILE_Y)
    at = (z.to(tl.int64) * ny + y) * nx + x if WIDE else (z * ny + y) * nx + x
    if ALIGNED:
        at = tl.max_contiguous(tl.multiple_of(at, 4), 4)
    return at, (x < nx) & (y < ny) & (z < nz)


@triton.jit
def _voxels_by_tile(tile, WIDE: tl.constexpr):
    """Where the voxels of a tile are in an array that holds tile after tile."""
    return (tile.to(tl.int64) if WIDE else tile) * TILE + tl.arange(0, TILE)


@_kernel("n_programs")
def _compare(
    partial_sums,
    n_programs,
    moments,
    total_weight,
    similarity,
    coefficients,
    MEASURE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give S, and c of dS/d(density) = c0 + c1 density + c2 target; for the entropy c2 target / (density + c0), over t > 0."""
    i = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(partial_sums + i, mask=i < n_programs, other=0.0), axis=0)
    square = tl.sum(tl.load(partial_sums + n_programs + i, mask=i < n_programs, other=0.0), axis=0)
    product = tl.sum(tl.load(partial_sums + 2 * n_programs + i, mask=i < n_programs, other=0.0), axis=0)
    n = tl.load(moments)
    t_sum = tl.load(moments + 1)
    t_square = tl.load(moments + 2)
    zero = total * 0.0
    if MEASURE == INNER_PRODUCT:
        mean = t_sum / n
        c2 = 1.0 / (total_weight * tl.sqrt(t_square / n - mean * mean))
        value = c2 * product
        c1 = zero
        c0 = zero
    elif MEASURE == RELATIVE_ENTROPY:
        positive = tl.load(moments + 3)
        positive_sum = tl.load(moments + 4)
        positive_log = tl.load(moments + 5)
        value = (
            tl.log(positive_sum)
            + tl.log(1e-3 / positive)
            - positive_log / positive_sum
            + total / positive_sum
        )
        c2 = 1.0 / positive_sum
        c1 = zero
        c0 = 1e-3 / positive * total_weight
    else:
        if MEASURE == CROSS_CORRELATION:
            mean = zero
            t_mean = zero
        else:
            mean = total / n
            t_mean = t_sum / n
        variance = square - mean * total
        t_variance = t_square - t_mean * t_sum
        # Below this the density is uniform up to rounding, and a correlation has no meaning.
        meaningful = (variance > 1e-8 * square) & (t_variance > 0.0)
        variance = tl.where(meaningful, variance, 1.0)
        norm = tl.sqrt(variance * tl.where(meaningful, t_variance, 1.0))
        value = tl.where(meaningful, (product - mean * t_sum) / norm, 0.0)
        c2 = tl.where(meaningful, 1.0 / norm, 0.0)
        c1 = -value / variance
        c0 = -(t_mean * c2 + mean * c1)
        if MEASURE == LEAST_SQUARES:
            positive_part = tl.maximum(value, 0.0)
            c2 *= 2.0 * positive_part
            c1 *= 2.0 * positive_part
            c0 *= 2.0 * positive_part
            value = positive_part * positive_part
    tl.store(similarity, value)
    tl.store(coefficients, c0.to(tl.float32))
    tl.store(coefficients + 1, c1.to(tl.float32))
    tl.store(coefficients + 2, c2.to(tl.float32))


@_kernel(*_SIZES)
def _differentiate(
    tiles,
    n_touched,
    nx,
    ny,
    nz,
    density,
    target,
    coefficients,
    MEASURE: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Replace the density of every touched tile by dS/d(density), 0 where a voxel does not count or is not in the grid."""
    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y
    c0 = tl.load(coefficients)
    c1 = tl.load(coefficients + 1)
    c2 = tl.load(coefficients + 2)
    for turn in range(tl.program_id(0), tl.load(n_touched), tl.num_programs(0)):
        tile = tl.load(tiles + turn)
        x0 = tile % tiles_x * TILE_X
        y0 = tile // tiles_x % tiles_y * TILE_Y
        z0 = tile // (tiles_x * tiles_y) * TILE_Z
        at, inside = _voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE, ALIGNED)
        by_tile = _voxels_by_tile(tile, WIDE)
        t = tl.load(target + at, mask=inside, other=float("nan"))
        rho = tl.load(density + by_tile)
        counts = t - t == 0.0
        if MEASURE == RELATIVE_ENTROPY:
            counts = counts & (t > 0.0) & (rho + c0 > 1e-6 * c0)
            g = tl.where(counts, c2 * t / (rho + c0), 0.0)
        else:
            g = tl.where(counts, c2 * t + (c1 * rho + c0), 0.0)
        tl.store(density + by_tile, g)


@triton.jit
def _box_of_atom(v, f, reach, n, PERIODIC: tl.constexpr):
    """The first and last voxel that a sphere reaches along an axis; where it reaches none, the last is before the first."""
    first = v + tl.ceil(f - reach).to(tl.int32)
    last = v + tl.floor(f + reach).to(tl.int32)
    if not PERIODIC:
        first = tl.minimum(tl.maximum(first, 0), n - 1)
        last = tl.minimum(last, n - 1)
    return first, last


@triton.jit
def _in_layer(x, y, nx, ny, PERIODIC: tl.constexpr, WIDE: tl.constexpr):
    """Where voxels are in a layer of tiles, but for their z."""
    if PERIODIC:
        x -= _floor_divide(x, nx) * nx
        y -= _floor_divide(y, ny) * ny
    tile = y // TILE_Y * ((nx + TILE_X - 1) // TILE_X) + x // TILE_X
    return (tile.to(tl.int64) if WIDE else tile) * TILE + (y % TILE_Y * TILE_X + x % TILE_X)


@triton.jit
def _load_field(field, z, layer, in_layer, ALIGNED: tl.constexpr):
    """The voxels of a plane; `layer` is the number of voxels in a layer of tiles."""
    at = z // TILE_Z * layer + (z & (TILE_Z - 1)) * (TILE_X * TILE_Y)
    at = at[None, :] + in_layer
    if ALIGNED:
        at = tl.max_contiguous(tl.multiple_of(at, [4, 1]), [4, 1])
    return tl.load(field + at)


@triton.jit
def _planes(
    field,
    in_layer_0,
    in_layer_1,
    here_0,
    here_1,
    x,
    y,
    y_1,
    first_dz,
    between,
    lxz,
    lyz,
    lzz,
    z,
    last,
    planes,
    layer,
    nz,
    gaussians,
    i,
    slope,
    s_c,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    PERIODIC: tl.constexpr,
    ALIGNED: tl.constexpr,
    SKEWED: tl.constexpr,
):
    """For two rows of voxels, the sum of field times -rho'(s) over the planes of a box, and the sum of the sums so far.

    What depends on x and y alone is worked out once for all planes of an orthogonal grid.
    """
    alphas = ()
    factors_0 = ()
    factors_1 = ()
    for c in tl.static_range(GAUSSIANS):
        alpha = tl.load(gaussians + WORDS * i + GAUSSIANS + c)
        factor_0 = tl.full([1], 1.0, tl.float32)[None, :]
        if GAUSSIANS > 1:
            factor_0 = (tl.load(gaussians + WORDS * i + c) * alpha / LOG2_E)[None, :]
        alphas = alphas + (alpha,)  # noqa: RUF005
        factor_1 = factor_0
        if not SKEWED:
            along_x = factor_0 * tl.exp2(-alpha[None, :] * (x * x))
            factor_0 = tl.where(here_0, along_x * tl.exp2(-alpha[None, :] * (y * y)), 0.0)
            factor_1 = tl.where(here_1, along_x * tl.exp2(-alpha[None, :] * (y_1 * y_1)), 0.0)
        factors_0 = factors_0 + (factor_0,)  # noqa: RUF005
        factors_1 = factors_1 + (factor_1,)  # noqa: RUF005
    s_xy_0 = tl.where(here_0, x * x + y * y, float("inf"))
    s_xy_1 = tl.where(here_1, x * x + y_1 * y_1, float("inf"))
    limit_0 = tl.where(here_0, s_c, -1.0)
    limit_1 = tl.where(here_1, s_c, -1.0)
    plain_0 = x * 0.0
    plain_1 = x * 0.0
    before_0 = x * 0.0
    before_1 = x * 0.0
    for k in range(0, planes):
        g_0 = _load_field(field, z, layer, in_layer_0, ALIGNED)
        g_1 = _load_field(field, z, layer, in_layer_1, ALIGNED)
        z = tl.where(k < last, z + 1, z)
        if PERIODIC:
            z = tl.where(z == nz, 0, z)
        dz = first_dz + k
        s_z = dz * lzz * dz * lzz
        steepness_0 = x * 0.0 - slope
        steepness_1 = steepness_0
        if SKEWED:
            x_0 = x + (dz * lxz)[None, :]
            x_1 = x_0 + between
            y_z = (dz * lyz)[None, :]
            beyond = tl.where(k <= last, s_z, 2.0 * s_c)[None, :]
            s_0 = x_0 * x_0 + ((y + y_z) * (y + y_z) + beyond)
            s_1 = x_1 * x_1 + ((y_1 + y_z) * (y_1 + y_z) + beyond)
            for c in tl.static_range(GAUSSIANS):
                steepness_0 += factors_0[c] * tl.exp2(-alphas[c][None, :] * s_0)
                steepness_1 += factors_1[c] * tl.exp2(-alphas[c][None, :] * s_1)
            steepness_0 = tl.where(s_0 < limit_0, steepness_0, 0.0)
            steepness_1 = tl.where(s_1 < limit_1, steepness_1, 0.0)
        elif GAUSSIANS == 1:
            e_z = tl.where(k <= last, tl.exp2(-alphas[0] * s_z), 0.0)[None, :]
            steepness_0 = tl.maximum(steepness_0 + factors_0[0] * e_z, 0.0)
            steepness_1 = tl.maximum(steepness_1 + factors_1[0] * e_z, 0.0)
        else:
            for c in tl.static_range(GAUSSIANS):
                e_z = tl.exp2(-alphas[c] * s_z)[None, :]
                steepness_0 += factors_0[c] * e_z
                steepness_1 += factors_1[c] * e_z
            limit = tl.where(k <= last, s_c - s_z, -1.0)[None, :]
            steepness_0 = tl.where(s_xy_0 < limit, steepness_0, 0.0)
            steepness_1 = tl.where(s_xy_1 < limit, steepness_1, 0.0)
        plain_0 += g_0 * steepness_0
        plain_1 += g_1 * steepness_1
        before_0 += plain_0
        before_1 += plain_1
    return plain_0, plain_1, before_0, before_1


@_kernel("n_atoms", *_SIZES)
def _gather_forces(
    listed,
    n_listed,
    n_atoms,
    voxel,
    fraction,
    gaussians,
    atoms,
    geometry,
    cutoff,
    nx,
    ny,
    nz,
    field,
    gradient,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    PERIODIC: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
    TURNS: tl.constexpr,
):
    """Differentiate the sum of field times density with respect to the positions of some atoms that lie side by side.

    ATOMS at a time, TURNS times, a program goes through the planes of their boxes. Of RUNS lanes of an atom each sees a run of
    four voxels along x in the first half of a plane's rows, and one in the second; where runs begin at multiples of four
    (ALIGNED), each is one load. The field lies tile by tile.
    """
    n = tl.load(n_listed)
    first = tl.program_id(0) * (TURNS * ATOMS)
    if first >= n:
        return
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    orthogonal = (lxy == 0.0) & (lxz == 0.0) & (lyz == 0.0)
    s_c = cutoff * cutoff
    layer = ((nx + TILE_X - 1) // TILE_X) * ((ny + TILE_Y - 1) // TILE_Y)
    layer = (layer.to(tl.int64) if WIDE else layer) * TILE
    lane = tl.arange(0, LANES)
    for turn in range(TURNS):
        # Lanes without an atom, a run, a row or a plane of their own take another's, times 0: what they load is defined.
        i = tl.minimum(first + turn * ATOMS + lane // RUNS, n - 1)
        vx = tl.load(voxel + i)
        vy = tl.load(voxel + n_atoms + i)
        vz = tl.load(voxel + 2 * n_atoms + i)
        fx = tl.load(fraction + i)
        fy = tl.load(fraction + n_atoms + i)
        fz = tl.load(fraction + 2 * n_atoms + i)
        x0, x1 = _box_of_atom(vx, fx, reach_x, nx, PERIODIC)
        y0, y1 = _box_of_atom(vy, fy, reach_y, ny, PERIODIC)
        z0, z1 = _box_of_atom(vz, fz, reach_z, nz, PERIODIC)
        if ALIGNED:
            x0 = _floor_divide(x0, 4) * 4
        runs = tl.maximum(x1 - x0 + 4, 4) // 4
        half = (y1 - y0 + 2) // 2
        units = tl.where(x1 >= x0, runs * half, 0)
        planes = tl.max(tl.where(units > 0, z1 - z0 + 1, 0), axis=0)
        first_dz = (z0 - vz).to(tl.float32) - fz
        if GAUSSIANS == 1:
            # One Gaussian is above its value at the cut-off within it and nowhere else. What it is multiplied with can wait.
            alpha = tl.load(gaussians + WORDS * i + 1)
            scale = tl.load(gaussians + WORDS * i) * alpha / LOG2_E
            slope = tl.exp2(-alpha * s_c)[None, :]
        else:
            scale = tl.full([LANES], 1.0, tl.float32)
            slope = tl.load(gaussians + WORDS * i + 2 * GAUSSIANS + 1)[None, :]
        sum_x = tl.zeros([4, LANES], tl.float32)
        sum_y = tl.zeros([4, LANES], tl.float32)
        sum_z = tl.zeros([4, LANES], tl.float32)
        for begin in range(0, tl.max(units, axis=0), RUNS):
            unit = begin + lane % RUNS
            here = unit < units
            unit = tl.where(here, unit, 0)
            # The half makes the quotient right in spite of rounding, for any box up to 2^11 voxels wide.
            j = ((unit.to(tl.float32) + 0.5) / runs.to(tl.float32)).to(tl.int32)
            y = y0 + j
            x = (x0 + 4 * (unit - j * runs))[None, :] + tl.arange(0, 4)[:, None]
            here_0 = here[None, :] & (x <= x1[None, :])
            here_1 = here_0 & (y + half <= y1)[None, :]
            x_there = x if ALIGNED else tl.where(x <= x1[None, :], x, x0[None, :])
            y_there = tl.where(y + half <= y1, y + half, y)
            in_layer_0 = _in_layer(x_there, y[None, :], nx, ny, PERIODIC, WIDE)
            in_layer_1 = _in_layer(x_there, y_there[None, :], nx, ny, PERIODIC, WIDE)
            dx = (x - vx[None, :]).to(tl.float32) - fx[None, :]
            dy_0 = ((y - vy).to(tl.float32) - fy)[None, :]
            dy_1 = dy_0 + half.to(tl.float32)[None, :]
            z = z0
            if PERIODIC:
                z -= _floor_divide(z0, nz) * nz
            if orthogonal:
                plain_0, plain_1, before_0, before_1 = _planes(
                    field,
                    in_layer_0,
                    in_layer_1,
                    here_0,
                    here_1,
                    dx * lxx + dy_0 * lxy,
                    dy_0 * lyy,
                    dy_1 * lyy,
                    first_dz,
                    half.to(tl.float32)[None, :] * lxy,
                    lxz,
                    lyz,
                    lzz,
                    z,
                    z1 - z0,
                    planes,
                    layer,
                    nz,
                    gaussians,
                    i,
                    slope,
                    s_c,
                    GAUSSIANS,
                    WORDS,
                    PERIODIC,
                    ALIGNED,
                    False,
                )
            else:
                plain_0, plain_1, before_0, before_1 = _planes(
                    field,
                    in_layer_0,
                    in_layer_1,
                    here_0,
                    here_1,
                    dx * lxx + dy_0 * lxy,
                    dy_0 * lyy,
                    dy_1 * lyy,
                    first_dz,
                    half.to(tl.float32)[None, :] * lxy,
                    lxz,
                    lyz,
                    lzz,
                    z,
                    z1 - z0,
                    planes,
                    layer,
                    nz,
                    gaussians,
                    i,
                    slope,
                    s_c,
                    GAUSSIANS,
                    WORDS,
                    PERIODIC,
                    ALIGNED,
                    True,
                )
            plain = plain_0 + plain_1
            sum_x += plain * dx
            sum_y += plain_0 * dy_0 + plain_1 * dy_1
            sum_z += plain * (first_dz + planes)[None, :] - (before_0 + before_1)
        x_of_atom = tl.sum(tl.reshape(tl.sum(sum_x, axis=0) * scale, [ATOMS, RUNS]), axis=1)
        y_of_atom = tl.sum(tl.reshape(tl.sum(sum_y, axis=0) * scale, [ATOMS, RUNS]), axis=1)
        z_of_atom = tl.sum(tl.reshape(tl.sum(sum_z, axis=0) * scale, [ATOMS, RUNS]), axis=1)
        i = first + turn * ATOMS + tl.arange(0, ATOMS)
        particle = tl.load(atoms + tl.load(listed + i, mask=i < n, other=0), mask=i < n, other=0)
        _store_gradient(gradient + 3 * particle, geometry, x_of_atom, y_of_atom, z_of_atom, i < n)


@triton.jit
def _store_gradient(gradient, geometry, x, y, z, mask=None):
    """d(density)/dx = -2 rho'(s) (voxel - atom): from voxels to space."""
    for axis in tl.static_range(3):
        of_x = tl.load(geometry + 9 + 3 * axis)
        of_y = tl.load(geometry + 10 + 3 * axis)
        of_z = tl.load(geometry + 11 + 3 * axis)
        tl.store(gradient + axis, 2.0 * (of_x * x + of_y * y + of_z * z), mask=mask)


@_kernel("n_atoms", *_SIZES)
def _gather_all(
    positions,
    n_atoms,
    inverse,
    origin,
    amplitudes,
    exponents,
    geometry,
    cutoff,
    nx,
    ny,
    nz,
    field,
    by_position,
    by_amplitude,
    by_exponent,
    GAUSSIANS: tl.constexpr,
    PERIODIC: tl.constexpr,
    WIDE: tl.constexpr,
    RUNS: tl.constexpr,
):
    """Differentiate the sum of field times density with respect to all that an atom has, one Gaussian after the other."""
    atom = tl.program_id(0)
    reaches, vx, vy, vz, fx, fy, fz = _located(
        positions, positions, atom, n_atoms, n_atoms, inverse, geometry, origin, nx, ny, nz, False, PERIODIC
    )
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    s_c = cutoff * cutoff
    x0, x1 = _box_of_atom(vx, fx, reach_x, nx, PERIODIC)
    y0, y1 = _box_of_atom(vy, fy, reach_y, ny, PERIODIC)
    z0, z1 = _box_of_atom(vz, fz, reach_z, nz, PERIODIC)
    runs = tl.maximum(x1 - x0 + 4, 4) // 4
    units = tl.where((x1 >= x0) & reaches, runs * (y1 - y0 + 1), 0)
    sum_x = tl.zeros([4, RUNS], tl.float32)
    sum_y = tl.zeros([4, RUNS], tl.float32)
    sum_z = tl.zeros([4, RUNS], tl.float32)
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c)
        alpha = tl.load(exponents + atom * GAUSSIANS + c)
        edge = tl.exp(-alpha * s_c)
        sum_a = tl.zeros([4, RUNS], tl.float32)
        sum_alpha = tl.zeros([4, RUNS], tl.float32)
        for begin in range(0, units, RUNS):
            unit = begin + tl.arange(0, RUNS)
            # As in the gather of forces.
            j = ((unit.to(tl.float32) + 0.5) / runs.to(tl.float32)).to(tl.int32)
            y = y0 + j
            x = (x0 + 4 * (unit - j * runs))[None, :] + tl.arange(0, 4)[:, None]
            there = (unit < units)[None, :] & (x <= x1)
            in_plane = y[None, :] * nx + x
            if PERIODIC:
                in_plane = (y - _floor_divide(y, ny) * ny)[None, :] * nx + x - _floor_divide(x, nx) * nx
            dx = (x - vx).to(tl.float32) - fx
            dy = ((y - vy).to(tl.float32) - fy)[None, :]
            along_x = dx * lxx + dy * lxy
            along_y = dy * lyy
            limit = tl.where(there, s_c, -1.0)
            for z in range(z0, z1 + 1):
                dz = (z - vz).to(tl.float32) - fz
                away_x = along_x + dz * lxz
                away_y = along_y + dz * lyz
                away_z = dz * lzz
                s = away_x * away_x + (away_y * away_y + away_z * away_z)
                near = s < limit
                plane = z
                if PERIODIC:
                    plane -= _floor_divide(z, nz) * nz
                at = plane.to(tl.int64) * ny * nx + in_plane if WIDE else plane * (ny * nx) + in_plane
                g = tl.load(field + at, mask=near, other=0.0)
                e = tl.exp(-alpha * s)
                # d/dA and d/dalpha of A (exp(-alpha s) - exp(-alpha s_c) + alpha exp(-alpha s_c) (s - s_c)).
                sum_a += g * (e - edge + alpha * edge * (s - s_c))
                sum_alpha += g * (s * (edge - e) - alpha * s_c * edge * (s - s_c))
                w = g * (a * alpha) * (e - edge)
                sum_x += w * dx
                sum_y += w * dy
                sum_z += w * dz
        tl.store(by_amplitude + atom * GAUSSIANS + c, tl.sum(sum_a))
        tl.store(by_exponent + atom * GAUSSIANS + c, a * tl.sum(sum_alpha))
    row = by_position + 3 * atom.to(tl.int64)
    _store_gradient(row, geometry, tl.sum(sum_x), tl.sum(sum_y), tl.sum(sum_z))


class _Listed(NamedTuple):
    """The atoms in the order of their tiles."""

    start: Tensor
    atoms: Tensor
    voxel: Tensor
    fraction: Tensor
    gaussians: Tensor


class _Splat(NamedTuple):
    """What a splat leaves beside the density: the listed atoms, the touched tiles and the sums."""

    listed: _Listed
    tiles: Tensor
    n_touched: Tensor
    partial_sums: Tensor


class _Model:
    """What the operators have in common: checked arguments, and the launches that place and list the atoms."""

    def __init__(
        self,
        positions: Tensor,
        atoms: Tensor | None,
        amplitudes: Tensor,
        exponents: Tensor,
        cutoff: float,
        matrix: Tensor,
        origin: Tensor,
        shape: list[int],
        periodic: bool,
    ) -> None:
        self.n_atoms = positions.shape[0] if atoms is None else atoms.shape[0]
        if (
            positions.dim() != 2
            or positions.shape[1] != 3
            or positions.dtype not in (torch.float32, torch.float64)
        ):
            raise ValueError(
                f"positions must be float32 or float64 of shape (N, 3), not {_describe(positions)}"
            )
        for name, table in (("amplitudes", amplitudes), ("exponents", exponents)):
            if table.dtype != torch.float32 or table.dim() != 2 or table.shape[0] != self.n_atoms:
                raise ValueError(
                    f"{name} must be float32 of shape ({self.n_atoms}, C), not {_describe(table)}"
                )
        if amplitudes.shape != exponents.shape or not 1 <= amplitudes.shape[1] <= MAX_GAUSSIANS:
            raise ValueError(
                f"between 1 and {MAX_GAUSSIANS} Gaussians per atom, as many amplitudes as exponents, "
                f"not {amplitudes.shape[1]} and {exponents.shape[1]}"
            )
        if not (math.isfinite(cutoff) and cutoff > 0):
            raise ValueError(f"cutoff must be positive, not {cutoff}")
        if matrix.shape != (3, 3) or matrix.dtype != torch.float64:
            raise ValueError(f"matrix must be float64 of shape (3, 3), not {_describe(matrix)}")
        if origin.shape != (3,) or origin.dtype != torch.float64:
            raise ValueError(f"origin must be float64 of shape (3,), not {_describe(origin)}")
        if len(shape) != 3 or not all(0 < n < 1 << 30 for n in shape):
            raise ValueError(f"a grid has three sizes (nz, ny, nx) from 1 to 2^30, not {list(shape)}")
        self.positions, self.atoms = positions.detach().contiguous(), atoms
        self.amplitudes, self.exponents = amplitudes.detach().contiguous(), exponents.detach().contiguous()
        self.gaussians = amplitudes.shape[1]
        self.cutoff, self.matrix, self.origin = cutoff, matrix.contiguous(), origin.contiguous()
        self.shape, self.size, self.periodic = list(shape), tuple(reversed(shape)), periodic
        self.n_tiles = math.prod(
            triton.cdiv(n, tile.value) for n, tile in zip(self.size, (TILE_X, TILE_Y, TILE_Z))
        )
        self.wide = self.n_tiles * TILE.value > 2**31 - 1
        self.aligned = shape[2] % 4 == 0
        self.words = 4 * triton.cdiv(2 * self.gaussians + 2, 4)
        self.inverse = self.empty(9, dtype=torch.float64)
        self.geometry = self.empty(18)
        self.configuration = _default_configuration(self.n_atoms, self.gaussians)

    def empty(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self.positions.device)

    def begin(
        self, count: Tensor | None = None, touched: Tensor | None = None, gradient: Tensor | None = None
    ) -> None:
        """Work out what the grid means, and clear counts, marks and gradient."""
        n_tiles = 0 if count is None else self.n_tiles
        n_gradient = 0 if gradient is None else gradient.numel()
        blocks = triton.cdiv(max(n_tiles, n_gradient), SCAN_BLOCK.value)
        _begin[(max(1, min(blocks, CLEARING_PROGRAMS)),)](
            self.matrix,
            self.cutoff,
            self.inverse,
            self.geometry,
            self.inverse if count is None else count,
            self.inverse if touched is None else touched,
            n_tiles,
            self.inverse if gradient is None else gradient,
            n_gradient,
            BLOCK=SCAN_BLOCK.value,
        )

    def where(self) -> tuple[Any, ...]:
        """Give the arguments that say where atoms are, and in what."""
        atoms = self.geometry if self.atoms is None else self.atoms
        n = self.n_atoms, self.positions.shape[0]
        return (self.positions, atoms, *n, self.inverse, self.geometry, self.origin, *self.size)

    def splat(
        self,
        density: Tensor,
        target: Tensor | None = None,
        moments: Tensor | None = None,
        total_weight: float = 1.0,
        measure: int = -1,
        gradient: Tensor | None = None,
    ) -> _Splat:
        """Write the density of all tiles that atoms touch; with a target, also the sums of a measure. Clear the gradient."""
        n, n_tiles = self.n_atoms, self.n_tiles
        count = self.empty(n_tiles, dtype=torch.int32)
        touched = self.empty(n_tiles, dtype=torch.int32)
        self.begin(count, touched, gradient)
        blocks = triton.cdiv(n_tiles, SCAN_BLOCK.value)
        totals = self.empty(2 * blocks, dtype=torch.int32)
        start = self.empty(n_tiles + 1, dtype=torch.int32)
        tiles = self.empty(n_tiles, dtype=torch.int32)
        n_touched = self.empty(1, dtype=torch.int32)
        tile_of = self.empty(n, dtype=torch.int32)
        arrival = self.empty(n, dtype=torch.int32)
        by_atom = (triton.cdiv(n, PLACE_BLOCK),)
        selection = {"SELECTED": self.atoms is not None, "PERIODIC": self.periodic}
        if n:
            _place[by_atom](
                *self.where(),
                tile_of,
                arrival,
                count,
                **selection,
                BLOCK=PLACE_BLOCK,
                num_warps=PLACE_BLOCK // 32,
            )
        _mark[(triton.cdiv(n_tiles, MARK_BLOCK),)](
            count, touched, n_tiles, self.geometry, *self.size, PERIODIC=self.periodic, BLOCK=MARK_BLOCK
        )
        _add_blocks[(blocks,)](count, touched, n_tiles, totals, blocks)
        _scan[(blocks,)](count, touched, n_tiles, totals, blocks, start, tiles, n_touched)
        listed = _Listed(
            start,
            self.empty(n, dtype=torch.int32),
            self.empty(3 * n, dtype=torch.int32),
            self.empty(3 * n),
            self.empty(self.words * n),
        )
        in_tile = self.empty(4 * n)
        if n:
            unsorted = self.empty(n, dtype=torch.int32)
            _fill[by_atom](
                tile_of, arrival, n, start, unsorted, BLOCK=PLACE_BLOCK, num_warps=PLACE_BLOCK // 32
            )
            _arrange[by_atom](
                *self.where(),
                tile_of,
                start,
                start[-1:],
                unsorted,
                self.amplitudes,
                self.exponents,
                self.cutoff,
                listed.atoms,
                listed.voxel,
                listed.fraction,
                in_tile,
                listed.gaussians,
                GAUSSIANS=self.gaussians,
                WORDS=self.words,
                **selection,
                BLOCK=PLACE_BLOCK,
                num_warps=PLACE_BLOCK // 32,
            )
        programs = min(n_tiles, SPLAT_PROGRAMS)
        waiting = WAITING.value * programs
        partial_sums = self.empty(3, programs, dtype=torch.float64)
        _splat[(programs,)](
            tiles,
            n_touched,
            start,
            in_tile,
            listed.gaussians,
            self.geometry,
            self.cutoff,
            *self.size,
            self.empty(4 * waiting),
            self.empty(BLOCKS.value * (WAITING.value + 1) * programs, dtype=torch.int16),
            density,
            density if target is None else target,
            partial_sums if moments is None else moments,
            total_weight,
            partial_sums,
            GAUSSIANS=self.gaussians,
            WORDS=self.words,
            PERIODIC=self.periodic,
            MEASURE=measure,
            WIDE=self.wide,
            ALIGNED=self.aligned,
            num_warps=1,
            maxnreg=self.configuration.splat_registers,
        )
        return _Splat(listed, tiles, n_touched, partial_sums)


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _on(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Launch where the tensor is: Triton takes torch's current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def density_splat(
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    shape: list[int],
    periodic: bool = False,
) -> Tensor:
    """Give what `openmm_density.kernels.density.density_splat` gives, with the same arguments."""
    model = _Model(positions, None, amplitudes, exponents, cutoff, matrix, origin, shape, periodic)
    with _on(positions):
        density = torch.zeros(model.shape, dtype=torch.float32, device=positions.device)
        model.splat(density)
    return density


def density_gather(
    gradient: Tensor,
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool = False,
    parameters: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give what `openmm_density.kernels.density.density_gather` gives, with the same arguments."""
    model = _Model(
        positions, None, amplitudes, exponents, cutoff, matrix, origin, list(gradient.shape), periodic
    )
    if gradient.dtype != torch.float32:
        raise ValueError(f"gradient must be float32, not {_describe(gradient)}")
    derivatives = (
        torch.empty_like(model.positions),
        torch.empty_like(model.amplitudes),
        torch.empty_like(model.exponents),
    )
    with _on(positions):
        model.begin()
        if model.n_atoms:
            _gather_all[(model.n_atoms,)](
                model.positions,
                model.n_atoms,
                model.inverse,
                model.origin,
                model.amplitudes,
                model.exponents,
                model.geometry,
                model.cutoff,
                *model.size,
                gradient.detach().contiguous(),
                *derivatives,
                GAUSSIANS=model.gaussians,
                PERIODIC=periodic,
                WIDE=model.wide,
                RUNS=32,
                num_warps=1,
            )
    if not parameters:
        return (
            derivatives[0],
            model.amplitudes.new_empty(model.n_atoms, 0),
            model.exponents.new_empty(model.n_atoms, 0),
        )
    return derivatives


def density_similarity(
    positions: Tensor,
    atoms: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    target: Tensor,
    moments: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    measure: int,
    total_weight: float,
) -> tuple[Tensor, Tensor]:
    """Give what `openmm_density.kernels.density.density_similarity` gives, with the same arguments.

    Indices in `atoms` that are not among the positions count as atoms out of reach: to raise an error would be to wait for the
    GPU.
    """
    if target.dtype != torch.float32 or not target.is_contiguous():
        raise ValueError(f"target must be contiguous float32, not {_describe(target)}")
    if moments.dtype != torch.float64 or moments.numel() != 6 or not moments.is_contiguous():
        raise ValueError("moments must be those of target_moments")
    if atoms.dtype != torch.int64 or atoms.dim() != 1:
        raise ValueError(f"atoms must be int64 of shape (M,), not {_describe(atoms)}")
    if not CROSS_CORRELATION.value <= measure <= LEAST_SQUARES.value:
        raise ValueError(f"there is no measure {measure}")
    model = _Model(
        positions,
        atoms.contiguous(),
        amplitudes,
        exponents,
        cutoff,
        matrix,
        origin,
        list(target.shape),
        periodic,
    )

    def evaluate(configuration: Configuration) -> tuple[Tensor, Tensor]:
        model.configuration = configuration
        return _evaluate(model, target, moments, measure, total_weight)

    with _on(positions):
        if positions.is_cuda:
            problem = (
                model.gaussians,
                model.n_atoms.bit_length(),
                target.numel().bit_length(),
                int(periodic),
            )
            chosen = tuning.choose("density_similarity", problem, model.configuration, _CANDIDATES, evaluate)
            return evaluate(chosen)
        return evaluate(model.configuration)


def _evaluate(
    model: _Model, target: Tensor, moments: Tensor, measure: int, total_weight: float
) -> tuple[Tensor, Tensor]:
    # Tile by tile, and not filled: what is read of it has been written by the tiles.
    density = model.empty(model.n_tiles * TILE.value)
    gradient = torch.empty_like(model.positions)
    splat = model.splat(density, target, moments, total_weight, measure, gradient)
    similarity = model.empty(dtype=torch.float64)
    coefficients = model.empty(3)
    programs = splat.partial_sums.shape[1]
    _compare[(1,)](
        splat.partial_sums,
        programs,
        moments,
        total_weight,
        similarity,
        coefficients,
        MEASURE=measure,
        BLOCK=SPLAT_PROGRAMS,
        num_warps=16,
    )
    if model.n_atoms:
        _differentiate[(programs,)](
            splat.tiles,
            splat.n_touched,
            *model.size,
            density,
            target,
            coefficients,
            MEASURE=measure,
            WIDE=model.wide,
            ALIGNED=model.aligned,
            num_warps=1,
        )
        listed, chosen = splat.listed, model.configuration
        _gather_forces[(triton.cdiv(model.n_atoms, ATOMS.value * chosen.gather_turns),)](
            listed.atoms,
            listed.start[-1:],
            model.n_atoms,
            listed.voxel,
            listed.fraction,
            listed.gaussians,
            model.atoms,
            model.geometry,
            model.cutoff,
            *model.size,
            density,
            gradient,
            GAUSSIANS=model.gaussians,
            WORDS=model.words,
            PERIODIC=model.periodic,
            WIDE=model.wide,
            ALIGNED=model.aligned or not model.periodic,
            TURNS=chosen.gather_turns,
            num_warps=1,
            maxnreg=chosen.gather_registers,
        )
    return similarity, gradient
