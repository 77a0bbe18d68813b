"""Density, its gradients and its similarity to a target on the GPU.

Every atom goes into the cell of 8x8x8 voxels where it lies: counted, scanned and filled by small kernels, in the order of the
atoms, so that every sum below has one order and the same input gives the same bits. A program then owns a tile of 16x8x8
voxels, and each of its threads a block of 4x4x2 in registers. It collects the atoms that reach the tile from the cells around
it, lists for every thread those that reach its block, and lets all threads walk their lists side by side. The density is
written once, with the tile's part of the similarity's sums; tiles that no atom reaches are neither written nor read. Once the
sums are known it is replaced by dS/d(density), from which a program for every few atoms gathers their forces.

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

CELL = tl.constexpr(8)
TILE_X, TILE_Y, TILE_Z = tl.constexpr(16), tl.constexpr(8), tl.constexpr(8)
# Voxels of a thread and threads of a tile, along x, y, z.
BLOCK_X, BLOCK_Y, BLOCK_Z = tl.constexpr(4), tl.constexpr(4), tl.constexpr(2)
THREADS_X, THREADS_Y = tl.constexpr(4), tl.constexpr(2)
THREADS = tl.constexpr(32)
# A step of the search looks at this many rows of cells, and so many atoms of each.
ROWS, ATOMS_OF_ROW = tl.constexpr(16), tl.constexpr(8)
# Atoms that wait for their turn in a tile; they are turned to when another step of the search might not fit.
WAITING = tl.constexpr(512)
SCAN_BLOCK = tl.constexpr(1024)
PLACE_BLOCK = 128
# Programs that share the tiles: a constant, because it decides the order in which the sums are added.
SPLAT_PROGRAMS = 4096


CROSS_CORRELATION, ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES = (
    tl.constexpr(measure) for measure in range(5)
)
DENSITY_ONLY = tl.constexpr(-1)
LOG2_E = tl.constexpr(1.4426950408889634)
MAX_GAUSSIANS = 5


class Configuration(NamedTuple):
    """How the two large kernels are launched; what shares the atoms decides the order of sums, and so their last bits.

    Attributes
    ----------
    splat_registers : int or None
        At most so many registers for a thread of the splat; None leaves it to the compiler.
    splat_shares : int
        Warps of a tile, which share its atoms: many where there are too few tiles to fill the GPU.
    gather_runs, gather_warps : int
        Runs of four voxels of a plane that a program of the gather looks at together, and the warps that share them.
    gather_atoms : int
        Atoms that it goes through one after the other.
    """

    splat_registers: int | None = 128
    splat_shares: int = 1
    gather_runs: int = 32
    gather_warps: int = 1
    gather_atoms: int = 4


_CANDIDATES = tuple(
    Configuration(registers, shares, 32, 1, atoms)
    for registers in (128, 168)
    for shares in (1, 2, 4)
    for atoms in (2, 4)
)


def _default_configuration(n_atoms: int) -> Configuration:
    """Give what was fastest on an H200."""
    return Configuration(splat_shares=4 if n_atoms < 10_000 else 2 if n_atoms < 40_000 else 1)


_SIZES = ("nx", "ny", "nz")


def _kernel(*sizes: str) -> Any:
    """Compile a kernel once, and not again for a size that happens to be 1 or a multiple of 16."""
    return triton.jit(do_not_specialize=list(sizes))


@_kernel("n_cells")
def _begin(matrix, cutoff, inverse, geometry, count, n_cells, BLOCK: tl.constexpr):
    """Clear the counts of atoms in cells, and work out what the grid's steps mean for a sphere.

    Of the matrix its inverse, and in float32 how far the sphere reaches along each axis in voxels, rounded up a little; then the
    triangular matrix (xx, xy, xz, yy, yz, zz) of the same distances, that is of the same steps in a frame turned with them; then
    the matrix itself.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(count + i, tl.zeros([BLOCK], tl.int32), mask=i < n_cells)
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
    cell_of,
    arrival,
    voxel,
    fraction,
    count,
    SELECTED: tl.constexpr,
    PERIODIC: tl.constexpr,
    LISTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give every atom its voxel, its fraction of a voxel and its cell (-1: out of reach)."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
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
    tl.store(voxel + atom, vx.to(tl.int32), mask=atom < n_atoms)
    tl.store(voxel + n_atoms + atom, vy.to(tl.int32), mask=atom < n_atoms)
    tl.store(voxel + 2 * n_atoms + atom, vz.to(tl.int32), mask=atom < n_atoms)
    tl.store(fraction + atom, (ux - vx).to(tl.float32), mask=atom < n_atoms)
    tl.store(fraction + n_atoms + atom, (uy - vy).to(tl.float32), mask=atom < n_atoms)
    tl.store(fraction + 2 * n_atoms + atom, (uz - vz).to(tl.float32), mask=atom < n_atoms)

    cells_x = (nx + CELL - 1) // CELL
    cells_y = (ny + CELL - 1) // CELL
    cx = tl.minimum(tl.maximum(vx.to(tl.int32), 0), nx - 1) // CELL
    cy = tl.minimum(tl.maximum(vy.to(tl.int32), 0), ny - 1) // CELL
    cz = tl.minimum(tl.maximum(vz.to(tl.int32), 0), nz - 1) // CELL
    cell = tl.where(there, (cz * cells_y + cy) * cells_x + cx, -1)
    tl.store(cell_of + atom, cell, mask=atom < n_atoms)
    if LISTED:
        tl.store(arrival + atom, tl.atomic_add(count + cell, 1, mask=there), mask=there)


