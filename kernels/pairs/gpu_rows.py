"""The rows of a list on the GPU: some rows to a program, a warp or more to each, and what a pair needs of an atom side by side.

With each pair twice nothing but a row's own atom is written. With each pair once the gradients of the second atoms are added up
as whole numbers, whose sum is the same in any order.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from ..neighbors.gpu_shifts import moved
from .gpu_forms import pair_energy_of_shares, shares, with_constant
from .reference import IN_ONE_PLACE, MOST_ENERGY, MOST_FORCE

# Numbers of an atom's record: x, y, z, the third parameter, the first and the second; 32 bytes are what a cache reads at once.
RECORD = 8
_RECORD = tl.constexpr(RECORD)
# Sums of a program: energy and six numbers of the virial.
SUMS = 7
# Of a gradient's component: units in 1. What is large has units of its own, in which float32 loses nothing and no sum wraps.
UNITS, LARGE_UNITS = tl.constexpr(16777216.0), tl.constexpr(16.0)
_LARGE = tl.constexpr(1048576.0)
_MOST_FORCE, _MOST_ENERGY = tl.constexpr(MOST_FORCE), tl.constexpr(MOST_ENERGY)
_IN_ONE_PLACE = tl.constexpr(IN_ONE_PLACE)
# Atoms with a coordinate beyond this, or with none, have no pairs: they get a place that is far from all others.
_FARTHEST = tl.constexpr(1.0e18)


@triton.jit
def records_kernel(
    positions,
    parameters,
    records,
    units,
    n_atoms,
    FORM: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Put what a pair needs of an atom side by side, and set the gradient in whole numbers to 0.

    Launch grid: ``(cdiv(n_atoms + 1, ATOMS),)``.

    ==========  ================  ==========  ======================================================================
    argument    shape             dtype       what it is
    ==========  ================  ==========  ======================================================================
    positions   (n_atoms, 3)      float32/64
    parameters  (n_atoms, 3)      float32
    records     (n_atoms + 1, 8)  float32/64  out, and one that is far away; the last two numbers of each are 0
    units       (2, n_atoms, 3)   int64       out: 0, for a list with each pair once
    n_atoms     scalar            int32
    FORM        constant                      which function of r
    BOTH_WAYS   constant                      whether the list has each pair twice
    ATOMS       constant                      atoms of a program
    ==========  ================  ==========  ======================================================================
    """
    atom = tl.program_id(0).to(tl.int64) * ATOMS + tl.arange(0, ATOMS)[:, None]
    slot = tl.arange(0, _RECORD)[None, :]
    here = atom < n_atoms
    coordinate = tl.load(positions + 3 * atom + slot, mask=here & (slot < 3), other=2.0 * _FARTHEST)
    # False for NaN too.
    coordinate = tl.where(tl.abs(coordinate) <= _FARTHEST, coordinate, 2.0 * _FARTHEST)
    parameter = tl.load(
        parameters + 3 * atom + tl.where(slot == 3, 2, slot - 4),
        mask=here & (slot >= 3) & (slot < 6),
        other=0.0,
    )
    first, second, third = shares(parameter, parameter, parameter, FORM)
    share = tl.where(slot == 3, third, tl.where(slot == 4, first, second))
    number = tl.where(slot < 3, coordinate, tl.where(slot < 6, share, 0.0).to(coordinate.dtype))
    tl.store(records + _RECORD * atom + slot, number, mask=atom <= n_atoms)
    if not BOTH_WAYS:
        zero = tl.zeros((ATOMS, _RECORD), tl.int64)
        tl.store(units + 3 * atom + slot, zero, mask=here & (slot < 3))
        tl.store(units + 3 * (n_atoms + atom) + slot, zero, mask=here & (slot < 3))


@triton.jit
def _add(to, x, mask, n_atoms):
    """Add to components of the gradient; both products are exact: by powers of two."""
    large = tl.abs(x) >= _LARGE
    to = to + tl.where(large, 3 * n_atoms, 0)
    tl.atomic_add(to, (x * tl.where(large, LARGE_UNITS, UNITS)).to(tl.int64), mask=mask, sem="relaxed")


