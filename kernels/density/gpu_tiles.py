"""The GPU's tiles: 8x8x4 voxels to a tile, which tiles atoms touch, and where the voxels of a tile are.

Tiles are numbered as voxels are, x fastest. Between the kernels of one evaluation the density lies tile by tile, so that what is
near in space is near in memory; there tiles are in storage order: those above each other along z follow each other, so that for
the gather each plane of a box is as far from the next.
"""

# No annotations from __future__: Triton reads those of its kernels.
from typing import Any

import triton
import triton.language as tl

from .gpu_geometry import reach_of_sphere, store_geometry

TILE_X, TILE_Y, TILE_Z = tl.constexpr(8), tl.constexpr(8), tl.constexpr(4)
TILE = tl.constexpr(256)
# Voxels of a tile's plane of equal z.
PLANE = tl.constexpr(64)
SCAN_BLOCK = tl.constexpr(1024)
MARK_BLOCK = 128
# Slots of an entry of `tiles`: the tile in storage order, and its first voxel.
TILE_STORED, TILE_FIRST_X, TILE_FIRST_Y, TILE_FIRST_Z = (tl.constexpr(slot) for slot in range(4))
# A word of `totals`: that it is published, the touched tiles of a block, and its atoms.
PUBLISHED, TOUCHED_SHIFT, ATOMS_MASK = tl.constexpr(1 << 62), tl.constexpr(31), tl.constexpr((1 << 31) - 1)
# Words that are read at once.
TOTALS = tl.constexpr(128)


def kernel(*sizes: str) -> Any:
    """Compile a kernel once, and not again for a size that happens to be 1 or a multiple of 16."""
    return triton.jit(do_not_specialize=list(sizes))


SIZES = ("nx", "ny", "nz")


@kernel("n_tiles", "n_totals", "n_gradient")
def begin(
    matrix,
    cutoff,
    inverse,
    geometry,
    count,
    touched,
    n_tiles,
    totals,
    n_totals,
    gradient,
    n_gradient,
    BLOCK: tl.constexpr,
):
    """Fill `inverse` and `geometry` by the first program (`gpu_geometry`); by the others clear all that is summed into.

    Launch grid: ``(1 + clearing programs,)``, any number of them.

    ==============  =================  ==========  ==================================================
    argument        shape              dtype       what it is
    ==============  =================  ==========  ==================================================
    matrix          (3, 3)             float64     M, whose columns are the steps from voxel to voxel
    cutoff          scalar             float32
    inverse         (9,)               float64     out
    geometry        (GEOMETRY_SLOTS,)  float32     out
    count, touched  (n_tiles,)         int32       out, 0
    n_tiles         scalar             int32
    totals          (n_totals,)        int64       out, 0
    n_totals        scalar             int32
    gradient        (n_gradient,)      float32/64  out, 0
    n_gradient      scalar             int32
    BLOCK           constant                       numbers that a program clears at once
    ==============  =================  ==========  ==================================================
    """
    if tl.program_id(0) == 0:
        store_geometry(matrix, cutoff, inverse, geometry)
    else:
        first = (tl.program_id(0) - 1) * BLOCK
        step = (tl.num_programs(0) - 1) * BLOCK
        for i in range(first, n_tiles, step):
            tile = i + tl.arange(0, BLOCK)
            tl.store(count + tile, tl.zeros([BLOCK], tl.int32), mask=tile < n_tiles)
            tl.store(touched + tile, tl.zeros([BLOCK], tl.int32), mask=tile < n_tiles)
        for i in range(first, n_totals, step):
            entry = i + tl.arange(0, BLOCK)
            tl.store(totals + entry, tl.zeros([BLOCK], tl.int64), mask=entry < n_totals)
        for i in range(first, n_gradient, step):
            entry = i + tl.arange(0, BLOCK)
            zero = tl.zeros([BLOCK], gradient.dtype.element_ty)
            tl.store(gradient + entry, zero, mask=entry < n_gradient)


