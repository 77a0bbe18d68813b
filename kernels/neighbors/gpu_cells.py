"""Atoms sorted by rectangular cells of the brick, on the GPU: brick.h and cells.h have the same on the CPU."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from . import reference

# Slots of `geometry`: rows of the directions of x, y and z; where they begin; the brick; what the next faces are moved by; the
# inverse of the box; widths of cells and how many there are in a length; rounding of coordinates, and squared distances.
_TURN = tl.constexpr(0)
_ORIGIN = tl.constexpr(9)
SIZE = tl.constexpr(12)
SKEW_BX = tl.constexpr(15)
SKEW_CX = tl.constexpr(16)
SKEW_CY = tl.constexpr(17)
_INVERSE = tl.constexpr(18)
WIDTH = tl.constexpr(27)
PER_LENGTH = tl.constexpr(30)
MARGIN = tl.constexpr(33)
SURELY_IN = tl.constexpr(34)
SURELY_OUT = tl.constexpr(35)
GEOMETRY_SLOTS = 36

# Slots of `grid`: how many cells there are along x, y and z, whether a list is made, and whether the box is a box.
GRID_NX = tl.constexpr(0)
GRID_NY = tl.constexpr(1)
GRID_NZ = tl.constexpr(2)
GRID_BUILD = tl.constexpr(3)
_GRID_IS_SOUND = tl.constexpr(4)
GRID_SLOTS = 5

_FARTHEST_BOX = tl.constexpr(float(reference.FARTHEST_BOX))
_MOST_HEIGHTS = tl.constexpr(float(reference.MOST_HEIGHTS))
_FARTHEST = tl.constexpr(reference.FARTHEST)
_LARGEST = tl.constexpr(1.7976931348623157e308)


@triton.jit
def _load_position(positions, atom, mask):
    x = tl.load(positions + 3 * atom, mask=mask, other=0.0).to(tl.float64)
    y = tl.load(positions + 3 * atom + 1, mask=mask, other=0.0).to(tl.float64)
    z = tl.load(positions + 3 * atom + 2, mask=mask, other=0.0).to(tl.float64)
    return x, y, z


@triton.jit
def _is_usable(x, y, z):
    # False for NaN too.
    return (tl.abs(x) <= _FARTHEST) & (tl.abs(y) <= _FARTHEST) & (tl.abs(z) <= _FARTHEST)


@triton.jit
def prepare_kernel(
    positions,
    built_positions,
    stale,
    ends,
    counts,
    row_sums,
    n_atoms,
    max_cells,
    n_sums,
    limit_bits,
    KEPT: tl.constexpr,
    PERIODIC: tl.constexpr,
    LANES: tl.constexpr,
    ZEROED: tl.constexpr,
):
    """Look how far atoms have moved and, without a box, how far they reach; and set the counts of cells to 0.

    Launch grid: ``(cdiv(n_atoms, LANES),)``: a lane to an atom.

    ===============  ==============  ==========  =====================================================
    argument         shape           dtype       what it is
    ===============  ==============  ==========  =====================================================
    positions        (n_atoms, 3)    float32/64
    built_positions  (n_atoms, 3)    float32/64  where atoms were when the list was made
    stale            (programs,)     int32       out: whether an atom has moved too far
    ends             (programs, 6)   float64     out: smallest x, y, z and largest
    counts           (max_cells,)    int32       out: 0
    row_sums         (n_sums,)       int64       out: 0
    n_atoms          scalar          int32
    max_cells        scalar          int32
    n_sums           scalar          int32       fewer than atoms, or one
    limit_bits       scalar          int64       bits of the square of half the skin, a float64
    KEPT             constant                    whether there is a skin
    PERIODIC         constant                    whether there is a box
    LANES            constant                    atoms of a program
    ZEROED           constant                    cells of a program
    ===============  ==============  ==========  =====================================================
    """
    program = tl.program_id(0)
    cell = program * ZEROED + tl.arange(0, ZEROED)
    tl.store(counts + cell, tl.zeros((ZEROED,), tl.int32), mask=cell < max_cells)
    atom = program * LANES + tl.arange(0, LANES)
    here = atom < n_atoms
    tl.store(row_sums + atom, tl.zeros((LANES,), tl.int64), mask=atom < n_sums)
    x, y, z = _load_position(positions, atom, here)
    if KEPT:
        bx, by, bz = _load_position(built_positions, atom, here)
        moved = (x - bx) * (x - bx) + (y - by) * (y - by) + (z - bz) * (z - bz)
        limit = limit_bits.to(tl.float64, bitcast=True)
        # Not "moved >= limit", which is false for NaN.
        near = (moved < limit) | (atom >= n_atoms)
        tl.store(stale + program, 1 - tl.min(near.to(tl.int32), axis=0))
    else:
        tl.store(stale + program, 1)
    if not PERIODIC:
        usable = here & _is_usable(x, y, z)
        to = ends + 6 * program
        tl.store(to, tl.min(tl.where(usable, x, _LARGEST), axis=0))
        tl.store(to + 1, tl.min(tl.where(usable, y, _LARGEST), axis=0))
        tl.store(to + 2, tl.min(tl.where(usable, z, _LARGEST), axis=0))
        tl.store(to + 3, tl.max(tl.where(usable, x, -_LARGEST), axis=0))
        tl.store(to + 4, tl.max(tl.where(usable, y, -_LARGEST), axis=0))
        tl.store(to + 5, tl.max(tl.where(usable, z, -_LARGEST), axis=0))


@triton.jit
def _dot(ax, ay, az, bx, by, bz):
    return ax * bx + ay * by + az * bz


@triton.jit
def _extent(ends, axis, n_blocks, BLOCK: tl.constexpr):
    """Return where the atoms begin along an axis, and how far they reach."""
    low = tl.full((BLOCK,), _LARGEST, tl.float64)
    high = tl.full((BLOCK,), -_LARGEST, tl.float64)
    start = n_blocks * 0
    while start < n_blocks:
        entry = start + tl.arange(0, BLOCK)
        low = tl.minimum(low, tl.load(ends + 6 * entry + axis, mask=entry < n_blocks, other=_LARGEST))
        high = tl.maximum(high, tl.load(ends + 6 * entry + axis + 3, mask=entry < n_blocks, other=-_LARGEST))
        start += BLOCK
    first, last = tl.min(low, axis=0), tl.max(high, axis=0)
    return tl.where(first <= last, first, 0.0), tl.where(first <= last, last - first, 0.0)


@triton.jit
def plan_kernel(
    box,
    built_box,
    stale,
    ends,
    status,
    geometry,
    grid,
    n_blocks,
    n_atoms,
    max_cells,
    cutoff_bits,
    IS_NEW: tl.constexpr,
    PERIODIC: tl.constexpr,
    ACROSS: tl.constexpr,
    ALONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Decide whether a list is made, and lay cells out.

    Launch grid: ``(1,)``.

    ===========  =================  ==========  =============================================================
    argument     shape              dtype       what it is
    ===========  =================  ==========  =============================================================
    box          (3, 3)             float32/64  lattice vectors, in rows
    built_box    (3, 3)             float64     in and out: those of which the list was made
    stale        (n_blocks,)        int32       whether one of these atoms has moved too far
    ends         (n_blocks, 6)      float64     smallest x, y, z and largest, without a box
    status       (3,)               int64       in and out: pairs, unusable atoms, lists made
    geometry     (GEOMETRY_SLOTS,)  float64     out
    grid         (GRID_SLOTS,)      int32       out
    n_blocks     scalar             int32
    n_atoms      scalar             int32
    max_cells    scalar             int32
    cutoff_bits  scalar             int64       bits of the cut-off with the skin, a float64
    IS_NEW       constant                       whether there was no list before
    PERIODIC     constant                       whether there is a box
    ACROSS       constant                       cells in a cut-off along y and z, about
    ALONG        constant                       and along x
    BLOCK        constant                       what is read at once
    ===========  =================  ==========  =============================================================
    """
    lanes = tl.arange(0, BLOCK)
    far = tl.zeros((BLOCK,), tl.int32)
    start = n_blocks * 0
    while start < n_blocks:
        far |= tl.load(stale + start + lanes, mask=start + lanes < n_blocks, other=0)
        start += BLOCK
    made = tl.zeros((), tl.int64) if IS_NEW else tl.load(status + 2)
    build = (tl.max(far, axis=0) != 0) | (made == 0)
    entry = tl.arange(0, 16)
    old = tl.load(built_box + entry, mask=entry < 9, other=0.0)
    new = tl.zeros((16,), tl.float64)
    if PERIODIC:
        new = tl.load(box + entry, mask=entry < 9, other=0.0).to(tl.float64)
    build |= tl.min((new == old).to(tl.int32), axis=0) == 0
    tl.store(grid + GRID_BUILD, build.to(tl.int32))
    if build:
        tl.store(status + 2, made + 1)
        tl.store(status + 1, made * 0)
        cutoff = cutoff_bits.to(tl.float64, bitcast=True)
        one = cutoff * 0.0 + 1.0
        tl.store(built_box + entry, new, mask=entry < 9)
        if PERIODIC:
            ax, ay, az = _load_position(box, 0, True)
            bx, by, bz = _load_position(box, 1, True)
            cx, cy, cz = _load_position(box, 2, True)
            # Cross products are the columns of the inverse, but for the volume.
            ux, uy, uz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
            vx, vy, vz = cy * az - cz * ay, cz * ax - cx * az, cx * ay - cy * ax
            wx, wy, wz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
            volume = _dot(ax, ay, az, ux, uy, uz)
            largest = tl.maximum(
                tl.maximum(_dot(ux, uy, uz, ux, uy, uz), _dot(vx, vy, vz, vx, vy, vz)),
                _dot(wx, wy, wz, wx, wy, wz),
            )
            height = tl.abs(volume) / tl.sqrt(largest)
            sx = tl.sqrt(_dot(ax, ay, az, ax, ay, az))
            product = sx * tl.sqrt(_dot(bx, by, bz, bx, by, bz)) * tl.sqrt(_dot(cx, cy, cz, cx, cy, cz))
            sound = (tl.abs(volume) > 1e-12 * product) & (tl.abs(volume) <= _LARGEST)
            sound &= cutoff <= _MOST_HEIGHTS * height
            ax, ay, az = ax / sx, ay / sx, az / sx
            skew_bx, skew_cx = _dot(bx, by, bz, ax, ay, az), _dot(cx, cy, cz, ax, ay, az)
            bx, by, bz = bx - skew_bx * ax, by - skew_bx * ay, bz - skew_bx * az
            sy = tl.sqrt(_dot(bx, by, bz, bx, by, bz))
            bx, by, bz = bx / sy, by / sy, bz / sy
            skew_cy = _dot(cx, cy, cz, bx, by, bz)
            cx = cx - skew_cx * ax - skew_cy * bx
            cy = cy - skew_cx * ay - skew_cy * by
            cz = cz - skew_cx * az - skew_cy * bz
            sz = tl.sqrt(_dot(cx, cy, cz, cx, cy, cz))
            cx, cy, cz = cx / sz, cy / sz, cz / sz
            ox, oy, oz = one * 0.0, one * 0.0, one * 0.0
            ux, uy, uz = ux / volume, uy / volume, uz / volume
            vx, vy, vz = vx / volume, vy / volume, vz / volume
            wx, wy, wz = wx / volume, wy / volume, wz / volume
        else:
            ox, sx = _extent(ends, 0, n_blocks, BLOCK)
            oy, sy = _extent(ends, 1, n_blocks, BLOCK)
            oz, sz = _extent(ends, 2, n_blocks, BLOCK)
            sound = one > 0.0
            zero = one * 0.0
            ax, ay, az, bx, by, bz, cx, cy, cz = one, zero, zero, zero, one, zero, zero, zero, one
            ux, uy, uz, vx, vy, vz, wx, wy, wz = one, zero, zero, zero, one, zero, zero, zero, one
            skew_bx, skew_cx, skew_cy = zero, zero, zero
        tl.store(grid + _GRID_IS_SOUND, sound.to(tl.int32))
        _store_three(geometry + _TURN, ax, ay, az)
        _store_three(geometry + _TURN + 3, bx, by, bz)
        _store_three(geometry + _TURN + 6, cx, cy, cz)
        _store_three(geometry + _ORIGIN, ox, oy, oz)
        _store_three(geometry + SIZE, sx, sy, sz)
        _store_three(geometry + SKEW_BX, skew_bx, skew_cx, skew_cy)
        _store_three(geometry + _INVERSE, ux, uy, uz)
        _store_three(geometry + _INVERSE + 3, vx, vy, vz)
        _store_three(geometry + _INVERSE + 6, wx, wy, wz)
        ex = tl.where(sound, tl.maximum(sx, 1e-3 * cutoff), cutoff)
        ey = tl.where(sound, tl.maximum(sy, 1e-3 * cutoff), cutoff)
        ez = tl.where(sound, tl.maximum(sz, 1e-3 * cutoff), cutoff)
        # A little more, so that what reaches a cut-off to both sides never lies in one column more than 2 ACROSS + 1.
        across, along = 1.001 * cutoff / ACROSS, cutoff / ALONG
        nx, ny, nz = _cells(ex, along), _cells(ey, across), _cells(ez, across)
        while nx * ny * nz > max_cells:
            across, along = across * 1.3, along * 1.3
            nx, ny, nz = _cells(ex, along), _cells(ey, across), _cells(ez, across)
        _store_three(grid, nx.to(tl.int32), ny.to(tl.int32), nz.to(tl.int32))
        _store_three(geometry + WIDTH, ex / nx, ey / ny, ez / nz)
        _store_three(geometry + PER_LENGTH, nx / ex, ny / ey, nz / ez)
        # As far are columns beyond the faces of a box moved that leans, and rounded.
        lean_y = tl.abs(skew_cy) * (cutoff / ez + 1.0)
        lean_x = tl.abs(skew_bx) * ((cutoff + lean_y) / ey + 1.0) + tl.abs(skew_cx) * (cutoff / ez + 1.0)
        lean = tl.where(sound, 0.5 * tl.maximum(lean_x, lean_y), 0.0)
        margin = 1e-6 * tl.maximum(cutoff + tl.maximum(tl.maximum(ex, ey), ez), lean)
        error = 4.0 * margin * (cutoff + margin) + 1e-6 * cutoff * cutoff
        _store_three(geometry + MARGIN, margin, cutoff * cutoff - error, cutoff * cutoff + error)


