"""Forces on the GPU: the adjoint of the splat, gathered by atoms from the voxels around them."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_atoms import (
    AMPLITUDES,
    EDGE_EXPONENTIAL,
    EDGE_SLOPE,
    EDGE_TERMS,
    EXPONENTS,
    LOG2_E,
    first_of_box,
    load_four,
    load_words,
    located,
)
from .gpu_geometry import cholesky_of_metric, reach_of_sphere, twice_matrix
from .gpu_tiles import PLANE, SIZES, TILE, TILE_X, TILE_Y, floor_divide, kernel, tiles_of_grid

# Atoms of a group, which a program gathers together, and the lanes of each.
ATOMS, RUNS, LANES = tl.constexpr(2), tl.constexpr(16), tl.constexpr(32)
# Planes of an iteration of the loop over them: the nine of a sphere of 4.4 voxels take three.
PLANES_AT_ONCE = tl.constexpr(3)
FAR = tl.constexpr(1e18)


@triton.jit
def _last_of_box(to_corner, reach, first, n, PERIODIC: tl.constexpr):
    """Return the number of the last voxel of a sphere's box, counted from the first; negative where there is none."""
    last = tl.floor(reach - to_corner).to(tl.int32)
    if not PERIODIC:
        last = tl.minimum(last, n - 1 - first)
    return last


