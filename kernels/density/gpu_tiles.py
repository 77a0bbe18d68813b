"""The GPU's tiles of voxels: what a grid's steps mean for a sphere, and atoms in the order of the tiles where they lie.

Atoms are counted, scanned and filled in, and ordered by their number within a tile, so that every sum over them has one order.
Where voxels are, and how far a sphere reaches, is read on the device from `matrix` and `origin`. Positions become voxel and
fraction in float64; what the loops over voxels need of an atom is in float32, relative to its tile.
"""

# No annotations from __future__: Triton reads those of its kernels.
from typing import Any

import triton
import triton.language as tl

TILE_X, TILE_Y, TILE_Z = tl.constexpr(8), tl.constexpr(8), tl.constexpr(4)
TILE = tl.constexpr(256)
# Voxels of a tile's plane of equal z.
PLANE = tl.constexpr(64)
SCAN_BLOCK = tl.constexpr(1024)
PLACE_BLOCK = 32
MARK_BLOCK = 128
# As many words of published totals are read at once.
TOTALS = tl.constexpr(128)
LOG2_E = tl.constexpr(1.4426950408889634)


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
    """Clear the tiles' counts, marks and totals and the gradient, and work out what the grid's steps mean for a sphere.

    Of the matrix its inverse, and in float32 how far the sphere reaches along each axis in voxels, rounded up a little; then the
    triangular matrix (xx, xy, xz, yy, yz, zz) of the same distances, that is of the same steps in a frame turned with them, in
    units of the cut-off; then the matrix itself.
    """
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
        scale = _reciprocal(xx * cx + xy * cy + xz * cz)
        _store_row(inverse, cx * scale, (xz * zy - xy * zz) * scale, (xy * yz - xz * yy) * scale)
        _store_row(inverse + 3, cy * scale, (xx * zz - xz * zx) * scale, (xz * yx - xx * yz) * scale)
        _store_row(inverse + 6, cz * scale, (xy * zx - xx * zy) * scale, (xx * yy - xy * yx) * scale)
        tl.debug_barrier()
        axis = tl.arange(0, 4)
        row = tl.zeros([4], tl.float64)
        for k in tl.static_range(3):
            element = tl.load(inverse + 3 * axis + k, mask=axis < 3, other=0.0)
            row += element * element
        reach = cutoff * (1.0 + 1e-6) * tl.sqrt(row.to(tl.float32)) + 1e-4
        tl.store(geometry + axis, reach, mask=axis < 3)
        step_x = _root(xx * xx + yx * yx + zx * zx)
        per_x = _reciprocal(step_x)
        tilt_xy = (xx * xy + yx * yy + zx * zy) * per_x
        tilt_xz = (xx * xz + yx * yz + zx * zz) * per_x
        step_y = _root(xy * xy + yy * yy + zy * zy - tilt_xy * tilt_xy)
        tilt_yz = (xy * xz + yy * yz + zy * zz - tilt_xy * tilt_xz) * _reciprocal(step_y)
        step_z = _root(xz * xz + yz * yz + zz * zz - tilt_xz * tilt_xz - tilt_yz * tilt_yz)
        # A rotated orthogonal grid is one but for rounding.
        small = 1e-13 * step_x
        unit = _reciprocal(cutoff + tl.zeros([], tl.float64))
        tl.store(geometry + 3, (unit * step_x).to(tl.float32))
        tl.store(geometry + 4, (unit * tl.where(tl.abs(tilt_xy) > small, tilt_xy, 0.0)).to(tl.float32))
        tl.store(geometry + 5, (unit * tl.where(tl.abs(tilt_xz) > small, tilt_xz, 0.0)).to(tl.float32))
        tl.store(geometry + 6, (unit * step_y).to(tl.float32))
        tl.store(geometry + 7, (unit * tl.where(tl.abs(tilt_yz) > small, tilt_yz, 0.0)).to(tl.float32))
        tl.store(geometry + 8, (unit * step_z).to(tl.float32))
        entry = tl.arange(0, 16)
        tl.store(geometry + 9 + entry, tl.load(matrix + entry, mask=entry < 9).to(tl.float32), mask=entry < 9)
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
def _reciprocal(x):
    """1/x in float64, sooner than a division gives it."""
    guess = (1.0 / x.to(tl.float32)).to(tl.float64)
    guess += guess * (1.0 - x * guess)
    return guess + guess * (1.0 - x * guess)