@triton.jit
def _store_three(to, x, y, z):
    tl.store(to, x)
    tl.store(to + 1, y)
    tl.store(to + 2, z)


@triton.jit
def _cells(extent, width):
    return tl.maximum(tl.floor(extent / width), 1.0)


@triton.jit
def _fraction(geometry, i, x, y, z):
    at = geometry + _INVERSE + 3 * i
    return tl.floor(x * tl.load(at) + y * tl.load(at + 1) + z * tl.load(at + 2))


@triton.jit
def _along(geometry, i, x, y, z):
    at = geometry + _TURN + 3 * i
    return x * tl.load(at) + y * tl.load(at + 1) + z * tl.load(at + 2)


@triton.jit
def cell_along(coordinate, per_length, n):
    """Return the cell along an axis that a coordinate in the brick is in."""
    return tl.minimum(tl.maximum((coordinate * per_length).to(tl.int32), 0), n - 1)


@triton.jit
def _cell_along(geometry, grid, axis, coordinate):
    per_length = tl.load(geometry + PER_LENGTH + axis).to(tl.float32)
    return cell_along(coordinate, per_length, tl.load(grid + axis))


@triton.jit
def assign_kernel(
    positions,
    built_positions,
    geometry,
    grid,
    counts,
    cell_of,
    slot_of,
    shift_of,
    inside,
    status,
    n_atoms,
    PERIODIC: tl.constexpr,
    LANES: tl.constexpr,
):
    """Bring atoms into the brick, find their cells, and count those of each cell as they come.

    Launch grid: ``(cdiv(n_atoms, LANES),)``: a lane to an atom.

    ===============  =================  ==========  ======================================================
    argument         shape              dtype       what it is
    ===============  =================  ==========  ======================================================
    positions        (n_atoms, 3)       float32/64
    built_positions  (n_atoms, 3)       float32/64  out: the positions
    geometry         (GEOMETRY_SLOTS,)  float64
    grid             (GRID_SLOTS,)      int32
    counts           (max_cells,)       int32       in and out
    cell_of          (n_atoms,)         int32       out; -1 for an atom that is not usable
    slot_of          (n_atoms,)         int32       out: which one of its cell it was
    shift_of         (n_atoms,)         int32       out: steps from the brick to it, packed
    inside           (3, n_atoms)       float32     out: where it is in the brick
    status           (3,)               int64       in and out, its second number: atoms that are not usable
    n_atoms          scalar             int32
    PERIODIC         constant                       whether there is a box
    LANES            constant                       atoms of a program
    ===============  =================  ==========  ======================================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    atom = tl.program_id(0) * LANES + tl.arange(0, LANES)
    here = atom < n_atoms
    x, y, z = _load_position(positions, atom, here)
    for axis in tl.static_range(3):
        as_given = tl.load(positions + 3 * atom + axis, mask=here, other=0.0)
        tl.store(built_positions + 3 * atom + axis, as_given, mask=here)
    usable = here & _is_usable(x, y, z) & (tl.load(grid + _GRID_IS_SOUND) != 0)
    x, y, z = tl.where(usable, x, 0.0), tl.where(usable, y, 0.0), tl.where(usable, z, 0.0)
    shift = tl.zeros((LANES,), tl.int32)
    if PERIODIC:
        for i in tl.static_range(3):
            # False for NaN too.
            usable &= tl.abs(_fraction(geometry, i, x, y, z)) <= _FARTHEST_BOX
        u, v, w = _along(geometry, 0, x, y, z), _along(geometry, 1, x, y, z), _along(geometry, 2, x, y, z)
        step_z = tl.floor(w / tl.load(geometry + SIZE + 2))
        u -= step_z * tl.load(geometry + SKEW_CX)
        v -= step_z * tl.load(geometry + SKEW_CY)
        w -= step_z * tl.load(geometry + SIZE + 2)
        step_y = tl.floor(v / tl.load(geometry + SIZE + 1))
        u -= step_y * tl.load(geometry + SKEW_BX)
        v -= step_y * tl.load(geometry + SIZE + 1)
        step_x = tl.floor(u / tl.load(geometry + SIZE))
        u -= step_x * tl.load(geometry + SIZE)
        steps = tl.where(usable, step_x + 1024.0 * step_y + 1048576.0 * step_z, 0.0)
        # By way of 64 bits: it is linear, and wraps around.
        shift = steps.to(tl.int64).to(tl.int32)
    else:
        u, v, w = (
            x - tl.load(geometry + _ORIGIN),
            y - tl.load(geometry + _ORIGIN + 1),
            z - tl.load(geometry + _ORIGIN + 2),
        )
    u, v, w = (
        tl.where(usable, u, 0.0).to(tl.float32),
        tl.where(usable, v, 0.0).to(tl.float32),
        tl.where(usable, w, 0.0).to(tl.float32),
    )
    kx, ky, kz = (
        _cell_along(geometry, grid, 0, u),
        _cell_along(geometry, grid, 1, v),
        _cell_along(geometry, grid, 2, w),
    )
    cell = (kz * tl.load(grid + GRID_NY) + ky) * tl.load(grid + GRID_NX) + kx
    slot = tl.atomic_add(counts + cell, 1, mask=usable, sem="relaxed")
    tl.store(cell_of + atom, tl.where(usable, cell, -1), mask=here)
    tl.store(slot_of + atom, slot, mask=usable)
    tl.store(shift_of + atom, shift, mask=here)
    tl.store(inside + atom, u, mask=here)
    tl.store(inside + n_atoms + atom, v, mask=here)
    tl.store(inside + 2 * n_atoms + atom, w, mask=here)
    n_lost = tl.sum((here & (usable == 0)).to(tl.int64), axis=0)
    if n_lost > 0:
        tl.atomic_add(status + 1, n_lost, sem="relaxed")


@triton.jit
def place_kernel(cell_of, slot_of, starts, grid, unsorted, n_atoms, LANES: tl.constexpr):
    """Put atoms into their cells, in the order in which they came.

    Launch grid: ``(cdiv(n_atoms, LANES),)``: a lane to an atom.

    ==========  ================  ==========  ================================
    argument    shape             dtype       what it is
    ==========  ================  ==========  ================================
    cell_of     (n_atoms,)        int32
    slot_of     (n_atoms,)        int32
    starts      (max_cells + 1,)  int32       where the atoms of each cell begin
    grid        (GRID_SLOTS,)     int32
    unsorted    (n_atoms,)        int32       out: atoms, cell after cell
    n_atoms     scalar            int32
    LANES       constant                      atoms of a program
    ==========  ================  ==========  ================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    atom = tl.program_id(0) * LANES + tl.arange(0, LANES)
    cell = tl.load(cell_of + atom, mask=atom < n_atoms, other=-1)
    slot = tl.load(slot_of + atom, mask=cell >= 0, other=0)
    start = tl.load(starts + cell, mask=cell >= 0, other=0)
    tl.store(unsorted + start + slot, atom, mask=cell >= 0)