@triton.jit
def tiles_of_grid(nx, ny, nz):
    """Return how many tiles a grid has along each axis."""
    return (nx + TILE_X - 1) // TILE_X, (ny + TILE_Y - 1) // TILE_Y, (nz + TILE_Z - 1) // TILE_Z


@triton.jit
def floor_divide(i, n):
    """Return the quotient rounded down, of negative numbers too; n is positive."""
    quotient = i // n
    return quotient - (i - quotient * n < 0).to(tl.int32)


@triton.jit
def tile_along(v, n, SIZE: tl.constexpr):
    """Return the tile of a voxel along an axis, or of the one nearest to it in the grid."""
    return tl.minimum(tl.maximum(v, 0), n - 1) // SIZE


@triton.jit
def tile_through_images(i, n, size, count, PERIODIC: tl.constexpr):
    """Return the tile of voxel i along an axis of n voxels and `count` tiles of `size`, counted on through periodic images."""
    if PERIODIC:
        image = floor_divide(i, n)
        return image * count + (i - image * n) // size
    else:
        return tl.minimum(tl.maximum(i, 0), n - 1) // size


@triton.jit
def voxels_by_tile(tile, WIDE: tl.constexpr):
    """Return the indices of a tile's voxels in an array that holds tile after tile, in storage order."""
    return (tile.to(tl.int64) if WIDE else tile) * TILE + tl.arange(0, TILE)


@triton.jit
def voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE: tl.constexpr, ALIGNED: tl.constexpr):
    """Return the indices of a tile's voxels in a grid, in the tile's order, and whether the grid has them."""
    i = tl.arange(0, TILE)
    x = x0 + i % TILE_X
    y = y0 + i // TILE_X % TILE_Y
    z = z0 + i // (TILE_X * TILE_Y)
    at = (z.to(tl.int64) * ny + y) * nx + x if WIDE else (z * ny + y) * nx + x
    inside = (x < nx) & (y < ny) & (z < nz)
    if ALIGNED:
        # Else every voxel is loaded on its own, for the compiler cannot know that the grid ends at a multiple of four.
        at = tl.max_contiguous(tl.multiple_of(at, 4), 4)
        inside = tl.max_constancy(inside, 4)
    return at, inside


@triton.jit
def touched_tile(tiles, entry):
    """Return a touched tile, in storage order, and its first voxel."""
    tiles += 4 * entry
    return (
        tl.load(tiles + TILE_STORED),
        tl.load(tiles + TILE_FIRST_X),
        tl.load(tiles + TILE_FIRST_Y),
        tl.load(tiles + TILE_FIRST_Z),
    )


@kernel("n_tiles", *SIZES)
def mark(count, touched, n_tiles, geometry, nx, ny, nz, PERIODIC: tl.constexpr, BLOCK: tl.constexpr):
    """Mark the tiles that the box around an atom may touch, wherever in its tile the atom is.

    Launch grid: ``(cdiv(n_tiles, BLOCK),)``: a lane to a tile.

    ===============  =================  =======  ============================
    argument         shape              dtype    what it is
    ===============  =================  =======  ============================
    count            (n_tiles,)         int32    atoms in each tile
    touched          (n_tiles,)         int32    out: 1 where atoms may reach
    n_tiles          scalar             int32
    geometry         (GEOMETRY_SLOTS,)  float32
    nx, ny, nz       scalar             int32    voxels of the grid
    PERIODIC, BLOCK  constant
    ===============  =================  =======  ============================
    """
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    populated = tl.load(count + tile, mask=tile < n_tiles, other=0) > 0
    if tl.max(populated.to(tl.int32), axis=0) > 0:
        tiles_x, tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)
        reach_x, reach_y, reach_z = reach_of_sphere(geometry)
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
    """Return the first of the tiles along an axis that atoms of a tile reach, counted on through the images, and how many."""
    low = tile * SIZE - tl.floor(reach).to(tl.int32)
    high = tl.minimum(tile * SIZE + SIZE, n) + tl.floor(reach).to(tl.int32)
    first = tile_through_images(low, n, SIZE, tiles, PERIODIC)
    many = tile_through_images(high, n, SIZE, tiles, PERIODIC) - first + 1
    # Once around the cell is enough.
    return first, tl.where(there, tl.minimum(many, tiles), 0)