@triton.jit
def _root(x):
    """The root of x in float64, likewise."""
    guess = tl.sqrt(x.to(tl.float32))
    exact = guess.to(tl.float64)
    return exact + ((x - exact * exact).to(tl.float32) * (0.5 / guess)).to(tl.float64)


@triton.jit
def _store_row(row, x, y, z):
    tl.store(row, x)
    tl.store(row + 1, y)
    tl.store(row + 2, z)


@triton.jit
def reach_of_sphere(geometry):
    """How far the sphere reaches along each axis, in voxels."""
    return tl.load(geometry), tl.load(geometry + 1), tl.load(geometry + 2)


@triton.jit
def steps_of_grid(geometry):
    """The triangular matrix of the grid's steps in the turned frame, in units of the cut-off."""
    return (
        tl.load(geometry + 3),
        tl.load(geometry + 4),
        tl.load(geometry + 5),
        tl.load(geometry + 6),
        tl.load(geometry + 7),
        tl.load(geometry + 8),
    )


@triton.jit
def tiles_of_grid(nx, ny, nz):
    """How many tiles a grid has along each axis."""
    return (nx + TILE_X - 1) // TILE_X, (ny + TILE_Y - 1) // TILE_Y, (nz + TILE_Z - 1) // TILE_Z


@triton.jit
def floor_divide(i, n):
    """The quotient rounded down, of negative numbers too; n is positive."""
    quotient = i // n
    return quotient - (i - quotient * n < 0).to(tl.int32)


@triton.jit
def tile_along(v, n, SIZE: tl.constexpr):
    """The tile of a voxel, or of the one nearest to it in the grid."""
    return tl.minimum(tl.maximum(v, 0), n - 1) // SIZE


@triton.jit
def numbered(i, n, size, count, PERIODIC: tl.constexpr):
    """Number the parts of `size` voxels, `count` to a cell of n, that voxel i lies in: on through the images."""
    if PERIODIC:
        image = floor_divide(i, n)
        return image * count + (i - image * n) // size
    else:
        return tl.minimum(tl.maximum(i, 0), n - 1) // size


@triton.jit
def voxels_by_tile(tile, WIDE: tl.constexpr):
    """Where the voxels of a tile are in an array that holds tile after tile, by its place."""
    return (tile.to(tl.int64) if WIDE else tile) * TILE + tl.arange(0, TILE)


@triton.jit
def voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE: tl.constexpr, ALIGNED: tl.constexpr):
    """Where in a grid the voxels of a tile are, in their order, and whether they are there."""
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
def touched_tile(tiles, turn):
    """The place of a touched tile, and its first voxel."""
    tiles += 4 * turn
    return tl.load(tiles), tl.load(tiles + 1), tl.load(tiles + 2), tl.load(tiles + 3)


@triton.jit
def _reduced(u, n, PERIODIC: tl.constexpr):
    if PERIODIC:
        u = u - n * tl.floor(u / n)
        return tl.where(u >= n, 0.0, u)
    else:
        return u