@_kernel("n_tiles", *_SIZES)
def _mark(count, touched, n_tiles, geometry, nx, ny, nz, PERIODIC: tl.constexpr, BLOCK: tl.constexpr):
    """Mark the tiles that atoms of any cell may reach."""
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cells_x = (nx + CELL - 1) // CELL
    cells_y = (ny + CELL - 1) // CELL
    cells_z = (nz + CELL - 1) // CELL
    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y
    reach_x, reach_y, reach_z = _reach(geometry)
    x0 = tile % tiles_x * TILE_X
    y0 = tile // tiles_x % tiles_y * TILE_Y
    z0 = tile // (tiles_x * tiles_y) * TILE_Z
    first_x, many_x = _cells_in_reach(x0, tl.minimum(x0 + TILE_X, nx) - 1, reach_x, nx, cells_x, PERIODIC)
    first_y, many_y = _cells_in_reach(y0, tl.minimum(y0 + TILE_Y, ny) - 1, reach_y, ny, cells_y, PERIODIC)
    first_z, many_z = _cells_in_reach(z0, tl.minimum(z0 + TILE_Z, nz) - 1, reach_z, nz, cells_z, PERIODIC)
    # Once around the cell is enough.
    many_x = tl.where(tile < n_tiles, tl.minimum(many_x, cells_x), 0)
    many_y = tl.minimum(many_y, cells_y)
    many_z = tl.minimum(many_z, cells_z)
    found = tl.zeros([BLOCK], tl.int32)
    for k in range(0, tl.max(many_z, axis=0)):
        cz = first_z + k
        plane = (cz - _floor_divide(cz, cells_z) * cells_z) * cells_y
        for j in range(0, tl.max(many_y, axis=0)):
            cy = first_y + j
            line = (plane + cy - _floor_divide(cy, cells_y) * cells_y) * cells_x
            for i in range(0, tl.max(many_x, axis=0)):
                cx = first_x + i
                cell = line + cx - _floor_divide(cx, cells_x) * cells_x
                found |= tl.load(count + cell, mask=(i < many_x) & (j < many_y) & (k < many_z), other=0)
    tl.store(touched + tile, (found != 0).to(tl.int32), mask=tile < n_tiles)


@_kernel("n_cells", "cell_blocks", "n_tiles")
def _add_blocks(count, n_cells, cell_blocks, touched, n_tiles, totals):
    """Sum every block of the counts of atoms in cells, then of the marks of tiles."""
    block = tl.program_id(0)
    if block < cell_blocks:
        i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
        values = tl.load(count + i, mask=i < n_cells, other=0)
    else:
        i = (block - cell_blocks) * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
        values = tl.load(touched + i, mask=i < n_tiles, other=0)
    tl.store(totals + block, tl.sum(values, axis=0))


@triton.jit
def _cells_in_reach(first, last, reach, n, cells, PERIODIC: tl.constexpr):
    """The first of the cells, numbered on through the images, whose atoms reach some voxels along an axis, and how many."""
    first = _numbered(tl.floor(first - reach).to(tl.int32), n, CELL, cells, PERIODIC)
    return first, _numbered(tl.floor(last + reach).to(tl.int32), n, CELL, cells, PERIODIC) - first + 1


@triton.jit
def _add_before(totals, first, last):
    before = tl.zeros([SCAN_BLOCK], tl.int32)
    for begin in range(first, last, SCAN_BLOCK):
        i = begin + tl.arange(0, SCAN_BLOCK)
        before += tl.load(totals + i, mask=i < last, other=0)
    return tl.sum(before, axis=0)


@_kernel("n_cells", "cell_blocks", "n_tiles", "tile_blocks")
def _scan(count, n_cells, cell_blocks, touched, n_tiles, tile_blocks, totals, start, tiles, n_touched):
    """Turn counts into where each cell's atoms start, and marks into the list of tiles that are touched."""
    block = tl.program_id(0)
    if block < cell_blocks:
        i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
        values = tl.load(count + i, mask=i < n_cells, other=0)
        after = _add_before(totals, 0, block) + tl.cumsum(values, axis=0)
        tl.store(start + 1 + i, after, mask=i < n_cells)
        tl.store(start + i, 0, mask=i == 0)
    else:
        i = (block - cell_blocks) * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
        marks = tl.load(touched + i, mask=i < n_tiles, other=0)
        before = _add_before(totals, cell_blocks, block)
        place = before + tl.cumsum(marks, axis=0) - 1
        tl.store(tiles + place, i, mask=(i < n_tiles) & (marks != 0))
        if block == cell_blocks + tile_blocks - 1:
            tl.store(n_touched, before + tl.sum(marks, axis=0))


