"""Atoms on the GPU's grid: the tile where each lies, and what later kernels need of them in the order of the tiles.

Atoms are counted, scanned and filled in, and ordered by their number within a tile, so that every sum over them has one order.
Positions become voxel and fraction in float64; what the loops over voxels need of an atom is in float32, relative to its tile.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_geometry import cholesky_of_metric, reach_of_sphere
from .gpu_tiles import SIZES, TILE_X, TILE_Y, TILE_Z, kernel, tile_along, tiles_of_grid

PLACE_BLOCK = 32
LOG2_E = tl.constexpr(1.4426950408889634)

# The words of an atom in `gaussians`, padded to a multiple of four. Three parts begin at these multiples of C, the number of
# Gaussians: C amplitudes A, C exponents α log₂(e) in units of the cut-off, two terms that bring value and slope to zero there.
AMPLITUDES, EXPONENTS, EDGE_TERMS = (tl.constexpr(part) for part in range(3))
# The edge terms: ρ = Σ A exp(−α s) + EDGE_CONSTANT + EDGE_SLOPE s. Where an atom has one Gaussian, in place of the constant
# exp(−α) at the cut-off.
EDGE_CONSTANT, EDGE_SLOPE = tl.constexpr(0), tl.constexpr(1)
EDGE_EXPONENTIAL = EDGE_CONSTANT


def words_of_gaussians(gaussians: int) -> int:
    """Return how many words an atom has in `gaussians`."""
    return 4 * triton.cdiv(2 * gaussians + 2, 4)


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
    """Return whether atoms, (BLOCK,) or one, reach the grid, their particles, voxels and fractions of a voxel; see `place`."""
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
    """Find the tile of every atom, and count the atoms of every tile.

    Launch grid: ``(cdiv(n_atoms, BLOCK),)``: a lane to an atom.

    =========================  =================  ==========  ==========================================================
    argument                   shape              dtype       what it is
    =========================  =================  ==========  ==========================================================
    positions                  (n_positions, 3)   float32/64
    atoms                      (n_atoms,)         int64       the particle of each atom; not read unless SELECTED
    n_atoms, n_positions       scalar             int32
    inverse                    (9,)               float64     from a position to voxels
    geometry                   (GEOMETRY_SLOTS,)  float32
    origin                     (3,)               float64     position of voxel 0
    nx, ny, nz                 scalar             int32       voxels of the grid
    tile_of                    (n_atoms,)         int32       out: the atom's tile, −1 out of reach
    arrival                    (n_atoms,)         int32       out: how many atoms were in the tile before
    count                      (n_tiles,)         int32       0 before; atoms in each tile
    SELECTED, PERIODIC, BLOCK  constant                       SELECTED: whether atoms are some of the particles, not all
    =========================  =================  ==========  ==========================================================
    """
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


@kernel("n_atoms")
def fill(tile_of, arrival, n_atoms, start, unsorted, BLOCK: tl.constexpr):
    """List the atoms of every tile as they arrived.

    Launch grid: ``(cdiv(n_atoms, BLOCK),)``: a lane to an atom.

    ================  ==============  =====  ==========================
    argument          shape           dtype  what it is
    ================  ==============  =====  ==========================
    tile_of, arrival  (n_atoms,)      int32  of `place`
    n_atoms           scalar          int32
    start             (n_tiles + 1,)  int32  of `scan`
    unsorted          (n_atoms,)      int32  out: atoms tile after tile
    BLOCK             constant
    ================  ==============  =====  ==========================
    """
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

    Launch grid: ``(cdiv(n_atoms, BLOCK),)``: a lane to a listed atom.

    =========================  ====================  ==========  =================================================================
    argument                   shape                 dtype       what it is
    =========================  ====================  ==========  =================================================================
    positions                  (n_positions, 3)      float32/64
    atoms                      (n_atoms,)            int64       the particle of each atom; not read unless SELECTED
    n_atoms, n_positions       scalar                int32
    inverse                    (9,)                  float64     from a position to voxels
    geometry                   (GEOMETRY_SLOTS,)     float32
    origin                     (3,)                  float64     position of voxel 0
    nx, ny, nz                 scalar                int32       voxels of the grid
    tile_of                    (n_atoms,)            int32       of `place`
    start                      (n_tiles + 1,)        int32       of `scan`
    n_listed                   (1,)                  int32       atoms that reach the grid: the last entry of start
    unsorted                   (n_atoms,)            int32       of `fill`
    amplitudes, exponents      (n_atoms, GAUSSIANS)  float32     A and α
    cutoff                     scalar                float32
    in_space                   (n_atoms, 4)          float32     out: U times the way from the first voxel of its tile to the
                                                                 atom; the x of that voxel as an int32
    to_corner                  (n_atoms, 4)          float32     out: from the atom to the first voxel of the box around its
                                                                 sphere, in voxels; the last not read
    corner                     (n_atoms, 4)          int32       out: that voxel, counted on through the images; the particle
    gaussians                  (n_atoms, WORDS)      float32     out: see AMPLITUDES
    GAUSSIANS, WORDS           constant                          Gaussians of an atom; `words_of_gaussians`
    SELECTED, PERIODIC, BLOCK  constant                          SELECTED: whether atoms are some of the particles, not all
    ALIGNED                    constant                          whether boxes begin at multiples of four voxels along x
    =========================  ====================  ==========  =================================================================
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = slot < tl.load(n_listed)
    atom = tl.load(unsorted + slot, mask=there, other=0)
    tile = tl.load(tile_of + atom, mask=there, other=0)
    begin_at = tl.load(start + tile, mask=there, other=0)
    members = tl.load(start + tile + 1, mask=there, other=0) - begin_at
    rank = begin_at
    for k in range(0, tl.max(members, axis=0)):
        other = tl.load(unsorted + begin_at + k, mask=there & (k < members), other=0x7FFFFFFF)
        rank += (other < atom).to(tl.int32)
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
    u_xx, u_xy, u_xz, u_yy, u_yz, u_zz = cholesky_of_metric(geometry)
    store_four(
        in_space,
        rank,
        x * u_xx + (y * u_xy + z * u_xz),
        y * u_yy + z * u_yz,
        z * u_zz,
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
    store_four(to_corner, rank, to_x, to_y, to_z, to_z, there)
    store_four(corner, rank, x0, y0, z0, particle.to(tl.int32), there)
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
    # The slope again is what the words are padded with.
    words = words + exponents_2 + (constant, slope, slope, slope)
    for k in tl.static_range(WORDS // 4):
        store_four(
            gaussians,
            rank * (WORDS // 4) + k,
            words[4 * k],
            words[4 * k + 1],
            words[4 * k + 2],
            words[4 * k + 3],
            there,
        )


@triton.jit
def first_of_box(v, f, reach, n, PERIODIC: tl.constexpr):
    """Return the first voxel that a sphere reaches along an axis."""
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
    """Return four numbers that lie together, of each entry."""
    entries = tl.load(table + 4 * tl.expand_dims(i, -1) + tl.arange(0, 4))
    # 0 and 2, 1 and 3.
    even, odd = tl.split(tl.reshape(entries, i.shape + [2, 2]))  # noqa: RUF005
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def load_words(gaussians, i, WORDS: tl.constexpr):
    """Return the words of each atom in `gaussians`."""
    words = ()
    for k in tl.static_range(WORDS // 4):
        words = words + load_four(gaussians, i * (WORDS // 4) + k)
    return words
