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
)
from .gpu_shifts import lattice_steps


@triton.jit
def _image_of(cell, n):
    """Return in which image of the brick a cell is, for cells counted on beyond it."""
    # Division rounds to zero in Triton: both of what is divided is 0 or more where it counts.
    return tl.where(cell >= 0, cell // n, -((n - 1 - cell) // n))


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
def rows_kernel(
    positions,
    box,
    geometry,
    grid,
    starts,
    place,
    atoms,
    shift,
    cells,
    offsets,
    row_counts,
    neighbors,
    shifts,
    n_atoms,
    max_cells,
    cutoff_bits,
    FILL: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    PERIODIC: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Count the pairs of rows, or fill them.

    Launch grid: ``(cdiv(n_atoms, ROWS),)``: some lanes to a row, of the sorted atoms, and to as many atoms of a run.

    ===========  =================  ==========  ====================================================
    argument     shape              dtype       what it is
    ===========  =================  ==========  ====================================================
    positions    (n_atoms, 3)       float32/64
    box          (3, 3)             float32/64  lattice vectors, in rows
    geometry     (GEOMETRY_SLOTS,)  float64
    grid         (GRID_SLOTS,)      int32
    starts       (max_cells + 1,)   int32       where the sorted atoms of each cell begin
    place        (3, n_atoms)       float32     where the sorted atoms are in the brick
    atoms        (n_atoms,)         int32       sorted
    shift        (n_atoms,)         int32       steps from the brick to each, packed
    cells        (n_atoms,)         int32       of each
    offsets      (n_atoms + 1,)     int32       where each atom's row begins, to fill it
    row_counts   (n_atoms,)         int32       out, to count: how many each atom's row has
    neighbors    (capacity,)        int32       out, to fill
    shifts       (capacity,)        int32       out, to fill
    n_atoms      scalar             int32
    max_cells    scalar             int32
    cutoff_bits  scalar             int64       bits of the cut-off with the skin, a float64
    FILL         constant                       whether rows are filled, not counted
    BOTH_WAYS    constant                       whether a pair is in the rows of both its atoms
    PERIODIC     constant                       whether there is a box
    ROWS         constant                       rows of a program
    LANES        constant                       atoms of a run at once
    ===========  =================  ==========  ====================================================
    """
    if tl.load(grid + GRID_BUILD) == 0:
        return
    p = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, LANES)[:, None]
    here = p < tl.load(starts + max_cells)
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
    x = tl.load(place + p, mask=here, other=0.0)
    y = tl.load(place + n_atoms + p, mask=here, other=0.0)
    z = tl.load(place + 2 * n_atoms + p, mask=here, other=0.0)
    atom = tl.load(atoms + p, mask=here, other=0)
    own_shift = tl.load(shift + p, mask=here, other=0)
    cell = tl.load(cells + p, mask=here, other=0)
    own_x, own_column = cell % nx, cell // nx
    own_y, own_z = own_column % ny, own_column // ny
    found = tl.zeros((ROWS,), tl.int32)
    row = tl.zeros((ROWS,), tl.int32)
    if FILL:
        row = tl.load(offsets + atom, mask=here, other=0)
        room = tl.load(offsets + atom + 1, mask=here, other=0) - row

    kz = _whole((z - reach) * per_z) if BOTH_WAYS else own_z
    last_z = _whole((z + reach) * per_z)
    if not PERIODIC:
        kz, last_z = tl.maximum(kz, 0), tl.minimum(last_z, nz - 1)
    iz = _image_of(kz, nz)
    layer = kz - iz * nz
    layers = tl.max(tl.where(here, last_z - kz, -1), axis=0)
    while layers >= 0:
        in_layer = here & (kz <= last_z)
        away_z = _beyond(kz, width_z, z, margin)
        left_z = reach * reach - away_z * away_z
        in_layer &= left_z >= 0.0
        reach_y = tl.sqrt(tl.maximum(left_z, 0.0))
        layer_y = (y - iz * skew_cy).to(tl.float32)
        to_z = (z - iz * size_z).to(tl.float32)
        ky = _whole((layer_y - reach_y) * per_y)
        last_y = _whole((layer_y + reach_y) * per_y)
        if not PERIODIC:
            ky, last_y = tl.maximum(ky, 0), tl.minimum(last_y, ny - 1)
        if not BOTH_WAYS:
            ky = tl.where(kz == own_z, own_y, ky)
        iy = _image_of(ky, ny)
        in_brick = ky - iy * ny
        columns = tl.max(tl.where(in_layer, last_y - ky, -1), axis=0)
        while columns >= 0:
            away_y = _beyond(ky, width_y, layer_y, margin)
            left_y = left_z - away_y * away_y
            in_column = in_layer & (ky <= last_y) & (left_y >= 0.0)
            reach_x = tl.sqrt(tl.maximum(left_y, 0.0)) + margin
            column_x, to_y = x, layer_y
            if PERIODIC:  # noqa: SIM102 (the first decides when the kernel is compiled)
                # In the brick itself, where most are, nothing is moved.
                if tl.max((in_column & ((iz != 0) | (iy != 0))).to(tl.int32), axis=0) > 0:
                    column_x = (x - iz * skew_cx - iy * skew_bx).to(tl.float32)
                    to_y = (layer_y - iy * size_y).to(tl.float32)
            is_own = (kz == own_z) & (ky == own_y)
            low, high = _whole((column_x - reach_x) * per_x), _whole((column_x + reach_x) * per_x)
            if not PERIODIC:
                low, high = tl.maximum(low, 0), tl.minimum(high, nx - 1)
            if not BOTH_WAYS:
                low = tl.where(is_own, own_x, low)
            in_column &= low <= high
            column = (layer * ny + in_brick) * nx
            ix, last_image = tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32)
            beyond_brick = (low < 0) | (high >= nx)
            images = tl.max(tl.where(in_column, tl.where(beyond_brick, 1, 0), -1), axis=0)
            if images > 0:
                ix, last_image = _image_of(low, nx), _image_of(high, nx)
                images = tl.max(tl.where(in_column, last_image - ix, -1), axis=0)
            while images >= 0:
                in_run = in_column & (ix <= last_image)
                q = tl.load(starts + column + tl.maximum(low - ix * nx, 0), mask=in_run, other=0)
                end = tl.load(starts + column + tl.minimum(high - ix * nx, nx - 1) + 1, mask=in_run, other=0)
                if not BOTH_WAYS:
                    q = tl.where(in_run & is_own & (ix == 0), p + 1, q)
                to_x = (column_x - ix * size_x).to(tl.float32)
                run_shift = ix + 1024 * iy + 1048576 * iz + own_shift
                length = tl.max(end - q, axis=0)
                done = length * 0
                while done < length:
                    at = (q + done)[None, :] + lanes
                    there = at < end[None, :]
                    dx = tl.load(place + at, mask=there, other=0.0) - to_x[None, :]
                    dy = tl.load(place + n_atoms + at, mask=there, other=0.0) - to_y[None, :]
                    dz = tl.load(place + 2 * n_atoms + at, mask=there, other=0.0) - to_z[None, :]
                    if FILL:
                        # With the places, so that nothing waits for them.
                        other = tl.load(atoms + at, mask=there, other=0)
                        to_shift = run_shift[None, :] - tl.load(shift + at, mask=there, other=0)
                    squared = dx * dx + dy * dy + dz * dz
                    within = there & (squared < surely_out)
                    if BOTH_WAYS:
                        within &= (at != p[None, :]) | (run_shift != own_shift)[None, :]
                    unsure = within & (squared >= surely_in)
                    if tl.max(tl.max(unsure.to(tl.int32), axis=0), axis=0) > 0:
                        if not FILL:
                            other = tl.load(atoms + at, mask=unsure, other=0)
                            to_shift = run_shift[None, :] - tl.load(shift + at, mask=unsure, other=0)
                        exact = _exact(positions, box, atom[None, :], other, to_shift, unsure, PERIODIC)
                        within &= (unsure == 0) | (exact < cutoff * cutoff)
                    if FILL:
                        rank = found[None, :] + tl.cumsum(within.to(tl.int32), axis=0) - 1
                        stored = within & (rank < room[None, :])
                        to = row[None, :] + rank
                        tl.store(neighbors + to, other, mask=stored)
                        tl.store(shifts + to, to_shift, mask=stored)
                    found += tl.sum(within.to(tl.int32), axis=0)
                    done += LANES
                ix += 1
                images -= 1
            ky += 1
            in_brick += 1
            iy += (in_brick == ny).to(tl.int32)
            in_brick = tl.where(in_brick == ny, 0, in_brick)
            columns -= 1
        kz += 1
        layer += 1
        iz += (layer == nz).to(tl.int32)
        layer = tl.where(layer == nz, 0, layer)
        layers -= 1
    if not FILL:
        tl.store(row_counts + atom, found, mask=here)