@_kernel("n_atoms")
def _fill(cell_of, arrival, n_atoms, start, unsorted, BLOCK: tl.constexpr):
    """List the atoms of every cell as they arrived."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cell = tl.load(cell_of + atom, mask=atom < n_atoms, other=-1)
    there = cell >= 0
    place = tl.load(start + cell, mask=there, other=0) + tl.load(arrival + atom, mask=there, other=0)
    tl.store(unsorted + place, atom, mask=there)


@_kernel("n_atoms")
def _sort(
    cell_of,
    n_atoms,
    start,
    unsorted,
    voxel,
    fraction,
    amplitudes,
    exponents,
    cutoff,
    listed,
    listed_voxel,
    listed_fraction,
    listed_gaussians,
    GAUSSIANS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy what the loops need of every atom into the order of the cells, and of the atoms within a cell.

    Of its Gaussians: amplitudes, then exponents times log2(e), then the constant and the slope of what brings value and slope to
    zero at the cut-off.
    """
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cell = tl.load(cell_of + atom, mask=atom < n_atoms, other=-1)
    there = cell >= 0
    begin = tl.load(start + cell, mask=there, other=0)
    members = tl.load(start + cell + 1, mask=there, other=0) - begin
    before = tl.zeros([BLOCK, 8], tl.int32)
    for k in range(0, tl.max(members, axis=0), 8):
        member = k + tl.arange(0, 8)[None, :]
        in_cell = member < members[:, None]
        other = tl.load(unsorted + begin[:, None] + member, mask=in_cell, other=0)
        before += (in_cell & (other < atom[:, None])).to(tl.int32)
    place = begin + tl.sum(before, axis=1)
    tl.store(listed + place, atom, mask=there)
    for axis in tl.static_range(3):
        tl.store(
            listed_voxel + axis * n_atoms + place,
            tl.load(voxel + axis * n_atoms + atom, mask=there),
            mask=there,
        )
        tl.store(
            listed_fraction + axis * n_atoms + place,
            tl.load(fraction + axis * n_atoms + atom, mask=there),
            mask=there,
        )
    s_c = cutoff * cutoff
    constant = tl.zeros([BLOCK], tl.float32)
    slope = tl.zeros([BLOCK], tl.float32)
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c, mask=there, other=0.0)
        alpha = tl.load(exponents + atom * GAUSSIANS + c, mask=there, other=0.0)
        edge = a * tl.exp(-alpha * s_c)
        constant -= edge * (1.0 + alpha * s_c)
        slope += edge * alpha
        tl.store(listed_gaussians + c * n_atoms + place, a, mask=there)
        tl.store(listed_gaussians + (GAUSSIANS + c) * n_atoms + place, alpha * LOG2_E, mask=there)
    tl.store(listed_gaussians + 2 * GAUSSIANS * n_atoms + place, constant, mask=there)
    tl.store(listed_gaussians + (2 * GAUSSIANS + 1) * n_atoms + place, slope, mask=there)