@triton.jit
def located(
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
    """Whether atoms reach the grid, which particles they are, their voxels, and their fractions of a voxel."""
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
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
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
    return there, particle, vx.to(tl.int32), vy.to(tl.int32), vz.to(tl.int32), fx, fy, fz


@kernel("n_atoms", "n_positions", *SIZES)
def place(
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
    """Return every atom its tile (-1: out of reach), and count them."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, _particle, vx, vy, vz, _fx, _fy, _fz = located(
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
    tiles_x, tiles_y, _tiles_z = tiles_of_grid(nx, ny, nz)
    tx = tile_along(vx, nx, TILE_X)
    ty = tile_along(vy, ny, TILE_Y)
    tz = tile_along(vz, nz, TILE_Z)
    tile = tl.where(there, (tz * tiles_y + ty) * tiles_x + tx, -1)
    tl.store(tile_of + atom, tile, mask=atom < n_atoms)
    tl.store(arrival + atom, tl.atomic_add(count + tile, 1, mask=there, sem="relaxed"), mask=there)


@kernel("n_tiles", *SIZES)
def mark(count, touched, n_tiles, geometry, nx, ny, nz, PERIODIC: tl.constexpr, BLOCK: tl.constexpr):
    """Mark the tiles that the box around an atom may touch, wherever in its tile the atom is."""
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
    """The first of the tiles along an axis, numbered on through the images, that atoms of a tile reach, and how many."""
    low = tile * SIZE - tl.floor(reach).to(tl.int32)
    high = tl.minimum(tile * SIZE + SIZE, n) + tl.floor(reach).to(tl.int32)
    first = numbered(low, n, SIZE, tiles, PERIODIC)
    many = numbered(high, n, SIZE, tiles, PERIODIC) - first + 1
    # Once around the cell is enough.
    return first, tl.where(there, tl.minimum(many, tiles), 0)


@triton.jit
def _wrapped(i, n, PERIODIC: tl.constexpr):
    if PERIODIC:
        i -= floor_divide(i, n) * n
    return i


@kernel("n_tiles", *SIZES)
def scan(count, touched, n_tiles, nx, ny, nz, totals, start, tiles, n_touched):
    """Turn counts into where each tile's atoms start, and marks into the list of touched tiles: place and first voxel.

    The place of a tile is its number where those above each other follow each other, so that for the gather each plane of a box
    is as far from the next.

    A program publishes what its block holds and adds what those before it have published, in one word that is never 0. It waits
    only for programs that were started before it.
    """
    block = tl.program_id(0)
    i = block * SCAN_BLOCK + tl.arange(0, SCAN_BLOCK)
    atoms = tl.load(count + i, mask=i < n_tiles, other=0)
    marks = tl.load(touched + i, mask=i < n_tiles, other=0)
    n_atoms = tl.sum(atoms, axis=0).to(tl.int64)
    n_marks = tl.sum(marks, axis=0).to(tl.int64)
    tl.atomic_xchg(totals + block, (1 << 62) | (n_marks << 31) | n_atoms, sem="relaxed")
    sum_before = tl.zeros([TOTALS], tl.int64)
    for begin_at in range(0, block, TOTALS):
        other = begin_at + tl.arange(0, TOTALS)
        word = tl.load(totals + other, mask=other < block, other=1 << 62, volatile=True)
        while tl.min(word, axis=0) == 0:
            word = tl.load(totals + other, mask=other < block, other=1 << 62, volatile=True)
        sum_before += word & ((1 << 62) - 1)
    before = tl.sum(sum_before, axis=0)
    marks_before = (before >> 31).to(tl.int32)
    atoms_before = (before & ((1 << 31) - 1)).to(tl.int32)
    tl.store(start + 1 + i, atoms_before + tl.cumsum(atoms, axis=0), mask=i < n_tiles)
    tl.store(start + i, 0, mask=i == 0)
    place = 4 * (marks_before + tl.cumsum(marks, axis=0) - 1)
    marked = (i < n_tiles) & (marks != 0)
    tiles_x, tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)
    layer = tiles_x * tiles_y
    tl.store(tiles + place, i % layer * tiles_z + i // layer, mask=marked)
    tl.store(tiles + place + 1, i % tiles_x * TILE_X, mask=marked)
    tl.store(tiles + place + 2, i // tiles_x % tiles_y * TILE_Y, mask=marked)
    tl.store(tiles + place + 3, i // layer * TILE_Z, mask=marked)
    if block == tl.num_programs(0) - 1:
        tl.store(n_touched, marks_before + n_marks.to(tl.int32))


@kernel("n_atoms")
def fill(tile_of, arrival, n_atoms, start, unsorted, BLOCK: tl.constexpr):
    """List the atoms of every tile as they arrived."""
    atom = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(tile_of + atom, mask=atom < n_atoms, other=-1)
    there = tile >= 0
    at = tl.load(start + tile, mask=there, other=0) + tl.load(arrival + atom, mask=there, other=0)
    tl.store(unsorted + at, atom, mask=there)


@kernel("n_atoms", "n_positions", *SIZES)
def arrange(
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
    in_space,
    to_corner,
    corner,
    gaussians,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    SELECTED: tl.constexpr,
    PERIODIC: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Put what the loops need of every atom in the order of the tiles, and of the atoms within a tile.

    `in_space` holds where an atom is from the first voxel of its tile, in the turned frame in units of the cut-off, and the x of
    that voxel (an integer); `corner` the first voxel of the box around it, on through the images, and the particle (integers);
    `to_corner` how far it is from the atom to that voxel, in voxels; `gaussians` the amplitudes, then the exponents times log2(e)
    in units of the cut-off, then the constant and the slope of what brings value and slope to zero at the cut-off; where an atom
    has one Gaussian, in place of the constant what that is at the cut-off, over its amplitude.
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = slot < tl.load(n_listed)
    atom = tl.load(unsorted + slot, mask=there, other=0)
    tile = tl.load(tile_of + atom, mask=there, other=0)
    begin_at = tl.load(start + tile, mask=there, other=0)
    members = tl.load(start + tile + 1, mask=there, other=0) - begin_at
    place = begin_at
    for k in range(0, tl.max(members, axis=0)):
        other = tl.load(unsorted + begin_at + k, mask=there & (k < members), other=0x7FFFFFFF)
        place += (other < atom).to(tl.int32)
    _, particle, vx, vy, vz, fx, fy, fz = located(
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
    tile_x = tile_along(vx, nx, TILE_X) * TILE_X
    tile_y = tile_along(vy, ny, TILE_Y) * TILE_Y
    tile_z = tile_along(vz, nz, TILE_Z) * TILE_Z
    x = (vx - tile_x).to(tl.float32) + fx
    y = (vy - tile_y).to(tl.float32) + fy
    z = (vz - tile_z).to(tl.float32) + fz
    lxx, lxy, lxz, lyy, lyz, lzz = steps_of_grid(geometry)
    store_four(
        in_space,
        place,
        x * lxx + (y * lxy + z * lxz),
        y * lyy + z * lyz,
        z * lzz,
        tile_x.to(tl.float32, bitcast=True),
        there,
    )
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
    x0 = first_of_box(vx, fx, reach_x, nx, PERIODIC)
    y0 = first_of_box(vy, fy, reach_y, ny, PERIODIC)
    z0 = first_of_box(vz, fz, reach_z, nz, PERIODIC)
    if ALIGNED:
        x0 = x0 & -4
    to_x = (x0 - vx).to(tl.float32) - fx
    to_y = (y0 - vy).to(tl.float32) - fy
    to_z = (z0 - vz).to(tl.float32) - fz
    store_four(to_corner, place, to_x, to_y, to_z, to_z, there)
    store_four(corner, place, x0, y0, z0, particle.to(tl.int32), there)
    s_c = cutoff * cutoff
    constant = tl.zeros([BLOCK], tl.float32)
    slope = tl.zeros([BLOCK], tl.float32)
    words = ()
    exponents_2 = ()
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c, mask=there, other=0.0)
        alpha = tl.load(exponents + atom * GAUSSIANS + c, mask=there, other=0.0) * s_c
        edge = a * tl.exp(-alpha)
        constant -= edge * (1.0 + alpha)
        slope += edge * alpha
        words = words + (a,)  # noqa: RUF005
        exponents_2 = exponents_2 + (alpha * LOG2_E,)  # noqa: RUF005
    if GAUSSIANS == 1:
        constant = tl.exp2(-exponents_2[0])
    words = words + exponents_2 + (constant, slope, slope, slope)
    for k in tl.static_range(WORDS // 4):
        store_four(
            gaussians,
            place * (WORDS // 4) + k,
            words[4 * k],
            words[4 * k + 1],
            words[4 * k + 2],
            words[4 * k + 3],
            there,
        )


@triton.jit
def first_of_box(v, f, reach, n, PERIODIC: tl.constexpr):
    """The first voxel that a sphere reaches along an axis."""
    first = v + tl.ceil(f - reach).to(tl.int32)
    if not PERIODIC:
        first = tl.minimum(tl.maximum(first, 0), n - 1)
    return first


@triton.jit
def store_four(table, i, first, second, third, fourth, mask):
    """Store four numbers that lie together, of each entry, at once."""
    entries = tl.join(tl.join(first, third), tl.join(second, fourth))
    entries = tl.reshape(entries, i.shape + [4])  # noqa: RUF005
    tl.store(table + 4 * tl.expand_dims(i, -1) + tl.arange(0, 4), entries, mask=tl.expand_dims(mask, -1))


@triton.jit
def load_four(table, i):
    """Four numbers that lie together, of each entry."""
    entries = tl.load(table + 4 * tl.expand_dims(i, -1) + tl.arange(0, 4))
    # 0 and 2, 1 and 3.
    even, odd = tl.split(tl.reshape(entries, i.shape + [2, 2]))  # noqa: RUF005
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def load_words(gaussians, i, WORDS: tl.constexpr):
    """What `arrange` put together of an atom's Gaussians."""
    words = ()
    for k in tl.static_range(WORDS // 4):
        words = words + load_four(gaussians, i * (WORDS // 4) + k)
    return words
