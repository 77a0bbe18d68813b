"""Density on the GPU: a program takes a tile, and adds up in registers the atoms that reach it.

It searches the tiles around for atoms that reach its own and collects them in a buffer of candidates. When another step of the
search might not fit, and at the end, the buffer is flushed: the candidates that reach each block of 4x4x2 voxels are listed, and
each lane adds its share of the list of a block to the density. Lengths are U times a distance in voxels (`gpu_geometry`): in
units of the cut-off, and here from the middle of the tile.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_atoms import (
    AMPLITUDES,
    EDGE_CONSTANT,
    EDGE_EXPONENTIAL,
    EDGE_SLOPE,
    EDGE_TERMS,
    EXPONENTS,
    load_four,
    load_words,
    store_four,
)
from .gpu_geometry import cholesky_of_metric, reach_of_sphere
from .gpu_measures import store_tile_sums
from .gpu_tiles import (
    SIZES,
    TILE,
    TILE_X,
    TILE_Y,
    TILE_Z,
    floor_divide,
    kernel,
    tile_along,
    tile_through_images,
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
SEARCH_STEP, ATOMS_OF_ROW = tl.constexpr(128), tl.constexpr(8)
# The atoms that the buffer of candidates holds.
BUFFER = tl.constexpr(384)
# Of these, so many for each lane are listed by block at once.
LISTED_AT_ONCE = tl.constexpr(8)
# In place of a measure: no sums, and the density as a grid.
DENSITY_ONLY = tl.constexpr(-1)


@triton.jit
def _box(
    SIZE_X: tl.constexpr,
    SIZE_Y: tl.constexpr,
    SIZE_Z: tl.constexpr,
    u_xx,
    u_xy,
    u_xz,
    u_yy,
    u_yz,
    u_zz,
    orthogonal,
):
    """Return the middle of a box of voxels from its first, half its size, and the squared reach; a skewed one as a sphere."""
    half_x = u_xx * ((SIZE_X - 1) / 2)
    half_y = u_yy * ((SIZE_Y - 1) / 2)
    half_z = u_zz * ((SIZE_Z - 1) / 2)
    middle_x = half_x + u_xy * ((SIZE_Y - 1) / 2) + u_xz * ((SIZE_Z - 1) / 2)
    middle_y = half_y + u_yz * ((SIZE_Z - 1) / 2)
    middle_z = half_z
    wide_x = half_x + tl.abs(u_xy) * ((SIZE_Y - 1) / 2) + tl.abs(u_xz) * ((SIZE_Z - 1) / 2)
    wide_y = half_y + tl.abs(u_yz) * ((SIZE_Z - 1) / 2)
    around = tl.sqrt(wide_x * wide_x + wide_y * wide_y + half_z * half_z)
    radius = tl.where(orthogonal, 1.0, 1.0 + around) * (1.0 + 1e-5)
    half_x = tl.where(orthogonal, half_x, 0.0)
    half_y = tl.where(orthogonal, half_y, 0.0)
    half_z = tl.where(orthogonal, half_z, 0.0)
    return middle_x, middle_y, middle_z, half_x, half_y, half_z, radius * radius


@triton.jit
def _reached(x, y, z, half_x, half_y, half_z, limit):
    """Return whether atoms reach a box, from their positions relative to its middle."""
    off_x = tl.maximum(tl.abs(x) - half_x, 0.0)
    off_y = tl.maximum(tl.abs(y) - half_y, 0.0)
    off_z = tl.maximum(tl.abs(z) - half_z, 0.0)
    return off_x * off_x + off_y * off_y + off_z * off_z < limit


@triton.jit
def _sum_of_lanes(of_lane):
    """Return, for lanes that share a block, the sum over those before each and the sum over all."""
    by_block = tl.reshape(of_lane, [SHARES, BLOCKS])
    before = tl.cumsum(by_block, axis=0) - by_block
    total = tl.broadcast_to(tl.sum(by_block, axis=0)[None, :], [SHARES, BLOCKS])
    return tl.reshape(before, [LANES]), tl.reshape(total, [LANES])


@triton.jit
def _list_by_block(
    candidates,
    n_candidates,
    lists,
    corner_x,
    corner_y,
    corner_z,
    u_xx,
    u_xy,
    u_xz,
    u_yy,
    u_yz,
    u_zz,
    orthogonal,
):
    """List for every block of a tile how many of the candidates reach it, and which.

    In an orthogonal grid their distance from the block decides, else, with some to spare, that from its middle. Shapes are as
    in `_add_listed`; `lists` is written.
    """
    lane = tl.arange(0, LANES)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, limit = _box(
        BLOCK_X, BLOCK_Y, BLOCK_Z, u_xx, u_xy, u_xz, u_yy, u_yz, u_zz, orthogonal
    )
    middle_x = (corner_x + middle_x)[:, None]
    middle_y = (corner_y + middle_y)[:, None]
    middle_z = (corner_z + middle_z)[:, None]
    listed = tl.zeros([LANES], tl.int32)
    for first in range(0, n_candidates, LISTED_AT_ONCE * SHARES):
        # The size of the buffer is a multiple of these: beyond the last candidate there is something to load.
        ahead = tl.arange(0, LISTED_AT_ONCE)[None, :] * SHARES
        ahead = tl.broadcast_to(ahead, [LANES, LISTED_AT_ONCE])
        m = first + (lane // BLOCKS)[:, None] + ahead
        x, y, z, _i = load_four((candidates + 4 * (first + lane // BLOCKS))[:, None, None], ahead)
        near = (m < n_candidates) & _reached(
            x - middle_x, y - middle_y, z - middle_z, half_x, half_y, half_z, limit
        )
        before, total = _sum_of_lanes(tl.sum(near.to(tl.int32), axis=1))
        index = (listed + before)[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
        tl.store(lists + BLOCKS + index * BLOCKS + (lane % BLOCKS)[:, None], m.to(tl.int16), mask=near)
        listed += total
    tl.store(lists + lane % BLOCKS, listed.to(tl.int16))


@triton.jit
def _add_listed(
    rho,
    candidates,
    lists,
    corner_x,
    corner_y,
    corner_z,
    gaussians,
    u_xx,
    u_xy,
    u_xz,
    u_yy,
    u_yz,
    u_zz,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    SKEWED: tl.constexpr,
):
    """Add the atoms that are listed for a block to the density of its voxels, each lane its share.

    In an orthogonal grid an exponential is a product of one for each axis, else it takes the whole distance. One Gaussian is
    above its value at the cut-off within it and nowhere else, so that what an atom adds is a difference of two numbers that
    are clamped between 0 and 1, which costs the GPU nothing. `rho`, returned too, is (BLOCK_Z, BLOCK_Y, BLOCK_X, LANES): the
    voxels of the lane's block. `corner_x`, `corner_y` and `corner_z`, each (LANES,), are the first voxel of the block from the
    middle of the tile; `candidates` and `lists` of a program are (BUFFER, 4) and (BUFFER + 1, BLOCKS), `gaussians` (n_atoms,
    WORDS), the elements of U scalars.
    """
    u = tl.arange(0, BLOCK_X)[None, None, :, None].to(tl.float32)
    v = tl.arange(0, BLOCK_Y)[None, :, None, None].to(tl.float32)
    w = tl.arange(0, BLOCK_Z)[:, None, None, None].to(tl.float32)
    lane = tl.arange(0, LANES)
    share = lane // BLOCKS
    listed = tl.load(lists + lane % BLOCKS).to(tl.int32)
    lists += BLOCKS
    # Each iteration loads ahead for the next ones before its own work, so that none waits: where the atom after the next is,
    # which the third is, and the next one's Gaussian, where that is only one.
    m = tl.load(lists + lane, mask=share < listed, other=0).to(tl.int32)
    x, y, z, i = load_four(candidates, m)
    i = tl.where(share < listed, i.to(tl.int32, bitcast=True), 0)
    if GAUSSIANS == 1:
        words = load_words(gaussians, i, WORDS)
    m = tl.load(lists + lane + LANES, mask=share + SHARES < listed, other=0).to(tl.int32)
    next_x, next_y, next_z, next_i = load_four(candidates, m)
    m = tl.load(lists + lane + 2 * LANES, mask=share + 2 * SHARES < listed, other=0).to(tl.int32)
    for e in range(0, tl.max(listed, axis=0), SHARES):
        after_x, after_y, after_z, after_i = load_four(candidates, m)
        ahead = e + 3 * SHARES
        m = tl.load(lists + ahead * BLOCKS + lane, mask=ahead + share < listed, other=0).to(tl.int32)
        if GAUSSIANS == 1:
            next_words = load_words(gaussians, next_i.to(tl.int32, bitcast=True), WORDS)
            # Keeps the compiler from moving the loads down.
            tl.debug_barrier()
        else:
            words = load_words(gaussians, i, WORDS)
        there = e + share < listed
        x = (x - corner_x)[None, None, None, :]
        y = (y - corner_y)[None, None, None, :]
        z = (z - corner_z)[None, None, None, :]
        dz = w * u_zz - z
        if SKEWED:
            dy = v * u_yy + (w * u_yz - y)
            dx = u * u_xx + (v * u_xy + (w * u_xz - x))
            s = dx * dx + (dy * dy + dz * dz)
        else:
            dy = v * u_yy - y
            dx = u * u_xx - x
            s_x = dx * dx
            s_y = dy * dy
            s_z = dz * dz
        if GAUSSIANS == 1:
            minus = -words[EXPONENTS][None, None, None, :]
            edge = words[EDGE_TERMS + EDGE_EXPONENTIAL][None, None, None, :]
            amplitude = tl.where(there, words[AMPLITUDES], 0.0)[None, None, None, :]
            slope = tl.where(there, words[EDGE_TERMS + EDGE_SLOPE], 0.0)[None, None, None, :]
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
            constant = words[EDGE_TERMS * GAUSSIANS + EDGE_CONSTANT][None, None, None, :]
            slope = words[EDGE_TERMS * GAUSSIANS + EDGE_SLOPE][None, None, None, :]
            limit = tl.where(there, 1.0, -1.0)[None, None, None, :]
            if SKEWED:
                near = s < limit
                value = constant + slope * s
            else:
                near = s_x < limit - (s_y + s_z)
                value = slope * s_x + (constant + slope * (s_y + s_z))
            for c in tl.static_range(GAUSSIANS):
                minus = -words[EXPONENTS * GAUSSIANS + c][None, None, None, :]
                amplitude = words[AMPLITUDES * GAUSSIANS + c][None, None, None, :]
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
    """Return the first of the tiles along an axis whose atoms reach some voxels, counted on through the images, and how many."""
    first = tile_through_images(first - tl.ceil(reach).to(tl.int32), n, SIZE, tiles, PERIODIC)
    return first, tile_through_images(
        last + tl.floor(reach).to(tl.int32), n, SIZE, tiles, PERIODIC
    ) - first + 1


@triton.jit
def _divide(i, n):
    """Return the quotient of small numbers: the half makes it right in spite of rounding, up to 2^21."""
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
    candidates,
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

    SHARES lanes share the atoms of a block of the tile, and add up what they have at the end.

    Launch grid: ``(programs,)``, any number, of one warp: they share the touched tiles.

    ================  ===============================  =======  ==================================================================
    argument          shape                            dtype    what it is
    ================  ===============================  =======  ==================================================================
    tiles             (n_tiles, 4)                     int32    of `scan`
    n_touched         (1,)                             int32
    start             (n_tiles + 1,)                   int32    of `scan`
    in_space          (n_atoms, 4)                     float32  of `arrange`
    gaussians         (n_atoms, WORDS)                 float32  of `arrange`
    geometry          (GEOMETRY_SLOTS,)                float32
    nx, ny, nz        scalar                           int32    voxels of the grid
    candidates        (4·BUFFER·programs,)             float32  scratch, flat: of each candidate position, and atom as an int32
    lists             (BLOCKS·(BUFFER + 1)·programs,)  int16    scratch, flat: how many candidates reach each block, then which
    density           (n_tiles·TILE,)                  float32  out: flat, in storage order; (nz, ny, nx) with DENSITY_ONLY
    target            (nz, ny, nx)                     float32  not finite where a voxel does not count; unused with DENSITY_ONLY
    moments           (6,)                             float64  in the slots of `measures.Moment`; likewise
    total_weight      scalar                           float32  W
    sums              (3, n_tiles)                     float32  out: in the slots of `measures.Sum`, by entry of `tiles`; likewise
    n_tiles           scalar                           int32
    GAUSSIANS, WORDS  constant                                  Gaussians of an atom; `words_of_gaussians`
    PERIODIC          constant
    MEASURE           constant                                  one of the measures, or DENSITY_ONLY
    WIDE, ALIGNED     constant                                  indices need 64 bits; nx is a multiple of 4
    ================  ===============================  =======  ==================================================================
    """
    program = tl.program_id(0)
    candidates += program * (4 * BUFFER)
    lists += program * (BLOCKS * (BUFFER + 1))
    u_xx, u_xy, u_xz, u_yy, u_yz, u_zz = cholesky_of_metric(geometry)
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
    orthogonal = (u_xy == 0.0) & (u_xz == 0.0) & (u_yz == 0.0)
    middle_x, middle_y, middle_z, half_x, half_y, half_z, limit = _box(
        TILE_X, TILE_Y, TILE_Z, u_xx, u_xy, u_xz, u_yy, u_yz, u_zz, orthogonal
    )
    lane = tl.arange(0, LANES)
    block_x = lane % BLOCKS_X * BLOCK_X
    block_y = lane // BLOCKS_X % BLOCKS_Y * BLOCK_Y
    block_z = lane % BLOCKS // (BLOCKS_X * BLOCKS_Y) * BLOCK_Z
    corner_x = block_x * u_xx + block_y * u_xy + block_z * u_xz - middle_x
    corner_y = block_y * u_yy + block_z * u_yz - middle_y
    corner_z = block_z * u_zz - middle_z
    corner = (corner_x, corner_y, corner_z)
    steps = (u_xx, u_xy, u_xz, u_yy, u_yz, u_zz)
    searched = lane[:, None] + LANES * tl.arange(0, SEARCH_STEP // LANES)[None, :]
    row_of_searched = searched // ATOMS_OF_ROW
    index_in_row = searched % ATOMS_OF_ROW
    ROWS: tl.constexpr = SEARCH_STEP // ATOMS_OF_ROW
    tiles_x, tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)

    for entry in range(program, tl.load(n_touched), tl.num_programs(0)):
        tile, x0, y0, z0 = touched_tile(tiles, entry)
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
            # Until the buffer is flushed, mostly once for a tile: the search's registers need not be kept meanwhile.
            n_candidates = 0
            while (first_row < rows) & (n_candidates <= BUFFER - SEARCH_STEP):
                # A row of tiles along x is one stretch of the list, in every image of the cell that the tile sees.
                row = first_row + row_of_searched
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
                line_x = away_y * u_xy + away_z * u_xz - middle_x
                line_y = away_y * u_yy + away_z * u_yz - middle_y
                line_z = away_z * u_zz - middle_z
                line = (tz * tiles_y + ty) * tiles_x
                first_x = tile_along(low_x - shift_x, nx, TILE_X)
                last_x = tile_along(high_x - shift_x, nx, TILE_X)
                begin = tl.load(start + line + first_x, mask=row < rows, other=0) + index_in_row
                end = tl.load(start + line + last_x + 1, mask=row < rows, other=0)
                longest = tl.max(tl.max(end - begin + index_in_row, axis=0), axis=0)
                while (k < longest) & (n_candidates <= BUFFER - SEARCH_STEP):
                    there = begin + k < end
                    i = tl.where(there, begin + k, 0)
                    x, y, z, tile_x = load_four(in_space, i)
                    x += (tile_x.to(tl.int32, bitcast=True) + away_x).to(tl.float32) * u_xx + line_x
                    y += line_y
                    z += line_z
                    near = there & _reached(x, y, z, half_x, half_y, half_z, limit)
                    of_lane = tl.sum(near.to(tl.int32), axis=1)
                    before = n_candidates + tl.cumsum(of_lane, axis=0) - of_lane
                    index = before[:, None] + tl.cumsum(near.to(tl.int32), axis=1) - 1
                    store_four(candidates, index, x, y, z, i.to(tl.float32, bitcast=True), near)
                    n_candidates += tl.sum(of_lane, axis=0)
                    k += ATOMS_OF_ROW
                if k >= longest:
                    first_row += ROWS
                    k = 0
            tl.debug_barrier()
            _list_by_block(candidates, n_candidates, lists, *corner, *steps, orthogonal)
            tl.debug_barrier()
            if orthogonal:
                rho = _add_listed(rho, candidates, lists, *corner, gaussians, *steps, GAUSSIANS, WORDS, False)
            else:
                rho = _add_listed(rho, candidates, lists, *corner, gaussians, *steps, GAUSSIANS, WORDS, True)
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
            store_tile_sums(sums, entry, n_tiles, total, t, inside, moments, total_weight, MEASURE)