@triton.jit
def _list_for_threads(
    waiting,
    n_waiting,
    lists,
    lane,
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
    LANES: tl.constexpr,
):
    """List for every thread its share of the waiting atoms that reach its block, and count them.

    In an orthogonal grid that is a matter of their distance from the block, else, with some to spare, from its middle.
    """
    half_x = lxx * ((BLOCK_X - 1) / 2)
    half_y = lyy * ((BLOCK_Y - 1) / 2)
    half_z = lzz * ((BLOCK_Z - 1) / 2)
    centre_x = corner_x + half_x + lxy * ((BLOCK_Y - 1) / 2) + lxz * ((BLOCK_Z - 1) / 2)
    centre_y = corner_y + half_y + lyz * ((BLOCK_Z - 1) / 2)
    centre_z = corner_z + half_z
    wide_x = half_x + tl.abs(lxy) * ((BLOCK_Y - 1) / 2) + tl.abs(lxz) * ((BLOCK_Z - 1) / 2)
    wide_y = half_y + tl.abs(lyz) * ((BLOCK_Z - 1) / 2)
    diagonal = tl.sqrt(wide_x * wide_x + wide_y * wide_y + half_z * half_z)
    radius = tl.where(orthogonal, cutoff, cutoff + diagonal) * (1.0 + 1e-5)
    limit = radius * radius
    half_x = tl.where(orthogonal, half_x, 0.0)
    half_y = tl.where(orthogonal, half_y, 0.0)
    half_z = tl.where(orthogonal, half_z, 0.0)
    share = lane // THREADS
    entries = tl.zeros([LANES], tl.int32)
    for begin in range(0, n_waiting, LANES // THREADS):
        m = begin + share
        there = m < n_waiting
        dx = tl.abs(tl.load(waiting + m, mask=there, other=float("inf")) - centre_x) - half_x
        dy = tl.abs(tl.load(waiting + WAITING + m, mask=there, other=0.0) - centre_y) - half_y
        dz = tl.abs(tl.load(waiting + 2 * WAITING + m, mask=there, other=0.0) - centre_z) - half_z
        dx = tl.maximum(dx, 0.0)
        dy = tl.maximum(dy, 0.0)
        dz = tl.maximum(dz, 0.0)
        near = dx * dx + dy * dy + dz * dz < limit
        tl.store(lists + entries * LANES + lane, m.to(tl.int16), mask=near)
        entries += near.to(tl.int32)
    return entries


@triton.jit
def _in_block(
    x,
    y,
    z,
    gaussians,
    constant,
    slope,
    a,
    alpha,
    mine,
    lxx,
    lxy,
    lxz,
    lyy,
    lyz,
    lzz,
    limit,
    orthogonal,
    GAUSSIANS: tl.constexpr,
):
    """The density that each thread's atom adds to the voxels of its block, the atom seen from the first of them."""
    i = tl.arange(0, BLOCK_X)[None, None, :, None].to(tl.float32)
    j = tl.arange(0, BLOCK_Y)[None, :, None, None].to(tl.float32)
    k = tl.arange(0, BLOCK_Z)[:, None, None, None].to(tl.float32)
    constant = constant[None, None, None, :]
    slope = slope[None, None, None, :]
    dz = k * lzz - z[None, None, None, :]
    sz = dz * dz
    if orthogonal:
        sy = j * lyy - y[None, None, None, :]
        sx = i * lxx - x[None, None, None, :]
        sy *= sy
        sx *= sx
        near = sx < limit[None, None, None, :] - (sy + sz)
        value = slope * sx + (constant + slope * (sy + sz))
        for c in tl.static_range(GAUSSIANS):
            if c > 0:
                a = tl.load(gaussians + c * WAITING, mask=mine, other=0.0)
                alpha = tl.load(gaussians + (GAUSSIANS + c) * WAITING, mask=mine, other=0.0)
            minus = -alpha[None, None, None, :]
            e_z = a[None, None, None, :] * tl.exp2(minus * sz)
            value += tl.exp2(minus * sx) * (tl.exp2(minus * sy) * e_z)
        value = tl.where(near, value, 0.0)
    else:
        dy = j * lyy + (k * lyz - y[None, None, None, :])
        dx = i * lxx + (j * lxy + (k * lxz - x[None, None, None, :]))
        s = dx * dx + (dy * dy + sz)
        value = constant + slope * s
        for c in tl.static_range(GAUSSIANS):
            if c > 0:
                a = tl.load(gaussians + c * WAITING, mask=mine, other=0.0)
                alpha = tl.load(gaussians + (GAUSSIANS + c) * WAITING, mask=mine, other=0.0)
            minus = -alpha[None, None, None, :]
            value += a[None, None, None, :] * tl.exp2(minus * s)
        value = tl.where(s < limit[None, None, None, :], value, 0.0)
    return value


@_kernel("n_atoms", *_SIZES)
def _splat(
    tiles,
    n_touched,
    start,
    n_atoms,
    voxel,
    fraction,
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
    PERIODIC: tl.constexpr,
    MEASURE: tl.constexpr,
    WIDE: tl.constexpr,
    SHARES: tl.constexpr,
):
    """Write the density of every touched tile, and each program's part of the sums of the similarity.

    A block has a thread in each of the program's warps, which share the atoms and add up what they have at the end.
    """
    LANES: tl.constexpr = THREADS * SHARES
    program = tl.program_id(0)
    waiting += program * ((5 + 2 * GAUSSIANS) * WAITING)
    lists += program * (WAITING * THREADS)
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    s_c = cutoff * cutoff
    orthogonal = (lxy == 0.0) & (lxz == 0.0) & (lyz == 0.0)

    lane = tl.arange(0, LANES)
    block_x = lane % THREADS_X * BLOCK_X
    block_y = lane // THREADS_X % THREADS_Y * BLOCK_Y
    block_z = lane % THREADS // (THREADS_X * THREADS_Y) * BLOCK_Z
    corner_x = block_x * lxx + block_y * lxy + block_z * lxz
    corner_y = block_y * lyy + block_z * lyz
    corner_z = block_z * lzz

    candidate = tl.arange(0, ROWS * ATOMS_OF_ROW)
    row_of_candidate = candidate // ATOMS_OF_ROW
    place_in_row = candidate % ATOMS_OF_ROW

    cells_x = (nx + CELL - 1) // CELL
    cells_y = (ny + CELL - 1) // CELL
    cells_z = (nz + CELL - 1) // CELL
    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y

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
        low_x = tl.floor(x0 - reach_x).to(tl.int32)
        high_x = tl.floor(x1 + reach_x).to(tl.int32)
        first_y, many_y = _cells_in_reach(y0, y1, reach_y, ny, cells_y, PERIODIC)
        first_z, many_z = _cells_in_reach(z0, z1, reach_z, nz, cells_z, PERIODIC)
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
            # A row of cells along x is one stretch of the list, in every image of the cell that the tile sees.
            row = first_row + row_of_candidate
            image = image_x + row % many_x
            cy = first_y + row // many_x % many_y
            cz = first_z + row // (many_x * many_y)
            shift_x = image * nx
            image_y = _floor_divide(cy, cells_y)
            image_z = _floor_divide(cz, cells_z)
            line = ((cz - image_z * cells_z) * cells_y + cy - image_y * cells_y) * cells_x
            from_x = tl.minimum(tl.maximum(low_x - shift_x, 0), nx - 1) // CELL
            to_x = tl.minimum(tl.maximum(high_x - shift_x, 0), nx - 1) // CELL
            begin = tl.load(start + line + from_x, mask=row < rows, other=0)
            length = tl.load(start + line + to_x + 1, mask=row < rows, other=0) - begin
            away_x = shift_x - x0
            away_y = image_y * ny - y0
            away_z = image_z * nz - z0
            longest = tl.max(length, axis=0)
            for k in range(0, tl.maximum(longest, 1), ATOMS_OF_ROW):
                there = k + place_in_row < length
                i = begin + k + place_in_row
                near_x = (tl.load(voxel + i, mask=there, other=0) + away_x).to(tl.float32)
                near_y = (tl.load(voxel + n_atoms + i, mask=there, other=0) + away_y).to(tl.float32)
                near_z = (tl.load(voxel + 2 * n_atoms + i, mask=there, other=0) + away_z).to(tl.float32)
                near_x += tl.load(fraction + i, mask=there, other=0.0)
                near_y += tl.load(fraction + n_atoms + i, mask=there, other=0.0)
                near_z += tl.load(fraction + 2 * n_atoms + i, mask=there, other=0.0)
                near = there & (near_x >= -reach_x) & (near_x <= x1 - x0 + reach_x)
                near = near & (near_y >= -reach_y) & (near_y <= y1 - y0 + reach_y)
                near = near & (near_z >= -reach_z) & (near_z <= z1 - z0 + reach_z)
                place = n_waiting + tl.cumsum(near.to(tl.int32), axis=0) - 1
                tl.store(waiting + place, near_x * lxx + near_y * lxy + near_z * lxz, mask=near)
                tl.store(waiting + WAITING + place, near_y * lyy + near_z * lyz, mask=near)
                tl.store(waiting + 2 * WAITING + place, near_z * lzz, mask=near)
                for c in tl.static_range(2 * GAUSSIANS + 2):
                    of_atom = tl.load(gaussians + c * n_atoms + i, mask=near, other=0.0)
                    tl.store(waiting + (3 + c) * WAITING + place, of_atom, mask=near)
                n_waiting += tl.sum(near.to(tl.int32), axis=0)
                done = (first_row + ROWS >= rows) & (k + ATOMS_OF_ROW >= longest)
                if done | (n_waiting > WAITING - ROWS * ATOMS_OF_ROW):
                    tl.debug_barrier()
                    entries = _list_for_threads(
                        waiting,
                        n_waiting,
                        lists,
                        lane,
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
                        LANES,
                    )
                    tl.debug_barrier()
                    # Each turn looks up the atom of the next, and where the one after that is listed, so as not to wait for them.
                    m = tl.load(lists + lane, mask=entries > 0, other=0).to(tl.int32)
                    x = tl.load(waiting + m)
                    y = tl.load(waiting + WAITING + m)
                    z = tl.load(waiting + 2 * WAITING + m)
                    a = tl.load(waiting + 3 * WAITING + m)
                    alpha = tl.load(waiting + (3 + GAUSSIANS) * WAITING + m)
                    constant = tl.load(waiting + (3 + 2 * GAUSSIANS) * WAITING + m)
                    slope = tl.load(waiting + (4 + 2 * GAUSSIANS) * WAITING + m)
                    coming = tl.load(lists + LANES + lane, mask=entries > 1, other=0).to(tl.int32)
                    for e in range(0, tl.max(entries, axis=0)):
                        next_x = tl.load(waiting + coming)
                        next_y = tl.load(waiting + WAITING + coming)
                        next_z = tl.load(waiting + 2 * WAITING + coming)
                        next_a = tl.load(waiting + 3 * WAITING + coming)
                        next_alpha = tl.load(waiting + (3 + GAUSSIANS) * WAITING + coming)
                        next_constant = tl.load(waiting + (3 + 2 * GAUSSIANS) * WAITING + coming)
                        next_slope = tl.load(waiting + (4 + 2 * GAUSSIANS) * WAITING + coming)
                        after = tl.load(lists + (e + 2) * LANES + lane, mask=e + 2 < entries, other=0)
                        rho += _in_block(
                            x - corner_x,
                            y - corner_y,
                            z - corner_z,
                            waiting + 3 * WAITING + m,
                            constant,
                            slope,
                            a,
                            alpha,
                            e < entries,
                            lxx,
                            lxy,
                            lxz,
                            lyy,
                            lyz,
                            lzz,
                            tl.where(e < entries, s_c, -1.0),
                            orthogonal,
                            GAUSSIANS,
                        )
                        x = next_x
                        y = next_y
                        z = next_z
                        a = next_a
                        alpha = next_alpha
                        constant = next_constant
                        slope = next_slope
                        m = coming
                        coming = after.to(tl.int32)
                    n_waiting = 0
                    tl.debug_barrier()

        total = (
            tl.sum(tl.reshape(rho, [BLOCK_Z, BLOCK_Y, BLOCK_X, SHARES, THREADS]), axis=3)
            if SHARES > 1
            else rho
        )
        thread = tl.arange(0, THREADS)
        gx = x0 + (thread % THREADS_X * BLOCK_X)[None, None, None, :]
        gy = y0 + (thread // THREADS_X % THREADS_Y * BLOCK_Y)[None, None, None, :]
        gz = z0 + (thread // (THREADS_X * THREADS_Y) * BLOCK_Z)[None, None, None, :]
        gx += tl.arange(0, BLOCK_X)[None, None, :, None]
        gy += tl.arange(0, BLOCK_Y)[None, :, None, None]
        gz += tl.arange(0, BLOCK_Z)[:, None, None, None]
        inside = (gx < nx) & (gy < ny) & (gz < nz)
        at = (gz.to(tl.int64) * ny + gy) * nx + gx if WIDE else (gz * ny + gy) * nx + gx
        tl.store(density + at, total, mask=inside)
        if MEASURE != DENSITY_ONLY:
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
    tiles, n_touched, nx, ny, nz, density, target, coefficients, MEASURE: tl.constexpr, WIDE: tl.constexpr
):
    """Replace the density of every touched tile by dS/d(density), 0 where a voxel does not count."""
    tiles_x = (nx + TILE_X - 1) // TILE_X
    tiles_y = (ny + TILE_Y - 1) // TILE_Y
    c0 = tl.load(coefficients)
    c1 = tl.load(coefficients + 1)
    c2 = tl.load(coefficients + 2)
    i = tl.arange(0, TILE_X * TILE_Y * TILE_Z)
    for turn in range(tl.program_id(0), tl.load(n_touched), tl.num_programs(0)):
        tile = tl.load(tiles + turn)
        x = tile % tiles_x * TILE_X + i % TILE_X
        y = tile // tiles_x % tiles_y * TILE_Y + i // TILE_X % TILE_Y
        z = tile // (tiles_x * tiles_y) * TILE_Z + i // (TILE_X * TILE_Y)
        inside = (x < nx) & (y < ny) & (z < nz)
        at = (z.to(tl.int64) * ny + y) * nx + x if WIDE else (z * ny + y) * nx + x
        t = tl.load(target + at, mask=inside, other=0.0)
        rho = tl.load(density + at, mask=inside, other=0.0)
        if MEASURE == RELATIVE_ENTROPY:
            g = tl.where((t > 0.0) & (rho + c0 > 1e-6 * c0), c2 * t / (rho + c0), 0.0)
        else:
            g = tl.where(t - t == 0.0, c2 * t + (c1 * rho + c0), 0.0)
        tl.store(density + at, g, mask=inside)


@triton.jit
def _box_of_atom(v, f, reach, n, PERIODIC: tl.constexpr):
    """The first and last voxel that a sphere reaches along an axis."""
    first = v + tl.ceil(f - reach).to(tl.int32)
    last = v + tl.floor(f + reach).to(tl.int32)
    if not PERIODIC:
        first = tl.maximum(first, 0)
        last = tl.minimum(last, n - 1)
    return first, last


@triton.jit
def _in_rows(unit, x0, y0, runs, nx, ny, PERIODIC: tl.constexpr, ALIGNED: tl.constexpr):
    """Of each run of four voxels its y, the x of its voxels, and their place in a plane; unwrapped, and in the grid."""
    # The half makes the quotient right in spite of rounding, for any box up to 2^11 voxels wide.
    j = ((unit.to(tl.float32) + 0.5) / runs.to(tl.float32)).to(tl.int32)
    x = (x0 + 4 * (unit - j * runs))[:, None] + tl.arange(0, 4)[None, :]
    y = y0 + j
    if PERIODIC:
        row = (y - _floor_divide(y, ny) * ny) * nx
        if ALIGNED:
            head = x0 + 4 * (unit - j * runs)
            in_plane = (row + head - _floor_divide(head, nx) * nx)[:, None] + tl.arange(0, 4)[None, :]
        else:
            in_plane = row[:, None] + (x - _floor_divide(x, nx) * nx)
    else:
        in_plane = (y * nx)[:, None] + x
    return x, y, in_plane


@triton.jit
def _load_field(
    field, z, nx, ny, nz, in_plane, mask, PERIODIC: tl.constexpr, WIDE: tl.constexpr, ALIGNED: tl.constexpr
):
    """The voxels of a plane; what the mask leaves out is anything."""
    if PERIODIC:
        z -= _floor_divide(z, nz) * nz
    at = z.to(tl.int64) * ny * nx + in_plane if WIDE else z * (ny * nx) + in_plane
    if ALIGNED:
        at = tl.max_contiguous(tl.multiple_of(at, [1, 4]), [1, 4])
    return tl.load(field + at, mask=mask)


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
    PERIODIC: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
    RUNS: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Differentiate the sum of field times density with respect to the positions of some atoms that lie side by side.

    Atom by atom a program goes through the planes of its box. Of a plane it sees RUNS runs of four voxels along x together; if
    rows are a multiple of four long (ALIGNED), each is one load.
    """
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    orthogonal = (lxy == 0.0) & (lxz == 0.0) & (lyz == 0.0)
    s_c = cutoff * cutoff
    first = tl.program_id(0) * ATOMS
    for i in range(first, tl.minimum(first + ATOMS, tl.load(n_listed))):
        vx = tl.load(voxel + i)
        vy = tl.load(voxel + n_atoms + i)
        vz = tl.load(voxel + 2 * n_atoms + i)
        fx = tl.load(fraction + i)
        fy = tl.load(fraction + n_atoms + i)
        fz = tl.load(fraction + 2 * n_atoms + i)
        slope = tl.load(gaussians + (2 * GAUSSIANS + 1) * n_atoms + i)
        particle = tl.load(atoms + tl.load(listed + i))
        x0, x1 = _box_of_atom(vx, fx, reach_x, nx, PERIODIC)
        y0, y1 = _box_of_atom(vy, fy, reach_y, ny, PERIODIC)
        z0, z1 = _box_of_atom(vz, fz, reach_z, nz, PERIODIC)
        if ALIGNED:
            x0 = _floor_divide(x0, 4) * 4
        runs = tl.maximum(x1 - x0 + 4, 4) // 4
        units = tl.where(x1 >= x0, runs * (y1 - y0 + 1), 0)
        sum_x = tl.zeros([RUNS, 4], tl.float32)
        sum_y = tl.zeros([RUNS, 4], tl.float32)
        sum_z = tl.zeros([RUNS, 4], tl.float32)
        for begin in range(0, units, RUNS):
            unit = begin + tl.arange(0, RUNS)
            x, y, in_plane = _in_rows(unit, x0, y0, runs, nx, ny, PERIODIC, ALIGNED)
            there = (unit < units)[:, None]
            if not (PERIODIC or ALIGNED):
                there = there & (x <= x1)
            dx = (x - vx).to(tl.float32) - fx
            dy = ((y - vy).to(tl.float32) - fy)[:, None]
            along_x = dx * lxx + dy * lxy
            along_y = dy * lyy
            limit = tl.where(there, s_c, -1.0)
            plain = tl.zeros([RUNS, 4], tl.float32)
            by_z = tl.zeros([RUNS, 4], tl.float32)
            # Each plane's voxels are looked up one turn ahead.
            coming = _load_field(field, z0, nx, ny, nz, in_plane, there & (z0 <= z1), PERIODIC, WIDE, ALIGNED)
            if orthogonal:
                # All that depends on x and y, once for all planes.
                in_plane_s = along_x * along_x + along_y * along_y
                factors = ()
                for c in tl.static_range(GAUSSIANS):
                    a = tl.load(gaussians + c * n_atoms + i)
                    alpha = tl.load(gaussians + (GAUSSIANS + c) * n_atoms + i)
                    factors = factors + (a * alpha / LOG2_E * tl.exp2(-alpha * in_plane_s),)  # noqa: RUF005
                for z in range(z0, z1 + 1):
                    dz = (z - vz).to(tl.float32) - fz
                    s_z = dz * lzz * dz * lzz
                    near = in_plane_s < limit - s_z
                    g = coming
                    coming = _load_field(
                        field, z + 1, nx, ny, nz, in_plane, there & (z < z1), PERIODIC, WIDE, ALIGNED
                    )
                    steepness = tl.zeros([RUNS, 4], tl.float32) - slope
                    for c in tl.static_range(GAUSSIANS):
                        alpha = tl.load(gaussians + (GAUSSIANS + c) * n_atoms + i)
                        steepness += factors[c] * tl.exp2(-alpha * s_z)
                    w = tl.where(near, g * steepness, 0.0)
                    plain += w
                    by_z += w * dz
            else:
                for z in range(z0, z1 + 1):
                    dz = (z - vz).to(tl.float32) - fz
                    away_x = along_x + dz * lxz
                    away_y = along_y + dz * lyz
                    away_z = dz * lzz
                    s = away_x * away_x + (away_y * away_y + away_z * away_z)
                    near = s < limit
                    g = coming
                    coming = _load_field(
                        field, z + 1, nx, ny, nz, in_plane, there & (z < z1), PERIODIC, WIDE, ALIGNED
                    )
                    steepness = tl.zeros([RUNS, 4], tl.float32) - slope
                    for c in tl.static_range(GAUSSIANS):
                        a = tl.load(gaussians + c * n_atoms + i)
                        alpha = tl.load(gaussians + (GAUSSIANS + c) * n_atoms + i)
                        steepness += (a * alpha * (1.0 / LOG2_E)) * tl.exp2(-alpha * s)
                    w = tl.where(near, g * steepness, 0.0)
                    plain += w
                    by_z += w * dz
            sum_x += plain * dx
            sum_y += plain * dy
            sum_z += by_z
        _store_gradient(gradient + 3 * particle, geometry, tl.sum(sum_x), tl.sum(sum_y), tl.sum(sum_z))


@triton.jit
def _store_gradient(gradient, geometry, x, y, z):
    """d(density)/dx = -2 rho'(s) (voxel - atom): from voxels to space."""
    for axis in tl.static_range(3):
        of_x = tl.load(geometry + 9 + 3 * axis)
        of_y = tl.load(geometry + 10 + 3 * axis)
        of_z = tl.load(geometry + 11 + 3 * axis)
        tl.store(gradient + axis, 2.0 * (of_x * x + of_y * y + of_z * z))


@_kernel("n_atoms", *_SIZES)
def _gather_all(
    cell_of,
    n_atoms,
    voxel,
    fraction,
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
    ALIGNED: tl.constexpr,
    RUNS: tl.constexpr,
):
    """Differentiate the sum of field times density with respect to all that an atom has, one Gaussian after the other."""
    atom = tl.program_id(0)
    vx = tl.load(voxel + atom)
    vy = tl.load(voxel + n_atoms + atom)
    vz = tl.load(voxel + 2 * n_atoms + atom)
    fx = tl.load(fraction + atom)
    fy = tl.load(fraction + n_atoms + atom)
    fz = tl.load(fraction + 2 * n_atoms + atom)
    lxx, lxy, lxz, lyy, lyz, lzz = _steps(geometry)
    reach_x, reach_y, reach_z = _reach(geometry)
    s_c = cutoff * cutoff
    x0, x1 = _box_of_atom(vx, fx, reach_x, nx, PERIODIC)
    y0, y1 = _box_of_atom(vy, fy, reach_y, ny, PERIODIC)
    z0, z1 = _box_of_atom(vz, fz, reach_z, nz, PERIODIC)
    if ALIGNED:
        x0 = _floor_divide(x0, 4) * 4
    runs = tl.maximum(x1 - x0 + 4, 4) // 4
    units = tl.where((x1 >= x0) & (tl.load(cell_of + atom) >= 0), runs * (y1 - y0 + 1), 0)
    sum_x = tl.zeros([RUNS, 4], tl.float32)
    sum_y = tl.zeros([RUNS, 4], tl.float32)
    sum_z = tl.zeros([RUNS, 4], tl.float32)
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c)
        alpha = tl.load(exponents + atom * GAUSSIANS + c)
        edge = tl.exp(-alpha * s_c)
        sum_a = tl.zeros([RUNS, 4], tl.float32)
        sum_alpha = tl.zeros([RUNS, 4], tl.float32)
        for begin in range(0, units, RUNS):
            unit = begin + tl.arange(0, RUNS)
            x, y, in_plane = _in_rows(unit, x0, y0, runs, nx, ny, PERIODIC, ALIGNED)
            there = (unit < units)[:, None]
            if not (PERIODIC or ALIGNED):
                there = there & (x <= x1)
            dx = (x - vx).to(tl.float32) - fx
            dy = ((y - vy).to(tl.float32) - fy)[:, None]
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
                g = _load_field(field, z, nx, ny, nz, in_plane, near, PERIODIC, WIDE, False)
                g = tl.where(near, g, 0.0)
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


class _Atoms(NamedTuple):
    """Where atoms are; listed by cell once `_list_by_cell` has been there."""

    count: int
    cell_of: Tensor
    voxel: Tensor
    fraction: Tensor


class _Listed(NamedTuple):
    """The atoms in the order of their cells."""

    count: int
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
        self.n_cells = math.prod(triton.cdiv(n, CELL.value) for n in shape)
        self.n_tiles = math.prod(
            triton.cdiv(n, tile.value) for n, tile in zip(self.size, (TILE_X, TILE_Y, TILE_Z))
        )
        self.wide = math.prod(shape) > 2**31 - 1
        self.aligned = shape[2] % 4 == 0
        self.geometry = self.empty(18)
        self.configuration = _default_configuration(self.n_atoms)

    def empty(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self.positions.device)

    def place(self, count: Tensor | None = None) -> tuple[_Atoms, Tensor]:
        """Place the atoms; with a place for counts, count them by cell."""
        inverse = self.empty(9, dtype=torch.float64)
        n_cells = 0 if count is None else self.n_cells
        _begin[(max(1, triton.cdiv(n_cells, SCAN_BLOCK.value)),)](
            self.matrix,
            self.cutoff,
            inverse,
            self.geometry,
            inverse if count is None else count,
            n_cells,
            BLOCK=SCAN_BLOCK.value,
        )
        n = self.n_atoms
        found = _Atoms(
            n, self.empty(n, dtype=torch.int32), self.empty(3 * n, dtype=torch.int32), self.empty(3 * n)
        )
        arrival = self.empty(n, dtype=torch.int32)
        if n:
            _place[(triton.cdiv(n, PLACE_BLOCK),)](
                self.positions,
                arrival if self.atoms is None else self.atoms,
                n,
                self.positions.shape[0],
                inverse,
                self.geometry,
                self.origin,
                *self.size,
                found.cell_of,
                arrival,
                found.voxel,
                found.fraction,
                arrival if count is None else count,
                SELECTED=self.atoms is not None,
                PERIODIC=self.periodic,
                LISTED=count is not None,
                BLOCK=PLACE_BLOCK,
            )
        return found, arrival

    def splat(
        self,
        density: Tensor,
        target: Tensor | None = None,
        moments: Tensor | None = None,
        total_weight: float = 1.0,
        measure: int = -1,
    ) -> _Splat:
        """Write the density of all tiles that atoms touch; with a target, also the sums of a measure."""
        n, n_cells, n_tiles = self.n_atoms, self.n_cells, self.n_tiles
        count = self.empty(n_cells, dtype=torch.int32)
        touched = self.empty(n_tiles, dtype=torch.int32)
        atoms, arrival = self.place(count)
        _mark[(triton.cdiv(n_tiles, PLACE_BLOCK),)](
            count, touched, n_tiles, self.geometry, *self.size, PERIODIC=self.periodic, BLOCK=PLACE_BLOCK
        )
        cell_blocks, tile_blocks = (
            triton.cdiv(n_cells, SCAN_BLOCK.value),
            triton.cdiv(n_tiles, SCAN_BLOCK.value),
        )
        totals = self.empty(cell_blocks + tile_blocks, dtype=torch.int32)
        start = self.empty(n_cells + 1, dtype=torch.int32)
        tiles = self.empty(n_tiles, dtype=torch.int32)
        n_touched = self.empty(1, dtype=torch.int32)
        scanned = (cell_blocks + tile_blocks,)
        _add_blocks[scanned](count, n_cells, cell_blocks, touched, n_tiles, totals)
        _scan[scanned](
            count, n_cells, cell_blocks, touched, n_tiles, tile_blocks, totals, start, tiles, n_touched
        )
        listed = _Listed(
            n,
            start,
            self.empty(n, dtype=torch.int32),
            self.empty(3 * n, dtype=torch.int32),
            self.empty(3 * n),
            self.empty((2 * self.gaussians + 2) * n),
        )
        if n:
            unsorted = self.empty(n, dtype=torch.int32)
            by_atom = (triton.cdiv(n, PLACE_BLOCK),)
            _fill[by_atom](atoms.cell_of, arrival, n, start, unsorted, BLOCK=PLACE_BLOCK)
            _sort[by_atom](
                atoms.cell_of,
                n,
                start,
                unsorted,
                atoms.voxel,
                atoms.fraction,
                self.amplitudes,
                self.exponents,
                self.cutoff,
                *listed[2:],
                GAUSSIANS=self.gaussians,
                BLOCK=PLACE_BLOCK,
            )
        programs = min(n_tiles, SPLAT_PROGRAMS)
        waiting = WAITING.value * programs
        partial_sums = self.empty(3, programs, dtype=torch.float64)
        _splat[(programs,)](
            tiles,
            n_touched,
            start,
            n,
            listed.voxel,
            listed.fraction,
            listed.gaussians,
            self.geometry,
            self.cutoff,
            *self.size,
            self.empty((5 + 2 * self.gaussians) * waiting),
            self.empty(THREADS.value * waiting, dtype=torch.int16),
            density,
            density if target is None else target,
            partial_sums if moments is None else moments,
            total_weight,
            partial_sums,
            GAUSSIANS=self.gaussians,
            PERIODIC=self.periodic,
            MEASURE=measure,
            WIDE=self.wide,
            SHARES=self.configuration.splat_shares,
            num_warps=self.configuration.splat_shares,
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
        atoms, _ = model.place()
        if model.n_atoms:
            _gather_all[(model.n_atoms,)](
                atoms.cell_of,
                model.n_atoms,
                atoms.voxel,
                atoms.fraction,
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
                ALIGNED=model.aligned,
                RUNS=model.configuration.gather_runs,
                num_warps=model.configuration.gather_warps,
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
    # Not filled: what is read of it has been written by the tiles.
    density = model.empty(target.numel())
    splat = model.splat(density, target, moments, total_weight, measure)
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
    )
    gradient = torch.zeros_like(model.positions)
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
        )
        listed, chosen = splat.listed, model.configuration
        _gather_forces[(triton.cdiv(model.n_atoms, chosen.gather_atoms),)](
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
            PERIODIC=model.periodic,
            WIDE=model.wide,
            ALIGNED=model.aligned,
            RUNS=chosen.gather_runs,
            ATOMS=chosen.gather_atoms,
            num_warps=chosen.gather_warps,
        )
    return similarity, gradient