@triton.jit
def order_kernel(
    unsorted,
    cell_of,
    shift_of,
    inside,
    starts,
    grid,
    atoms,
    shift,
    place,
    row_counts,
    n_atoms,
    max_cells,
    LANES: tl.constexpr,
):
    """Put the atoms of each cell into the order of their numbers.

    Launch grid: ``(cdiv(n_atoms, LANES),)``: a lane to an atom that has come into a cell.

    ==========  ================  ==========  ================================================
    argument    shape             dtype       what it is
    ==========  ================  ==========  ================================================
    unsorted    (n_atoms,)        int32       atoms, cell after cell
    cell_of     (n_atoms,)        int32
    shift_of    (n_atoms,)        int32
    inside      (3, n_atoms)      float32
    starts      (max_cells + 1,)  int32
    grid        (GRID_SLOTS,)     int32
    atoms       (n_atoms,)        int32       out: atoms, sorted
    shift       (n_atoms,)        int32       out: theirs
    place       (n_atoms, 4)      float32     out: where they are in the brick, and 0
    row_counts  (n_atoms,)        int32       out: 0, for atoms that are in no cell
    n_atoms     scalar            int32
    max_cells   scalar            int32
    LANES       constant                      atoms of a program
    ==========  ================  ==========  ================================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    p = tl.program_id(0) * LANES + tl.arange(0, LANES)
    tl.store(row_counts + p, tl.zeros((LANES,), tl.int32), mask=p < n_atoms)
    here = p < tl.load(starts + max_cells)
    atom = tl.load(unsorted + p, mask=here, other=0)
    cell = tl.load(cell_of + atom, mask=here, other=0)
    begin = tl.load(starts + cell, mask=here, other=0)
    size = tl.load(starts + cell + 1, mask=here, other=0) - begin
    rank = tl.zeros((LANES,), tl.int32)
    most = tl.max(size, axis=0)
    k = most * 0
    while k < most:
        other = tl.load(unsorted + begin + k, mask=here & (k < size), other=2147483647)
        rank += (other < atom).to(tl.int32)
        k += 1
    to = begin + rank
    tl.store(atoms + to, atom, mask=here)
    tl.store(shift + to, tl.load(shift_of + atom, mask=here, other=0), mask=here)
    for axis in tl.static_range(3):
        coordinate = tl.load(inside + axis * n_atoms + atom, mask=here, other=0.0)
        tl.store(place + 4 * to.to(tl.int64) + axis, coordinate, mask=here)
    tl.store(place + 4 * to.to(tl.int64) + 3, 0.0, mask=here)
