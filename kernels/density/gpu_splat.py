"""Density on the GPU: a program takes a tile, and adds up in registers the atoms that reach it.

It collects the atoms that reach the tile from the tiles around it, lists for every block of 4x4x2 voxels those that reach the
block, and lets each of its lanes work off its share of a list for a block. Lengths are in the turned frame, in units of the
cut-off, from the middle of the tile.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_similarity import RELATIVE_ENTROPY
from .gpu_tiles import (
    SIZES,
    TILE,
    TILE_X,
    TILE_Y,
    TILE_Z,
    floor_divide,
    kernel,
    load_four,
    load_words,
    numbered,
    reach_of_sphere,
    steps_of_grid,
    store_four,
    tile_along,
    tiles_of_grid,
    touched_tile,
    voxels_by_tile,
    voxels_of_tile,
)

LANES = tl.constexpr(32)
# Voxels of a block along x, y, z, blocks of a tile along them, and in all; and the lanes that share a block.
BLOCK_X, BLOCK_Y, BLOCK_Z = tl.constexpr(4), tl.constexpr(4), tl.constexpr(2)
BLOCKS_X, BLOCKS_Y, BLOCKS_Z = tl.constexpr(2), tl.constexpr(2), tl.constexpr(2)
BLOCKS, SHARES = tl.constexpr(8), tl.constexpr(4)
# A step of the search looks at so many atoms, so many of each of some rows of tiles.
CANDIDATES, ATOMS_OF_ROW = tl.constexpr(128), tl.constexpr(8)
# Atoms that wait for their turn in a tile; they are turned to when another step of the search might not fit.
WAITING = tl.constexpr(384)
# Of these, so many for each lane are listed by block at once.
LISTED_AT_ONCE = tl.constexpr(8)
DENSITY_ONLY = tl.constexpr(-1)


@triton.jit
def _box(
    SIZE_X: tl.constexpr, SIZE_Y: tl.constexpr, SIZE_Z: tl.constexpr, lxx, lxy, lxz, lyy, lyz, lzz, orthogonal
):
    """Of a box of voxels its middle, seen from the first of them, and half of its size; and from where on atoms do not reach it.

    A skewed box is taken for the sphere around it.
    """
    half_x = lxx * ((SIZE_X - 1) / 2)
    half_y = lyy * ((SIZE_Y - 1) / 2)
    half_z = lzz * ((SIZE_Z - 1) / 2)
    middle_x = half_x + lxy * ((SIZE_Y - 1) / 2) + lxz * ((SIZE_Z - 1) / 2)
    middle_y = half_y + lyz * ((SIZE_Z - 1) / 2)
    middle_z = half_z
    wide_x = half_x + tl.abs(lxy) * ((SIZE_Y - 1) / 2) + tl.abs(lxz) * ((SIZE_Z - 1) / 2)
    wide_y = half_y + tl.abs(lyz) * ((SIZE_Z - 1) / 2)
    around = tl.sqrt(wide_x * wide_x + wide_y * wide_y + half_z * half_z)
    radius = tl.where(orthogonal, 1.0, 1.0 + around) * (1.0 + 1e-5)
    half_x = tl.where(orthogonal, half_x, 0.0)
    half_y = tl.where(orthogonal, half_y, 0.0)
    half_z = tl.where(orthogonal, half_z, 0.0)
    return middle_x, middle_y, middle_z, half_x, half_y, half_z, radius * radius


@triton.jit
def _reached(x, y, z, half_x, half_y, half_z, limit):
    """Whether atoms at some distance from the middle of a box reach it."""
    off_x = tl.maximum(tl.abs(x) - half_x, 0.0)
    off_y = tl.maximum(tl.abs(y) - half_y, 0.0)
    off_z = tl.maximum(tl.abs(z) - half_z, 0.0)
    return off_x * off_x + off_y * off_y + off_z * off_z < limit


@triton.jit
def _sum_of_lanes(of_lane):
    """For lanes that share a block, their sum, and that of those before."""
    by_block = tl.reshape(of_lane, [SHARES, BLOCKS])
    before = tl.cumsum(by_block, axis=0) - by_block
    total = tl.broadcast_to(tl.sum(by_block, axis=0)[None, :], [SHARES, BLOCKS])
    return tl.reshape(before, [LANES]), tl.reshape(total, [LANES])


@triton.jit
def _list_by_block(
    waiting, n_waiting, lists, corner_x, corner_y, corner_z, lxx, lxy, lxz, lyy, lyz, lzz, orthogonal
):
    """List for every block of a tile how many of the waiting atoms reach it, and which.

    In an orthogonal grid that is a matter of their distance from the block, else, with some to spare, from its middle.
    """
    lane = tl.arange(0, LANES)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, limit = _box(
        BLOCK_X, BLOCK_Y, BLOCK_Z, lxx, lxy, lxz, lyy, lyz, lzz, orthogonal
    )
    middle_x = (corner_x + middle_x)[:, None]
    middle_y = (corner_y + middle_y)[:, None]
    middle_z = (corner_z + middle_z)[:, None]
    listed = tl.zeros([LANES], tl.int32)
    for first in range(0, n_waiting, LISTED_AT_ONCE * SHARES):
        # The room of those that wait is a multiple of these: beyond the last there is something to load.
        ahead = tl.arange(0, LISTED_AT_ONCE)[None, :] * SHARES
        ahead = tl.broadcast_to(ahead, [LANES, LISTED_AT_ONCE])
        m = first + (lane // BLOCKS)[:, None] + ahead
        x, y, z, _i = load_four((waiting + 4 * (first + lane // BLOCKS))[:, None, None], ahead)
        near = (m < n_waiting) & _reached(
            x - middle_x, y - middle_y, z - middle_z, half_x, half_y, half_z, limit
        )
        before, total = _sum_of_lanes(tl.sum(near.to(tl.int32), axis=1))
        place = (listed + before)[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
        tl.store(lists + BLOCKS + place * BLOCKS + (lane % BLOCKS)[:, None], m.to(tl.int16), mask=near)
        listed += total
    tl.store(lists + lane % BLOCKS, listed.to(tl.int16))


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
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    SKEWED: tl.constexpr,
):
    """Add the atoms that are listed for a block to the density of its voxels, each lane its share.

    In an orthogonal grid an exponential is a product of one for each axis, else only the whole distance gives it. One Gaussian
    is above its value at the cut-off within it and nowhere else, so that what an atom adds is a difference of two numbers that
    are clamped between 0 and 1, which costs the GPU nothing.
    """
    u = tl.arange(0, BLOCK_X)[None, None, :, None].to(tl.float32)
    v = tl.arange(0, BLOCK_Y)[None, :, None, None].to(tl.float32)
    w = tl.arange(0, BLOCK_Z)[:, None, None, None].to(tl.float32)
    lane = tl.arange(0, LANES)
    share = lane // BLOCKS
    listed = tl.load(lists + lane % BLOCKS).to(tl.int32)
    lists += BLOCKS
    # Each turn asks for what the next ones need before it does its own work, so that none waits: where the atom after the next
    # is, which the third is, and the next one's Gaussian, where that is only one.
    m = tl.load(lists + lane, mask=share < listed, other=0).to(tl.int32)
    x, y, z, i = load_four(waiting, m)
    i = tl.where(share < listed, i.to(tl.int32, bitcast=True), 0)
    if GAUSSIANS == 1:
        words = load_words(gaussians, i, WORDS)
    m = tl.load(lists + lane + LANES, mask=share + SHARES < listed, other=0).to(tl.int32)
    next_x, next_y, next_z, next_i = load_four(waiting, m)
    m = tl.load(lists + lane + 2 * LANES, mask=share + 2 * SHARES < listed, other=0).to(tl.int32)
    for e in range(0, tl.max(listed, axis=0), SHARES):
        after_x, after_y, after_z, after_i = load_four(waiting, m)
        ahead = e + 3 * SHARES
        m = tl.load(lists + ahead * BLOCKS + lane, mask=ahead + share < listed, other=0).to(tl.int32)
        if GAUSSIANS == 1:
            next_words = load_words(gaussians, next_i.to(tl.int32, bitcast=True), WORDS)
            # Keeps the compiler from asking late.
            tl.debug_barrier()
        else:
            words = load_words(gaussians, i, WORDS)
        there = e + share < listed
        x = (x - corner_x)[None, None, None, :]
        y = (y - corner_y)[None, None, None, :]
        z = (z - corner_z)[None, None, None, :]
        dz = w * lzz - z
        if SKEWED:
            dy = v * lyy + (w * lyz - y)
            dx = u * lxx + (v * lxy + (w * lxz - x))
            s = dx * dx + (dy * dy + dz * dz)
        else:
            dy = v * lyy - y
            dx = u * lxx - x
            s_x = dx * dx
            s_y = dy * dy
            s_z = dz * dz
        if GAUSSIANS == 1:
            minus = -words[1][None, None, None, :]
            edge = words[2][None, None, None, :]
            amplitude = tl.where(there, words[0], 0.0)[None, None, None, :]
            slope = tl.where(there, words[3], 0.0)[None, None, None, :]
            if SKEWED:
                above = tl.clamp(tl.exp2(minus * s) - edge, 0.0, 1.0)
                within = tl.clamp(1.0 - s, 0.0, 1.0)
            else:
                above = tl.clamp(
                    tl.exp2(minus * s_x) * (tl.exp2(minus * s_y) * tl.exp2(minus * s_z)) - edge, 0.0, 1.0
                )
                within = tl.clamp((1.0 - s_z - s_y) - s_x, 0.0, 1.0)
            rho += amplitude * above
            rho -= slope * within
        else:
            constant = words[2 * GAUSSIANS][None, None, None, :]
            slope = words[2 * GAUSSIANS + 1][None, None, None, :]
            limit = tl.where(there, 1.0, -1.0)[None, None, None, :]
            if SKEWED:
                near = s < limit
                value = constant + slope * s
            else:
                near = s_x < limit - (s_y + s_z)
                value = slope * s_x + (constant + slope * (s_y + s_z))
            for c in tl.static_range(GAUSSIANS):
                minus = -words[GAUSSIANS + c][None, None, None, :]
                amplitude = words[c][None, None, None, :]
                if SKEWED:
                    value += amplitude * tl.exp2(minus * s)
                else:
                    value += tl.exp2(minus * s_x) * (
                        tl.exp2(minus * s_y) * (amplitude * tl.exp2(minus * s_z))
                    )
            rho = tl.where(near, rho + value, rho)
        x, y, z, i = next_x, next_y, next_z, next_i.to(tl.int32, bitcast=True)
        next_x, next_y, next_z, next_i = after_x, after_y, after_z, after_i
        if GAUSSIANS == 1:
            words = next_words
    return rho


@triton.jit
def _tiles_in_reach(first, last, SIZE: tl.constexpr, reach, n, tiles, PERIODIC: tl.constexpr):
    """The first of the tiles along an axis, numbered on through the images, whose atoms reach some voxels, and how many."""
    first = numbered(first - tl.ceil(reach).to(tl.int32), n, SIZE, tiles, PERIODIC)
    return first, numbered(last + tl.floor(reach).to(tl.int32), n, SIZE, tiles, PERIODIC) - first + 1


@triton.jit
def _divide(i, n):
    """The quotient of small numbers: the half makes it right in spite of rounding, up to 2^21."""
    return ((i.to(tl.float32) + 0.5) / n.to(tl.float32)).to(tl.int32)


@kernel("n_atoms", "n_tiles", *SIZES)
def splat(
    tiles,
    n_touched,
    start,
    in_space,
    gaussians,
    geometry,
    nx,
    ny,
    nz,
    waiting,
    lists,
    density,
    target,
    moments,
    total_weight,
    sums,
    n_tiles,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    PERIODIC: tl.constexpr,
    MEASURE: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Write the density of every touched tile, and each tile's part of the sums of the similarity.

    SHARES lanes share the atoms of a block of the tile, and add up what they have at the end. With a measure, the density is
    written tile by tile, else as a grid.
    """
    program = tl.program_id(0)
    waiting += program * (4 * WAITING)
    lists += program * (BLOCKS * (WAITING + 1))
    lxx, lxy, lxz, lyy, lyz, lzz = steps_of_grid(geometry)
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
    orthogonal = (lxy == 0.0) & (lxz == 0.0) & (lyz == 0.0)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, limit = _box(
        TILE_X, TILE_Y, TILE_Z, lxx, lxy, lxz, lyy, lyz, lzz, orthogonal
    )
    lane = tl.arange(0, LANES)
    block_x = lane % BLOCKS_X * BLOCK_X
    block_y = lane // BLOCKS_X % BLOCKS_Y * BLOCK_Y
    block_z = lane % BLOCKS // (BLOCKS_X * BLOCKS_Y) * BLOCK_Z
    corner_x = block_x * lxx + block_y * lxy + block_z * lxz - middle_x
    corner_y = block_y * lyy + block_z * lyz - middle_y
    corner_z = block_z * lzz - middle_z
    corner = (corner_x, corner_y, corner_z)
    steps = (lxx, lxy, lxz, lyy, lyz, lzz)
    candidate = lane[:, None] + LANES * tl.arange(0, CANDIDATES // LANES)[None, :]
    row_of_candidate = candidate // ATOMS_OF_ROW
    place_in_row = candidate % ATOMS_OF_ROW
    ROWS: tl.constexpr = CANDIDATES // ATOMS_OF_ROW
    tiles_x, tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)

    for turn in range(program, tl.load(n_touched), tl.num_programs(0)):
        tile, x0, y0, z0 = touched_tile(tiles, turn)
        x1 = tl.minimum(x0 + TILE_X, nx) - 1
        y1 = tl.minimum(y0 + TILE_Y, ny) - 1
        z1 = tl.minimum(z0 + TILE_Z, nz) - 1
        low_x = x0 - tl.ceil(reach_x).to(tl.int32)
        high_x = x1 + tl.floor(reach_x).to(tl.int32)
        first_y, many_y = _tiles_in_reach(y0, y1, TILE_Y, reach_y, ny, tiles_y, PERIODIC)
        first_z, many_z = _tiles_in_reach(z0, z1, TILE_Z, reach_z, nz, tiles_z, PERIODIC)
        if PERIODIC:
            image_x = floor_divide(low_x, nx)
            many_x = floor_divide(high_x, nx) - image_x + 1
        else:
            image_x = 0
            many_x = 1
        rows = many_x * many_y * many_z

        rho = tl.zeros([BLOCK_Z, BLOCK_Y, BLOCK_X, LANES], tl.float32)
        first_row = 0
        k = 0
        while first_row < rows:
            # Until no more may fit, mostly once for a tile: what the search knows of its rows need not be kept meanwhile.
            n_waiting = 0
            while (first_row < rows) & (n_waiting <= WAITING - CANDIDATES):
                # A row of tiles along x is one stretch of the list, in every image of the cell that the tile sees.
                row = first_row + row_of_candidate
                if PERIODIC:
                    row_yz = _divide(row, many_x)
                    shift_x = (image_x + row - row_yz * many_x) * nx
                else:
                    row_yz = row
                    shift_x = 0
                row_z = _divide(row_yz, many_y)
                ty = first_y + (row_yz - row_z * many_y)
                tz = first_z + row_z
                away_y = -y0
                away_z = -z0
                if PERIODIC:
                    image_y = floor_divide(ty, tiles_y)
                    image_z = floor_divide(tz, tiles_z)
                    ty -= image_y * tiles_y
                    tz -= image_z * tiles_z
                    away_y += image_y * ny
                    away_z += image_z * nz
                away_x = shift_x - x0
                away_y = (away_y + ty * TILE_Y).to(tl.float32)
                away_z = (away_z + tz * TILE_Z).to(tl.float32)
                line_x = away_y * lxy + away_z * lxz - middle_x
                line_y = away_y * lyy + away_z * lyz - middle_y
                line_z = away_z * lzz - middle_z
                line = (tz * tiles_y + ty) * tiles_x
                first_x = tile_along(low_x - shift_x, nx, TILE_X)
                last_x = tile_along(high_x - shift_x, nx, TILE_X)
                begin = tl.load(start + line + first_x, mask=row < rows, other=0) + place_in_row
                end = tl.load(start + line + last_x + 1, mask=row < rows, other=0)
                longest = tl.max(tl.max(end - begin + place_in_row, axis=0), axis=0)
                while (k < longest) & (n_waiting <= WAITING - CANDIDATES):
                    there = begin + k < end
                    i = tl.where(there, begin + k, 0)
                    x, y, z, tile_x = load_four(in_space, i)
                    x += (tile_x.to(tl.int32, bitcast=True) + away_x).to(tl.float32) * lxx + line_x
                    y += line_y
                    z += line_z
                    near = there & _reached(x, y, z, half_x, half_y, half_z, limit)
                    of_lane = tl.sum(near.to(tl.int32), axis=1)
                    before = n_waiting + tl.cumsum(of_lane, axis=0) - of_lane
                    place = before[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
                    store_four(waiting, place, x, y, z, i.to(tl.float32, bitcast=True), near)
                    n_waiting += tl.sum(of_lane, axis=0)
                    k += ATOMS_OF_ROW
                if k >= longest:
                    first_row += ROWS
                    k = 0
            tl.debug_barrier()
            _list_by_block(waiting, n_waiting, lists, *corner, *steps, orthogonal)
            tl.debug_barrier()
            if orthogonal:
                rho = _add_listed(rho, waiting, lists, *corner, gaussians, *steps, GAUSSIANS, WORDS, False)
            else:
                rho = _add_listed(rho, waiting, lists, *corner, gaussians, *steps, GAUSSIANS, WORDS, True)
            tl.debug_barrier()

        total = tl.sum(tl.reshape(rho, [BLOCK_Z, BLOCK_Y, BLOCK_X, SHARES, BLOCKS]), axis=3)
        by_block = tl.reshape(total, [BLOCK_Z, BLOCK_Y, BLOCK_X, BLOCKS_Z, BLOCKS_Y, BLOCKS_X])
        total = tl.reshape(tl.permute(by_block, [3, 0, 4, 1, 5, 2]), [TILE])
        at, inside = voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE, ALIGNED)
        if MEASURE == DENSITY_ONLY:
            tl.store(density + at, total, mask=inside)
        else:
            tl.store(density + voxels_by_tile(tile, WIDE), total)
            t = tl.load(target + at, mask=inside, other=0.0)
            counts = inside & (t - t == 0.0)
            if MEASURE == RELATIVE_ENTROPY:
                counts = counts & (t > 0.0)
            t = tl.where(counts, t, 0.0)
            total = tl.where(counts, total, 0.0)
            if MEASURE == RELATIVE_ENTROPY:
                inverse_floor = (1.0 / (1e-3 / tl.load(moments + 3) * total_weight)).to(tl.float32)
                shifted = tl.maximum(total * inverse_floor + 1.0, 1e-6)
                tl.store(sums + turn, tl.sum(t * tl.log(shifted)))
            else:
                tl.store(sums + turn, tl.sum(total))
                tl.store(sums + n_tiles + turn, tl.sum(total * total))
                tl.store(sums + 2 * n_tiles + turn, tl.sum(total * t))