@triton.jit
def _wrapped(i, n, PERIODIC: tl.constexpr):
    if PERIODIC:
        i -= floor_divide(i, n) * n
    return i


@kernel("n_tiles", *SIZES)
def scan(count, touched, n_tiles, nx, ny, nz, totals, start, tiles, n_touched):
    """Turn counts into where each tile's atoms start, and marks into the list of touched tiles.

    A program publishes what its block holds and adds what those before it have published, in one word that is never 0. It waits
    only for programs that were started before it.

    Launch grid: ``(cdiv(n_tiles, SCAN_BLOCK),)``: a lane to a tile.

    ==============  ==============  =====  ====================================================================
    argument        shape           dtype  what it is
    ==============  ==============  =====  ====================================================================
    count, touched  (n_tiles,)      int32  atoms in each tile, and its mark
    n_tiles         scalar          int32
    nx, ny, nz      scalar          int32  voxels of the grid
    totals          (programs,)     int64  0 before; what each program published
    start           (n_tiles + 1,)  int32  out: tile t has the listed atoms from start[t] up to start[t + 1]
    tiles           (n_tiles, 4)    int32  out: each touched tile in storage order, and its first voxel x, y, z
    n_touched       (1,)            int32  out: how many of its entries are filled
    ==============  ==============  =====  ====================================================================
    """
    block = tl.program_id(0)
    i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
    atoms = tl.load(count + i, mask=i < n_tiles, other=0)
    marks = tl.load(touched + i, mask=i < n_tiles, other=0)
    n_atoms = tl.sum(atoms, axis=0).to(tl.int64)
    n_marks = tl.sum(marks, axis=0).to(tl.int64)
    tl.atomic_xchg(totals + block, (n_marks << TOUCHED_SHIFT) | n_atoms | PUBLISHED, sem="relaxed")
    sum_before = tl.zeros([TOTALS], tl.int64)
    for begin_at in range(0, block, TOTALS):
        other = begin_at + tl.arange(0, TOTALS)
        word = tl.load(totals + other, mask=other < block, other=PUBLISHED, volatile=True)
        while tl.min(word, axis=0) == 0:
            word = tl.load(totals + other, mask=other < block, other=PUBLISHED, volatile=True)
        sum_before += word & (PUBLISHED - 1)
    before = tl.sum(sum_before, axis=0)
    marks_before = (before >> TOUCHED_SHIFT).to(tl.int32)
    atoms_before = (before & ATOMS_MASK).to(tl.int32)
    tl.store(start + 1 + i, atoms_before + tl.cumsum(atoms, axis=0), mask=i < n_tiles)
    tl.store(start + i, 0, mask=i == 0)
    entry = 4 * (marks_before + tl.cumsum(marks, axis=0) - 1)
    marked = (i < n_tiles) & (marks != 0)
    tiles_x, tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)
    layer = tiles_x * tiles_y
    tl.store(tiles + entry + TILE_STORED, i % layer * tiles_z + i // layer, mask=marked)
    tl.store(tiles + entry + TILE_FIRST_X, i % tiles_x * TILE_X, mask=marked)
    tl.store(tiles + entry + TILE_FIRST_Y, i // tiles_x % tiles_y * TILE_Y, mask=marked)
    tl.store(tiles + entry + TILE_FIRST_Z, i // layer * TILE_Z, mask=marked)
    if block == tl.num_programs(0) - 1:
        tl.store(n_touched, marks_before + n_marks.to(tl.int32))