@triton.jit
def _four(record, LANES: tl.constexpr):
    """Return four numbers that are side by side, by one load."""
    numbers = tl.load(record[:, None] + tl.arange(0, 4)[None, :])
    even, odd = tl.split(tl.reshape(numbers, (LANES, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _two(record):
    return tl.split(tl.load(record[:, None] + tl.arange(0, 2)[None, :]))


@triton.jit
def _vector(at, records):
    """Return a number of the box, of the type of the records."""
    return tl.load(at).to(records.dtype.element_ty)


@triton.jit
def rows_kernel(
    records,
    box,
    offsets,
    neighbors,
    shifts,
    excluded_offsets,
    excluded,
    gradient,
    sums,
    n_atoms,
    capacity,
    cutoff_squared,
    switch_begin,
    per_switch,
    coulomb,
    k,
    c,
    FORM: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    PERIODIC: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Add up the pairs of rows.

    Launch grid: ``(cdiv(n_atoms, ROWS),)``.

    ==============================  ==============  ==========  ==================================================
    argument                        shape           dtype       what it is
    ==============================  ==============  ==========  ==================================================
    records                         (n_atoms+1, 8)  float32/64  see records_kernel
    box                             (3, 3)          float32/64  lattice vectors, in rows
    offsets                         (n_atoms + 1,)  int32
    neighbors                       (capacity,)     int32
    shifts                          (capacity,)     int32       packed
    excluded_offsets                (n_atoms + 1,)  int32
    excluded                        (any,)          int32
    gradient                        (n_atoms, 3)    float32/64  out; (2, n_atoms, 3), int64, in and out, for each pair once
    sums                            (7, programs)   float64     out: energy and virial, twice those for each pair twice
    n_atoms, capacity               scalar          int32
    cutoff_squared                  scalar          float32
    switch_begin, per_switch        scalar          float32     per_switch: 0 without a switch
    coulomb, k, c                   scalar          float32     Coulomb's constant, and the reaction field
    FORM                            constant                    which function of r
    BOTH_WAYS                       constant                    whether the list has each pair twice
    PERIODIC                        constant                    whether there is a box
    HAS_EXCLUDED                    constant                    whether pairs are excluded
    ROWS                            constant                    rows of a program, one after another
    LANES                           constant                    pairs of a row at once
    ==============================  ==============  ==========  ==================================================
    """
    lane = tl.arange(0, LANES)
    if PERIODIC:
        ax, ay, az = _vector(box, records), _vector(box + 1, records), _vector(box + 2, records)
        bx, by, bz = _vector(box + 3, records), _vector(box + 4, records), _vector(box + 5, records)
        cx, cy, cz = _vector(box + 6, records), _vector(box + 7, records), _vector(box + 8, records)
    zero = tl.zeros((LANES,), tl.float32)
    total = zero
    xx, xy, xz, yy, yz, zz = zero, zero, zero, zero, zero, zero
    first_row = tl.program_id(0) * ROWS
    for row in range(ROWS):
        # A program's rows beyond the last have no pairs.
        i = tl.minimum(first_row + row, n_atoms - 1).to(tl.int64)
        begin = tl.load(offsets + i)
        length = tl.minimum(tl.load(offsets + i + 1), capacity) - begin
        own = records + _RECORD * i
        x, y, z = tl.load(own), tl.load(own + 1), tl.load(own + 2)
        is_none = (first_row + row >= n_atoms) | (tl.maximum(tl.maximum(x, y), z) > _FARTHEST)
        length = tl.where(is_none, 0, length)
        a2, a0, a1 = (
            tl.load(own + 3).to(tl.float32),
            tl.load(own + 4).to(tl.float32),
            tl.load(own + 5).to(tl.float32),
        )
        a0, a1, a2 = with_constant(a0, a1, a2, coulomb, FORM)
        if HAS_EXCLUDED:
            first_excluded, end_excluded = tl.load(excluded_offsets + i), tl.load(excluded_offsets + i + 1)
            lowest, highest = n_atoms, first_excluded * 0 - 1
            n = first_excluded
            while n < end_excluded:
                lowest = tl.minimum(lowest, tl.load(excluded + n))
                highest = tl.maximum(highest, tl.load(excluded + n))
                n += 1
        of_row, codes = neighbors + begin.to(tl.int64), shifts + begin.to(tl.int64)
        # Lanes without a pair, and what is no atom, read the last record, which is far from all atoms.
        next_j = tl.load(of_row + lane, mask=lane < length, other=-1)
        next_code = tl.zeros((LANES,), tl.int32)
        if PERIODIC:
            next_code = tl.load(codes + lane, mask=lane < length, other=0)
        gx, gy, gz = zero, zero, zero
        done = length * 0
        while done < length:
            j, code = next_j, next_code
            # What comes next is asked for before this is worked out.
            done += LANES
            next_j = tl.load(of_row + done + lane, mask=done + lane < length, other=-1)
            if PERIODIC:
                next_code = tl.load(codes + done + lane, mask=done + lane < length, other=0)
            at = tl.minimum(j.to(tl.uint32, bitcast=True), n_atoms).to(tl.int64)
            record = records + _RECORD * at
            dx, dy, dz, b2 = _four(record, LANES)
            b0, b1 = _two(record + 4)
            dx, dy, dz = dx - x, dy - y, dz - z
            if PERIODIC:  # noqa: SIM102 (the first decides when the kernel is compiled)
                # Most pairs are within the box.
                if tl.max((code != 0).to(tl.int32), axis=0) != 0:
                    dx, dy, dz = moved(dx, dy, dz, code, ax, ay, az, bx, by, bz, cx, cy, cz)
            dx, dy, dz = dx.to(tl.float32), dy.to(tl.float32), dz.to(tl.float32)
            squared = tl.maximum(dx * dx + dy * dy + dz * dz, 1e-24)
            near = squared < cutoff_squared
            if HAS_EXCLUDED:
                maybe = near & (j >= lowest) & (j <= highest)
                n = tl.where(tl.max(maybe.to(tl.int32), axis=0) != 0, first_excluded, end_excluded)
                while n < end_excluded:
                    near &= j != tl.load(excluded + n)
                    n += 1
            energy, slope = pair_energy_of_shares(
                squared,
                tl.rsqrt(squared),
                a0,
                a1,
                a2,
                b0.to(tl.float32),
                b1.to(tl.float32),
                b2.to(tl.float32),
                switch_begin,
                per_switch,
                1.0,
                k,
                c,
                FORM,
            )
            near &= tl.abs(energy) < _IN_ONE_PLACE
            most = _MOST_FORCE * tl.rsqrt(squared)
            slope = tl.where(near, tl.minimum(tl.maximum(slope, -most), most), 0.0)
            total += tl.where(near, tl.minimum(energy, _MOST_ENERGY), 0.0)
            fx, fy, fz = slope * dx, slope * dy, slope * dz
            gx, gy, gz = gx + fx, gy + fy, gz + fz
            xx, xy, xz = xx - dx * fx, xy - dx * fy, xz - dx * fz
            yy, yz, zz = yy - dy * fy, yz - dy * fz, zz - dz * fz
            if not BOTH_WAYS:
                to = gradient + 3 * at
                _add(to, fx, near, n_atoms)
                _add(to + 1, fy, near, n_atoms)
                _add(to + 2, fz, near, n_atoms)
        own_x, own_y, own_z = -tl.sum(gx, axis=0), -tl.sum(gy, axis=0), -tl.sum(gz, axis=0)
        if BOTH_WAYS:
            if first_row + row < n_atoms:
                tl.store(gradient + 3 * i, own_x.to(gradient.dtype.element_ty))
                tl.store(gradient + 3 * i + 1, own_y.to(gradient.dtype.element_ty))
                tl.store(gradient + 3 * i + 2, own_z.to(gradient.dtype.element_ty))
        else:
            # Where the row is none they are 0.
            _add(gradient + 3 * i, own_x, i >= 0, n_atoms)
            _add(gradient + 3 * i + 1, own_y, i >= 0, n_atoms)
            _add(gradient + 3 * i + 2, own_z, i >= 0, n_atoms)
    program = tl.program_id(0)
    n_programs = tl.num_programs(0)
    _store_sum(sums + program, total)
    _store_sum(sums + n_programs + program, xx)
    _store_sum(sums + 2 * n_programs + program, xy)
    _store_sum(sums + 3 * n_programs + program, xz)
    _store_sum(sums + 4 * n_programs + program, yy)
    _store_sum(sums + 5 * n_programs + program, yz)
    _store_sum(sums + 6 * n_programs + program, zz)


@triton.jit
def _store_sum(to, of_lanes):
    tl.store(to, tl.sum(of_lanes, axis=0).to(tl.float64))


@triton.jit
def totals_kernel(sums, energy, virial, n_programs, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the sums of programs, in one order.

    Launch grid: ``(7,)``.

    ==========  =============  =======  ===========================================================
    argument    shape          dtype    what it is
    ==========  =============  =======  ===========================================================
    sums        (7, programs)  float64
    energy      ()             float64  out
    virial      (3, 3)         float64  out
    n_programs  scalar         int32
    FACTOR      constant                of all: 0.5 where the list has each pair twice
    BLOCK       constant                sums at once
    ==========  =============  =======  ===========================================================
    """
    which = tl.program_id(0)
    sums += which.to(tl.int64) * n_programs
    found = tl.zeros((BLOCK,), tl.float64)
    start = which * 0
    while start < n_programs:
        entry = start + tl.arange(0, BLOCK)
        found += tl.load(sums + entry, mask=entry < n_programs, other=0.0)
        start += BLOCK
    total = FACTOR * tl.sum(found, axis=0)
    if which == 0:
        tl.store(energy, total)
    else:
        # Of xx, xy, xz, yy, yz, zz.
        row = (which > 3).to(tl.int32) + (which > 5).to(tl.int32)
        column = which - 1 - 2 * (which > 3).to(tl.int32) - (which > 5).to(tl.int32)
        tl.store(virial + 3 * row + column, total)
        tl.store(virial + 3 * column + row, total)


@triton.jit
def gradient_kernel(units, gradient, n, BLOCK: tl.constexpr):
    """Turn whole numbers into a gradient.

    Launch grid: ``(cdiv(n, BLOCK),)``.

    ========  ========  ==========  =========================
    argument  shape     dtype       what it is
    ========  ========  ==========  =========================
    units     (2, n)    int64
    gradient  (n,)      float32/64  out
    n         scalar    int32
    BLOCK     constant              components of a program
    ========  ========  ==========  =========================
    """
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(units + entry, mask=entry < n, other=0).to(tl.float64) / UNITS
    whole += tl.load(units + n + entry, mask=entry < n, other=0).to(tl.float64) / LARGE_UNITS
    tl.store(gradient + entry, whole.to(gradient.dtype.element_ty), mask=entry < n)