@triton.jit
def _bottom(x, y, nx, ny, tiles_x, column, PERIODIC: tl.constexpr, WIDE: tl.constexpr):
    """Return the indices of voxels of z 0 in storage order; `column` is the number of voxels in a column of tiles."""
    if PERIODIC:
        x -= floor_divide(x, nx) * nx
        y -= floor_divide(y, ny) * ny
    # Unsigned, these are shifts.
    x = x.to(tl.uint32, bitcast=True)
    y = y.to(tl.uint32, bitcast=True)
    tile = (y // TILE_Y).to(tl.int32) * tiles_x + (x // TILE_X).to(tl.int32)
    return (tile.to(tl.int64) if WIDE else tile) * column + (y % TILE_Y * TILE_X + x % TILE_X).to(tl.int32)


@triton.jit
def _load_plane(field, plane, bottom, ALIGNED: tl.constexpr):
    """Return the runs of a plane, which lies so far above the bottom of the grid."""
    if ALIGNED:
        return tl.load(field + tl.multiple_of(plane + bottom, 4)[None, :] + tl.arange(0, 4)[:, None])
    else:
        return tl.load(field + plane[None, :] + bottom)


@triton.jit
def _planes(
    field,
    bottom_0,
    bottom_1,
    x,
    y_0,
    y_1,
    between,
    dz,
    plane,
    last,
    planes,
    top,
    u_xz,
    u_yz,
    u_zz,
    gaussians,
    i,
    at_cutoff,
    GAUSSIANS: tl.constexpr,
    WORDS: tl.constexpr,
    PERIODIC: tl.constexpr,
    ALIGNED: tl.constexpr,
    SKEWED: tl.constexpr,
):
    """Return, for the runs of two rows, the sum of field times −ρ′(s) over the planes of a box, and the sum of the sums so far.

    What depends on x and y alone is worked out once for all planes of an orthogonal grid. All three results are (4, LANES): the
    voxels of a lane's run.

    ==================  ==============================  ==============================================================
    argument            shape                           what it is
    ==================  ==============================  ==============================================================
    field               (n_tiles·TILE,)                 of `gather_forces`
    bottom_0, bottom_1  (LANES,) or (4, LANES)          of `_bottom`: of runs if ALIGNED, else of voxels
    x                   (4, LANES)                      from the atom to the voxels of the first row, U applied
    y_0, y_1            (LANES,)                        from the atom to the rows, likewise; FAR where there is none
    between             (LANES,)                        what the second row adds to x
    dz, plane, last     (LANES,)                        from the atom to the first plane, in voxels; where it is in
                                                        `field`; the number of the last
    planes, top         scalar                          planes of the longest box; where those of the grid end
    u_xz, u_yz, u_zz    scalar                          of U
    gaussians           (n_atoms, WORDS)                of `arrange`
    i, at_cutoff        (LANES,)                        the atom, and its exp(−α) or slope at the cut-off
    ==================  ==============================  ==============================================================
    """
    alphas = ()
    alphas_z = ()
    factors_0 = ()
    factors_1 = ()
    for c in tl.static_range(GAUSSIANS):
        alpha = tl.load(gaussians + WORDS * i + (EXPONENTS * GAUSSIANS + c))
        factor_0 = tl.full([1, 1], 1.0, tl.float32)
        if GAUSSIANS > 1:
            factor_0 = (tl.load(gaussians + WORDS * i + (AMPLITUDES * GAUSSIANS + c)) * alpha / LOG2_E)[
                None, :
            ]
        alphas = alphas + (alpha,)  # noqa: RUF005
        alphas_z = alphas_z + (-alpha * (u_zz * u_zz),)  # noqa: RUF005
        factor_1 = factor_0
        if not SKEWED:
            along_x = tl.exp2(-alpha[None, :] * (x * x))
            factor_0 = along_x * (factor_0 * tl.exp2(-alpha * (y_0 * y_0))[None, :])
            factor_1 = along_x * (factor_1 * tl.exp2(-alpha * (y_1 * y_1))[None, :])
        factors_0 = factors_0 + (factor_0,)  # noqa: RUF005
        factors_1 = factors_1 + (factor_1,)  # noqa: RUF005
    s_xy_0 = x * x + (y_0 * y_0)[None, :]
    s_xy_1 = x * x + (y_1 * y_1)[None, :]
    plain_0 = tl.zeros([4, LANES], tl.float32)
    plain_1 = tl.zeros([4, LANES], tl.float32)
    before = tl.zeros([4, LANES], tl.float32)
    for k in tl.range(0, planes, loop_unroll_factor=PLANES_AT_ONCE):
        g_0 = _load_plane(field, plane, bottom_0, ALIGNED)
        g_1 = _load_plane(field, plane, bottom_1, ALIGNED)
        plane = tl.where(k < last, plane + PLANE, plane)
        if PERIODIC:
            plane = tl.where(plane == top, 0, plane)
        dz_square = dz * dz
        s_z = dz_square * (u_zz * u_zz)
        if SKEWED:
            away_x = x + (dz * u_xz)[None, :]
            away_y = dz * u_yz
            beyond = tl.where(k <= last, s_z, FAR)
            s_0 = away_x * away_x + ((y_0 + away_y) * (y_0 + away_y) + beyond)[None, :]
            away_x += between[None, :]
            s_1 = away_x * away_x + ((y_1 + away_y) * (y_1 + away_y) + beyond)[None, :]
        if GAUSSIANS == 1:
            # Above its value at the cut-off within it and nowhere else: clamping between 0 and 1 costs the GPU nothing.
            if SKEWED:
                above_0 = tl.exp2(-alphas[0][None, :] * s_0) - at_cutoff[None, :]
                above_1 = tl.exp2(-alphas[0][None, :] * s_1) - at_cutoff[None, :]
            else:
                along_z = tl.where(k <= last, tl.exp2(alphas_z[0] * dz_square), 0.0)[None, :]
                above_0 = factors_0[0] * along_z - at_cutoff[None, :]
                above_1 = factors_1[0] * along_z - at_cutoff[None, :]
            steepness_0 = tl.clamp(above_0, 0.0, 1.0)
            steepness_1 = tl.clamp(above_1, 0.0, 1.0)
        else:
            steepness_0 = x * 0.0 - at_cutoff[None, :]
            steepness_1 = steepness_0
            for c in tl.static_range(GAUSSIANS):
                if SKEWED:
                    steepness_0 += factors_0[c] * tl.exp2(-alphas[c][None, :] * s_0)
                    steepness_1 += factors_1[c] * tl.exp2(-alphas[c][None, :] * s_1)
                else:
                    along_z = tl.exp2(alphas_z[c] * dz_square)[None, :]
                    steepness_0 += factors_0[c] * along_z
                    steepness_1 += factors_1[c] * along_z
            if SKEWED:
                near_0 = s_0 < 1.0
                near_1 = s_1 < 1.0
            else:
                limit = tl.where(k <= last, 1.0 - s_z, -1.0)[None, :]
                near_0 = s_xy_0 < limit
                near_1 = s_xy_1 < limit
            steepness_0 = tl.where(near_0, steepness_0, 0.0)
            steepness_1 = tl.where(near_1, steepness_1, 0.0)
        plain_0 += g_0 * steepness_0
        plain_1 += g_1 * steepness_1
        before += plain_0
        before += plain_1
        # Exact: its bits are those of the first.
        dz += 1.0
    return plain_0, plain_1, before


@kernel("n_atoms", *SIZES)
def gather_forces(
    n_listed,
    to_corner,
    corner,
    gaussians,
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
    GROUPS: tl.constexpr,
):
    """Differentiate Σ field·ρ with respect to the positions of groups of atoms that lie side by side.

    A program goes through GROUPS groups of ATOMS atoms, and with each through the planes of their boxes. Of RUNS lanes of an
    atom each sees a run of four voxels along x in the first half of a plane's rows, and one in the second; where runs begin at
    multiples of four (ALIGNED), each is one load.

    Launch grid: ``(cdiv(n_atoms, ATOMS * GROUPS),)``, of one warp.

    ================  =================  ==========  =======================================================
    argument          shape              dtype       what it is
    ================  =================  ==========  =======================================================
    n_listed          (1,)               int32       atoms that reach the grid
    to_corner         (n_atoms, 4)       float32     of `arrange`
    corner            (n_atoms, 4)       int32       of `arrange`
    gaussians         (n_atoms, WORDS)   float32     of `arrange`
    geometry          (GEOMETRY_SLOTS,)  float32
    cutoff            scalar             float32
    nx, ny, nz        scalar             int32       voxels of the grid
    field             (n_tiles·TILE,)    float32     flat, in storage order: ∂S/∂ρ
    gradient          (n_positions, 3)   float32/64  out, for the particles that reach the grid
    GAUSSIANS, WORDS  constant                       Gaussians of an atom; `words_of_gaussians`
    PERIODIC, WIDE    constant                       WIDE: indices need 64 bits
    ALIGNED           constant                       whether boxes begin at multiples of four voxels along x
    GROUPS            constant                       groups of atoms for each program
    ================  =================  ==========  =======================================================
    """
    n = tl.load(n_listed)
    first = tl.program_id(0) * (GROUPS * ATOMS)
    if first >= n:
        return
    u_xx, u_xy, u_xz, u_yy, u_yz, u_zz = cholesky_of_metric(geometry)
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
    orthogonal = (u_xy == 0.0) & (u_xz == 0.0) & (u_yz == 0.0)
    tiles_x, _tiles_y, tiles_z = tiles_of_grid(nx, ny, nz)
    column = tiles_z * TILE
    per_cutoff = 1.0 / (cutoff * cutoff)
    to_space = twice_matrix(geometry)
    lane = tl.arange(0, LANES)
    for group in range(GROUPS):
        # Lanes without an atom, a run, a row or a plane of their own take another's, times 0: what they load is then defined.
        i = tl.minimum(first + group * ATOMS + lane // RUNS, n - 1)
        to_x, to_y, first_dz, _fourth = load_four(to_corner, i)
        x0, y0, z0, _particle = load_four(corner, i)
        last_x = _last_of_box(to_x, reach_x, x0, nx, PERIODIC)
        last_y = _last_of_box(to_y, reach_y, y0, ny, PERIODIC)
        last_z = _last_of_box(first_dz, reach_z, z0, nz, PERIODIC)
        runs = tl.maximum(last_x + 4, 4) >> 2
        half = (last_y + 2) >> 1
        units = tl.where(last_x >= 0, runs * half, 0)
        planes = tl.max(tl.where(units > 0, last_z + 1, 0), axis=0)
        if GAUSSIANS == 1:
            # The sum is multiplied with amplitude and exponent at the end.
            words = load_words(gaussians, i, WORDS)
            scale = words[AMPLITUDES] * words[EXPONENTS] * (per_cutoff / LOG2_E)
            at_cutoff = words[EDGE_TERMS + EDGE_EXPONENTIAL]
        else:
            scale = tl.full([LANES], 1.0, tl.float32) * per_cutoff
            at_cutoff = tl.load(gaussians + WORDS * i + (EDGE_TERMS * GAUSSIANS + EDGE_SLOPE))
        if PERIODIC:
            z0 -= floor_divide(z0, nz) * nz
        plane = z0 * PLANE
        per_runs = 1.0 / runs.to(tl.float32)
        half_rows = half.to(tl.float32)
        sum_x = tl.zeros([LANES], tl.float32)
        sum_y = tl.zeros([LANES], tl.float32)
        sum_z = tl.zeros([LANES], tl.float32)
        for begin in range(0, tl.max(units, axis=0), RUNS):
            unit = begin + lane % RUNS
            here = unit < units
            unit = tl.where(here, unit, 0)
            # The half makes the quotient right in spite of rounding, for any box up to 2^11 voxels wide.
            j = ((unit.to(tl.float32) + 0.5) * per_runs).to(tl.int32)
            run = unit - j * runs
            x = x0 + 4 * run
            y = y0 + j
            both = j + half <= last_y
            dx = (to_x + (4 * run).to(tl.float32))[None, :] + tl.arange(0, 4)[:, None].to(tl.float32)
            dy_0 = to_y + j.to(tl.float32)
            dy_1 = dy_0 + half_rows
            y_1 = tl.where(both, y + half, y)
            if not ALIGNED:
                # Runs that end beyond the box may end in tiles that nothing wrote.
                x = x[None, :] + tl.arange(0, 4)[:, None]
                x = tl.where(x - x0[None, :] <= last_x[None, :], x, x0[None, :])
                y = y[None, :]
                y_1 = y_1[None, :]
            bottom_0 = _bottom(x, y, nx, ny, tiles_x, column, PERIODIC, WIDE)
            bottom_1 = _bottom(x, y_1, nx, ny, tiles_x, column, PERIODIC, WIDE)
            box = (
                field,
                bottom_0,
                bottom_1,
                dx * u_xx + (dy_0 * u_xy)[None, :],
                tl.where(here, dy_0 * u_yy, FAR),
                tl.where(here & both, dy_1 * u_yy, FAR),
                half_rows * u_xy,
                first_dz,
                plane,
                last_z,
                planes,
                nz * PLANE,
                u_xz,
                u_yz,
                u_zz,
                gaussians,
                i,
                at_cutoff,
            )
            if orthogonal:
                plain_0, plain_1, before = _planes(*box, GAUSSIANS, WORDS, PERIODIC, ALIGNED, False)
            else:
                plain_0, plain_1, before = _planes(*box, GAUSSIANS, WORDS, PERIODIC, ALIGNED, True)
            row_1 = tl.sum(plain_1, axis=0)
            plain = plain_0 + plain_1
            both_rows = tl.sum(plain, axis=0)
            sum_x += tl.sum(plain * dx, axis=0)
            sum_y += both_rows * dy_0 + row_1 * half_rows
            sum_z += both_rows * (first_dz + planes) - tl.sum(before, axis=0)
        x_of_atom = tl.sum(tl.reshape(sum_x * scale, [ATOMS, RUNS]), axis=1)
        y_of_atom = tl.sum(tl.reshape(sum_y * scale, [ATOMS, RUNS]), axis=1)
        z_of_atom = tl.sum(tl.reshape(sum_z * scale, [ATOMS, RUNS]), axis=1)
        i = first + group * ATOMS + tl.arange(0, ATOMS)
        particle = tl.load(corner + 4 * i + 3, mask=i < n, other=0).to(tl.int64)
        _store_gradient(gradient + 3 * particle, to_space, x_of_atom, y_of_atom, z_of_atom, i < n)


@triton.jit
def _store_gradient(gradient, to_space, x, y, z, mask=None):
    for axis in tl.static_range(3):
        along = to_space[3 * axis] * x + to_space[3 * axis + 1] * y + to_space[3 * axis + 2] * z
        tl.store(gradient + axis, along, mask=mask)


@triton.jit
def _box_of_atom(v, f, reach, n, PERIODIC: tl.constexpr):
    """Return the first and last voxel that a sphere reaches along an axis; the last is before the first where it reaches none."""
    first = first_of_box(v, f, reach, n, PERIODIC)
    last = v + tl.floor(f + reach).to(tl.int32)
    if not PERIODIC:
        last = tl.minimum(last, n - 1)
    return first, last


@kernel("n_atoms", *SIZES)
def gather_all(
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
    RUNS_AT_ONCE: tl.constexpr,
):
    """Differentiate Σ field·ρ with respect to position, amplitudes and exponents of an atom, one Gaussian after the other.

    Launch grid: ``(n_atoms,)``, of one warp.

    =========================  ====================  ==========  ===========================================
    argument                   shape                 dtype       what it is
    =========================  ====================  ==========  ===========================================
    positions                  (n_atoms, 3)          float32/64
    n_atoms                    scalar                int32
    inverse                    (9,)                  float64     from a position to voxels
    origin                     (3,)                  float64     position of voxel 0
    amplitudes, exponents      (n_atoms, GAUSSIANS)  float32     A and α
    geometry                   (GEOMETRY_SLOTS,)     float32
    cutoff                     scalar                float32
    nx, ny, nz                 scalar                int32       voxels of the grid
    field                      (nz, ny, nx)          float32
    by_position                (n_atoms, 3)          float32/64  out
    by_amplitude, by_exponent  (n_atoms, GAUSSIANS)  float32     out
    GAUSSIANS, PERIODIC        constant
    WIDE                       constant                          indices need 64 bits
    RUNS_AT_ONCE               constant                          runs of four voxels that are loaded at once
    =========================  ====================  ==========  ===========================================
    """
    atom = tl.program_id(0)
    reaches, _particle, vx, vy, vz, fx, fy, fz = located(
        positions, positions, atom, n_atoms, n_atoms, inverse, geometry, origin, nx, ny, nz, False, PERIODIC
    )
    u_xx, u_xy, u_xz, u_yy, u_yz, u_zz = cholesky_of_metric(geometry)
    reach_x, reach_y, reach_z = reach_of_sphere(geometry)
    s_c = cutoff * cutoff
    x0, x1 = _box_of_atom(vx, fx, reach_x, nx, PERIODIC)
    y0, y1 = _box_of_atom(vy, fy, reach_y, ny, PERIODIC)
    z0, z1 = _box_of_atom(vz, fz, reach_z, nz, PERIODIC)
    runs = tl.maximum(x1 - x0 + 4, 4) // 4
    units = tl.where((x1 >= x0) & reaches, runs * (y1 - y0 + 1), 0)
    sum_x = tl.zeros([4, RUNS_AT_ONCE], tl.float32)
    sum_y = tl.zeros([4, RUNS_AT_ONCE], tl.float32)
    sum_z = tl.zeros([4, RUNS_AT_ONCE], tl.float32)
    for c in tl.static_range(GAUSSIANS):
        a = tl.load(amplitudes + atom * GAUSSIANS + c)
        alpha = tl.load(exponents + atom * GAUSSIANS + c) * s_c
        edge = tl.exp(-alpha)
        sum_a = tl.zeros([4, RUNS_AT_ONCE], tl.float32)
        sum_alpha = tl.zeros([4, RUNS_AT_ONCE], tl.float32)
        for begin in range(0, units, RUNS_AT_ONCE):
            unit = begin + tl.arange(0, RUNS_AT_ONCE)
            # As in `gather_forces`.
            j = ((unit.to(tl.float32) + 0.5) / runs.to(tl.float32)).to(tl.int32)
            y = y0 + j
            x = (x0 + 4 * (unit - j * runs))[None, :] + tl.arange(0, 4)[:, None]
            there = (unit < units)[None, :] & (x <= x1)
            in_plane = y[None, :] * nx + x
            if PERIODIC:
                in_plane = (y - floor_divide(y, ny) * ny)[None, :] * nx + x - floor_divide(x, nx) * nx
            dx = (x - vx).to(tl.float32) - fx
            dy = ((y - vy).to(tl.float32) - fy)[None, :]
            along_x = dx * u_xx + dy * u_xy
            along_y = dy * u_yy
            limit = tl.where(there, 1.0, -1.0)
            for z in range(z0, z1 + 1):
                dz = (z - vz).to(tl.float32) - fz
                away_x = along_x + dz * u_xz
                away_y = along_y + dz * u_yz
                away_z = dz * u_zz
                s = away_x * away_x + (away_y * away_y + away_z * away_z)
                near = s < limit
                plane = z
                if PERIODIC:
                    plane -= floor_divide(z, nz) * nz
                at = plane.to(tl.int64) * ny * nx + in_plane if WIDE else plane * (ny * nx) + in_plane
                g = tl.load(field + at, mask=near, other=0.0)
                e = tl.exp(-alpha * s)
                # d/dA and d/dalpha of A (exp(-alpha s) - exp(-alpha s_c) + alpha exp(-alpha s_c) (s - s_c)).
                sum_a += g * (e - edge + alpha * edge * (s - 1.0))
                sum_alpha += g * (s * (edge - e) - alpha * edge * (s - 1.0))
                w = g * (a * alpha) * (e - edge)
                sum_x += w * dx
                sum_y += w * dy
                sum_z += w * dz
        tl.store(by_amplitude + atom * GAUSSIANS + c, tl.sum(sum_a))
        tl.store(by_exponent + atom * GAUSSIANS + c, a * s_c * tl.sum(sum_alpha))
    row = by_position + 3 * atom.to(tl.int64)
    per_s_c = 1.0 / s_c
    to_space = twice_matrix(geometry)
    _store_gradient(row, to_space, tl.sum(sum_x) * per_s_c, tl.sum(sum_y) * per_s_c, tl.sum(sum_z) * per_s_c)
