"""The rows of a list, on the GPU: an atom against runs of sorted atoms. rows.h has the same on the CPU."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_cells import (
    GRID_BUILD,
    GRID_NX,
    GRID_NY,
    GRID_NZ,
    MARGIN,
    PER_LENGTH,
    SIZE,
    SKEW_BX,
    SKEW_CX,
    SKEW_CY,
    SURELY_IN,
    SURELY_OUT,
    WIDTH,
    cell_along,
)
from .gpu_shifts import lattice_steps

# Atoms of a run that a lane looks at before it stores which of them are near: the bits of a number above 0.
_BITS = tl.constexpr(31)


@triton.jit
def _image_of(cell, n):
    """Return in which image of the brick a cell is, for cells counted on beyond it."""
    # Division rounds to zero in Triton: both of what is divided is 0 or more where it counts.
    return tl.where(cell >= 0, cell // n, -((n - 1 - cell) // n))


@triton.jit
def _are_beyond(low, high, n, mask):
    """Return whether some cells are not in the brick."""
    return tl.max((mask & ((low < 0) | (high >= n))).to(tl.int32), axis=0) != 0


@triton.jit
def _whole(x):
    return tl.floor(tl.minimum(tl.maximum(x, -1.0e9), 1.0e9)).to(tl.int32)


@triton.jit
def _beyond(cell, width, coordinate, margin):
    """Return how far a coordinate is from a cell, less the margin."""
    low = cell.to(tl.float32) * width
    return tl.maximum(tl.maximum(low - coordinate, coordinate - low - width), margin) - margin


@triton.jit
def _step(shift, axis: tl.constexpr):
    x, y, z = lattice_steps(shift)
    if axis == 0:
        return x.to(tl.float64)
    elif axis == 1:
        return y.to(tl.float64)
    else:
        return z.to(tl.float64)


@triton.jit
def _exact(positions, box, atom, other, shift, mask, PERIODIC: tl.constexpr):
    """Return the squared distance of the given positions, in float64."""
    squared = tl.zeros(other.shape, tl.float64)
    atom = tl.broadcast_to(atom, other.shape)
    for axis in tl.static_range(3):
        to = tl.load(positions + 3 * other + axis, mask=mask, other=0.0).to(tl.float64)
        vector = to - tl.load(positions + 3 * atom + axis, mask=mask, other=0.0).to(tl.float64)
        if PERIODIC:
            for row in tl.static_range(3):
                vector += _step(shift, row) * tl.load(box + 3 * row + axis).to(tl.float64)
        squared += vector * vector
    return squared


@triton.jit
def _most_cells(length, per_length):
    """Return how many cells, as so many of them are in a length of 1, something of a length lies in at most."""
    return _whole(length * per_length) + 2


@triton.jit
def _place(place, at, there, LANES: tl.constexpr):
    """Return where sorted atoms are, by one load for each."""
    slot = tl.arange(0, 4)[None, :]
    numbers = tl.load(place + 4 * at.to(tl.int64)[:, None] + slot, mask=there[:, None])
    even, odd = tl.split(tl.reshape(numbers, (LANES, 2, 2)))
    x, z = tl.split(even)
    y, _ = tl.split(odd)
    return x, y, z


@triton.jit
def _largest(x):
    return tl.max(x, axis=0)


@triton.jit
def _bits_set(bits):
    bits -= (bits >> 1) & 0x55555555
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    # In place of a product that overflows, as which Triton's interpreter refuses it.
    bits += bits >> 8
    return (bits + (bits >> 16)) & 0x3F


@triton.jit
def _lowest_bit(bits):
    """Return the lowest bit of numbers above 0 alone, and which one it is."""
    bit = bits & -bits
    # A power of two is exact as a float, whose exponent says which.
    return bit, (bit.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def rows_kernel(
    positions,
    box,
    geometry,
    grid,
    starts,
    place,
    atoms,
    shift,
    offsets,
    row_counts,
    row_sums,
    neighbors,
    shifts,
    drafts,
    draft_codes,
    n_atoms,
    max_cells,
    cutoff_bits,
    FILL: tl.constexpr,
    SLOTS: tl.constexpr,
    SUMMED: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    PERIODIC: tl.constexpr,
    COLUMNS: tl.constexpr,
    STRANDS: tl.constexpr,
):
    """Count the pairs of rows, or fill them.

    Launch grid: ``(any,)``: programs take rows, of the sorted atoms, in turn. Some lanes go to each column of cells that a
    row may reach, and along their runs at once, so that no column waits for what another has read.

    ===========  =================  ==========  ====================================================
    argument     shape              dtype       what it is
    ===========  =================  ==========  ====================================================
    positions    (n_atoms, 3)       float32/64
    box          (3, 3)             float32/64  lattice vectors, in rows
    geometry     (GEOMETRY_SLOTS,)  float64
    grid         (GRID_SLOTS,)      int32
    starts       (max_cells + 1,)   int32       where the sorted atoms of each cell begin
    place        (n_atoms, 4)       float32     where the sorted atoms are in the brick, and 0
    atoms        (n_atoms,)         int32       sorted
    shift        (n_atoms,)         int32       steps from the brick to each, packed
    offsets      (n_atoms + 1,)     int32       where each atom's row begins, to fill it
    row_counts   (n_atoms,)         int32       out, to count: how many each atom's row has
    row_sums     (any,)             int64       in and out, to count: of SUMMED atoms' rows each
    neighbors    (capacity,)        int32       out, to fill
    shifts       (capacity,)        int32       out, to fill
    drafts       (n_atoms, SLOTS)   int32       the first neighbours of each row: out, to count; in, to fill
    draft_codes  (n_atoms, SLOTS)   int32       their shifts
    n_atoms      scalar             int32
    max_cells    scalar             int32
    cutoff_bits  scalar             int64       bits of the cut-off with the skin, a float64
    FILL         constant                       whether rows are filled, not counted
    SLOTS        constant                       neighbours of a row that are kept when it is counted, or 0
    SUMMED       constant                       atoms whose rows are added up
    BOTH_WAYS    constant                       whether a pair is in the rows of both its atoms
    PERIODIC     constant                       whether there is a box
    COLUMNS      constant                       columns of cells at once
    STRANDS      constant                       lanes of a column, which share its atoms
    ===========  =================  ==========  ====================================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    n_sorted = tl.load(starts + max_cells)
    lane = tl.arange(0, COLUMNS * STRANDS)
    cutoff = cutoff_bits.to(tl.float64, bitcast=True)
    margin = tl.load(geometry + MARGIN).to(tl.float32)
    reach = cutoff.to(tl.float32) + margin
    surely_in = tl.load(geometry + SURELY_IN).to(tl.float32)
    surely_out = tl.load(geometry + SURELY_OUT).to(tl.float32)
    nx, ny, nz = tl.load(grid + GRID_NX), tl.load(grid + GRID_NY), tl.load(grid + GRID_NZ)
    size_x, size_y, size_z = (
        tl.load(geometry + SIZE),
        tl.load(geometry + SIZE + 1),
        tl.load(geometry + SIZE + 2),
    )
    skew_bx, skew_cx, skew_cy = (
        tl.load(geometry + SKEW_BX),
        tl.load(geometry + SKEW_CX),
        tl.load(geometry + SKEW_CY),
    )
    per_x = tl.load(geometry + PER_LENGTH).to(tl.float32)
    per_y = tl.load(geometry + PER_LENGTH + 1).to(tl.float32)
    per_z = tl.load(geometry + PER_LENGTH + 2).to(tl.float32)
    width_y = tl.load(geometry + WIDTH + 1).to(tl.float32)
    width_z = tl.load(geometry + WIDTH + 2).to(tl.float32)
    most_y = _most_cells(2.0 * (reach + margin), per_y)
    most_z = _most_cells((2.0 if BOTH_WAYS else 1.0) * (reach + margin), per_z)
    if not PERIODIC:
        most_y, most_z = tl.minimum(most_y, ny), tl.minimum(most_z, nz)
    columns = most_y * most_z
    first_numbers = lane // STRANDS
    first_numbers_z = first_numbers // most_y
    p = tl.program_id(0)
    while p < n_sorted:
        own = place + 4 * p.to(tl.int64)
        x, y, z = tl.load(own), tl.load(own + 1), tl.load(own + 2)
        atom, own_shift = tl.load(atoms + p), tl.load(shift + p)
        own_x, own_y, own_z = cell_along(x, per_x, nx), cell_along(y, per_y, ny), cell_along(z, per_z, nz)
        found = p * 0
        is_drafted = False
        to, to_shifts, room = (
            drafts + atom.to(tl.int64) * SLOTS,
            draft_codes + atom.to(tl.int64) * SLOTS,
            SLOTS,
        )
        if FILL:
            row = tl.load(offsets + atom)
            room = tl.load(offsets + atom + 1) - row
            if SLOTS > 0:
                is_drafted = tl.load(row_counts + atom) <= SLOTS
                entry = tl.where(is_drafted, lane, room)
                while tl.min(entry, axis=0) < room:
                    second = tl.load(to + entry, mask=entry < room)
                    code = tl.load(to_shifts + entry, mask=entry < room)
                    tl.store(neighbors + row + entry, second, mask=entry < room)
                    tl.store(shifts + row + entry, code, mask=entry < room)
                    entry += COLUMNS * STRANDS
            to, to_shifts = neighbors + row, shifts + row
        first_z = _whole((z - reach) * per_z) if BOTH_WAYS else own_z
        last_z = _whole((z + reach) * per_z)
        if not PERIODIC:
            first_z, last_z = tl.maximum(first_z, 0), tl.minimum(last_z, nz - 1)
        numbers, numbers_z = first_numbers, first_numbers_z
        done = tl.where(is_drafted, columns, 0)
        while done < columns:
            kz = first_z + numbers_z
            in_column = (numbers < columns) & (kz <= last_z)
            away_z = _beyond(kz, width_z, z, margin)
            left_z = reach * reach - away_z * away_z
            in_column &= left_z >= 0.0
            reach_y = tl.sqrt(tl.maximum(left_z, 0.0))
            # In the brick itself, where most are, nothing is moved.
            ix, iy, iz, last_image = lane * 0, lane * 0, lane * 0, lane * 0
            layer_x, layer_y, to_z = x + 0.0 * reach_y, y + 0.0 * reach_y, z + 0.0 * reach_y
            if PERIODIC:  # noqa: SIM102 (the first decides when the kernel is compiled)
                if _are_beyond(kz, kz, nz, in_column):
                    iz = _image_of(kz, nz)
                    layer_x = (x - iz * skew_cx).to(tl.float32)
                    layer_y, to_z = (y - iz * skew_cy).to(tl.float32), (z - iz * size_z).to(tl.float32)
            ky, last_y = _whole((layer_y - reach_y) * per_y), _whole((layer_y + reach_y) * per_y)
            if not PERIODIC:
                ky, last_y = tl.maximum(ky, 0), tl.minimum(last_y, ny - 1)
            if not BOTH_WAYS:
                ky = tl.where(kz == own_z, own_y, ky)
            ky += numbers - numbers_z * most_y
            away_y = _beyond(ky, width_y, layer_y, margin)
            left_y = left_z - away_y * away_y
            in_column &= (ky <= last_y) & (left_y >= 0.0)
            reach_x = tl.sqrt(tl.maximum(left_y, 0.0)) + margin
            column_x, to_y = layer_x, layer_y
            if PERIODIC:  # noqa: SIM102
                if _are_beyond(ky, ky, ny, in_column):
                    iy = _image_of(ky, ny)
                    column_x = (x - iz * skew_cx - iy * skew_bx).to(tl.float32)
                    to_y = (layer_y - iy * size_y).to(tl.float32)
            is_own = (kz == own_z) & (ky == own_y)
            low, high = _whole((column_x - reach_x) * per_x), _whole((column_x + reach_x) * per_x)
            if not PERIODIC:
                low, high = tl.maximum(low, 0), tl.minimum(high, nx - 1)
            if not BOTH_WAYS:
                low = tl.where(is_own, own_x, low)
            in_column &= low <= high
            column = ((kz - iz * nz) * ny + ky - iy * ny) * nx
            ends_beyond = PERIODIC and _are_beyond(low, high, nx, in_column)
            if ends_beyond:
                ix, last_image = _image_of(low, nx), _image_of(high, nx)
            images = _largest(tl.where(in_column, last_image - ix, -1))
            while images >= 0:
                in_run = in_column & (ix <= last_image)
                q = tl.load(starts + column + tl.maximum(low - ix * nx, 0), mask=in_run, other=0)
                end = tl.load(starts + column + tl.minimum(high - ix * nx, nx - 1) + 1, mask=in_run, other=0)
                if not BOTH_WAYS:
                    q = tl.where(in_run & is_own & (ix == 0), p + 1, q)
                to_x = column_x
                if ends_beyond:
                    to_x = (column_x - ix * size_x).to(tl.float32)
                run_shift = ix + 1024 * iy + 1048576 * iz + own_shift
                q += lane % STRANDS
                length = (_largest(end - q) + STRANDS - 1) // STRANDS
                while length > 0:
                    within, unsure = q * 0, q * 0
                    most = tl.minimum(length, _BITS)
                    k = most * 0
                    while k < most:
                        at = q + STRANDS * k
                        there = at < end
                        other_x, other_y, other_z = _place(place, at, there, COLUMNS * STRANDS)
                        dx, dy, dz = other_x - to_x, other_y - to_y, other_z - to_z
                        squared = dx * dx + dy * dy + dz * dz
                        if BOTH_WAYS:
                            there &= (at != p) | (run_shift != own_shift)
                        within |= (there & (squared < surely_out)).to(tl.int32) << k
                        unsure |= (there & (squared < surely_out) & (squared >= surely_in)).to(tl.int32) << k
                        k += 1
                    while _largest(unsure) > 0:
                        bit, k_of = _lowest_bit(unsure)
                        asked = unsure != 0
                        other = tl.load(atoms + q + STRANDS * k_of, mask=asked, other=0)
                        to_shift = run_shift - tl.load(shift + q + STRANDS * k_of, mask=asked, other=0)
                        exact = _exact(positions, box, atom, other, to_shift, asked, PERIODIC)
                        within = tl.where(asked & (exact >= cutoff * cutoff), within ^ bit, within)
                        unsure ^= bit
                    n_within = _bits_set(within)
                    if FILL or SLOTS > 0:
                        rank = found + tl.cumsum(n_within, axis=0) - n_within
                        while _largest(within) > 0:
                            bit, k_of = _lowest_bit(within)
                            stored = (within != 0) & (rank < room)
                            other = tl.load(atoms + q + STRANDS * k_of, mask=stored)
                            to_shift = run_shift - tl.load(shift + q + STRANDS * k_of, mask=stored)
                            tl.store(to + rank, other, mask=stored)
                            tl.store(to_shifts + rank, to_shift, mask=stored)
                            within ^= bit
                            rank += 1
                    found += tl.sum(n_within, axis=0)
                    q += STRANDS * _BITS
                    length -= _BITS
                ix += 1
                images -= 1
            done += COLUMNS
            if done < columns:
                numbers += COLUMNS
                numbers_z = numbers // most_y
        if not FILL:
            tl.store(row_counts + atom, found)
            tl.atomic_add(row_sums + atom // SUMMED, found.to(tl.int64), sem="relaxed")
        p += tl.num_programs(0)
