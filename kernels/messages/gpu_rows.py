"""A row's messages, and their gradients, in Triton: a program to an atom, all its neighbours, and some of the features.

A program adds up what its atom receives, or is given back, from its neighbours in the order of the list: nothing is added by
atomics. Filters of a few neighbours at once are a product of their radial functions with the matrix.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from ..neighbors.gpu_shifts import imaged

_PI = tl.constexpr(3.14159265358979323846)
_NEAREST_SQUARED = tl.constexpr(1e-24)


@triton.jit
def edges(
    positions,
    box,
    neighbors,
    shifts,
    i,
    begin,
    end,
    n_atoms,
    cutoff,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Return of some entries of row i: the other atom, whether it is within the cut-off, the direction to it, r, 1/r."""
    entry = begin + tl.arange(0, EDGES)
    here = entry < end
    j = tl.load(neighbors + entry, mask=here, other=-1).to(tl.int64)
    here &= (j >= 0) & (j < n_atoms)
    j = tl.where(here, j, 0)
    dx = tl.load(positions + 3 * j) - tl.load(positions + 3 * i)
    dy = tl.load(positions + 3 * j + 1) - tl.load(positions + 3 * i + 1)
    dz = tl.load(positions + 3 * j + 2) - tl.load(positions + 3 * i + 2)
    if PERIODIC:
        dx, dy, dz = imaged(dx, dy, dz, shifts, entry, entry < end, box)
    dx, dy, dz = dx.to(tl.float32), dy.to(tl.float32), dz.to(tl.float32)
    squared = dx * dx + dy * dy + dz * dz
    near = here & (squared < cutoff * cutoff)
    r = tl.sqrt(tl.where(near, tl.maximum(squared, _NEAREST_SQUARED), 1.0))
    per_r = 1.0 / r
    # Of pairs that add nothing there are directions as well, which must be numbers.
    ux, uy, uz = (
        tl.where(near, dx * per_r, 0.0),
        tl.where(near, dy * per_r, 0.0),
        tl.where(near, dz * per_r, 0.0),
    )
    return j, near, ux, uy, uz, r, per_r


@triton.jit
def _radial(near, r, per_r, cutoff, n_basis, BASIS: tl.constexpr):
    """Return the radial functions of some pairs times the cut-off's factor, and their derivatives, (EDGES, BASIS) each."""
    n = tl.arange(0, BASIS)[None, :]
    order = (n + 1).to(tl.float32)
    x = (_PI / cutoff) * r
    envelope = tl.where(near, 0.5 * (tl.cos(x) + 1.0), 0.0)[:, None]
    envelope_slope = tl.where(near, (-0.5 * _PI / cutoff) * tl.sin(x), 0.0)[:, None]
    angle = x[:, None] * order
    wave = tl.sin(angle) * per_r[:, None]
    wave_slope = (order * (_PI / cutoff) * tl.cos(angle) - wave) * per_r[:, None]
    is_constant = n == n_basis - 1
    wave = tl.where(is_constant, 1.0, wave)
    wave_slope = tl.where(is_constant, 0.0, wave_slope)
    is_there = n < n_basis
    values = tl.where(is_there, wave * envelope, 0.0)
    return values, tl.where(is_there, wave_slope * envelope + wave * envelope_slope, 0.0)


@triton.jit
def _matrix(filter, f, PART: tl.constexpr, n_basis, FEATURES: tl.constexpr, BASIS: tl.constexpr):
    """Return some columns of a third of the filter's matrix, (BASIS, BLOCK)."""
    rows = tl.arange(0, BASIS)[:, None]
    columns = f[None, :]
    at = filter + rows * (3 * FEATURES) + PART * FEATURES + columns
    return tl.load(at, mask=(rows < n_basis) & (columns >= 0), other=0.0)


@triton.jit
def receive_kernel(
    positions,
    box,
    offsets,
    neighbors,
    shifts,
    sent,
    vectors,
    filter,
    scalars,
    moved,
    n_atoms,
    capacity,
    cutoff,
    n_basis,
    FEATURES: tl.constexpr,
    BLOCK: tl.constexpr,
    BASIS: tl.constexpr,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Add up what an atom receives.

    Launch grid: ``(n_atoms, FEATURES // BLOCK)``: a program to a row and some features.

    =========  =======================  ==========  =====================================================
    argument   shape                    dtype       what it is
    =========  =======================  ==========  =====================================================
    positions  (n_atoms, 3)             float32/64
    box        (3, 3)                   float32/64  lattice vectors, in rows
    offsets    (n_atoms + 1,)           int32
    neighbors  (capacity,)              int32
    shifts     (capacity,)              int32       packed
    sent       (n_atoms, 3 FEATURES)    float32
    vectors    (n_atoms, 3, FEATURES)   float32
    filter     (n_basis, 3 FEATURES)    float32     the constant's row at the end
    scalars    (n_atoms, FEATURES)      float32     in and out: the messages are added
    moved      (n_atoms, 3, FEATURES)   float32     in and out, and so here
    n_atoms    scalar                   int32
    capacity   scalar                   int32       entries of the list
    cutoff     scalar                   float32
    n_basis    scalar                   int32       radial functions, and a constant
    FEATURES   constant                             F
    BLOCK      constant                             features of a program
    BASIS      constant                             n_basis or more, a power of 2
    EDGES      constant                             pairs at once
    PERIODIC   constant                             whether there is a box
    =========  =======================  ==========  =====================================================
    """
    i = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + i), tl.minimum(tl.load(offsets + i + 1), capacity)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    of_scalars = _matrix(filter, f, 0, n_basis, FEATURES, BASIS)
    of_along = _matrix(filter, f, 1, n_basis, FEATURES, BASIS)
    of_vectors = _matrix(filter, f, 2, n_basis, FEATURES, BASIS)
    s = tl.load(scalars + i * FEATURES + f)
    v0 = tl.load(moved + i * 3 * FEATURES + f)
    v1 = tl.load(moved + i * 3 * FEATURES + FEATURES + f)
    v2 = tl.load(moved + i * 3 * FEATURES + 2 * FEATURES + f)
    while begin < end:
        j, near, ux, uy, uz, r, per_r = edges(
            positions, box, neighbors, shifts, i, begin, end, n_atoms, cutoff, EDGES, PERIODIC
        )
        values, _ = _radial(near, r, per_r, cutoff, n_basis, BASIS)
        mask = near[:, None]
        at = sent + j[:, None] * (3 * FEATURES) + f[None, :]
        from_j = vectors + j[:, None] * (3 * FEATURES) + f[None, :]
        w = tl.dot(values, of_scalars, input_precision="ieee")
        s += tl.sum(w * tl.load(at, mask=mask, other=0.0), axis=0)
        along = tl.dot(values, of_along, input_precision="ieee") * tl.load(
            at + FEATURES, mask=mask, other=0.0
        )
        carried = tl.dot(values, of_vectors, input_precision="ieee")
        carried *= tl.load(at + 2 * FEATURES, mask=mask, other=0.0)
        v0 += tl.sum(along * ux[:, None] + carried * tl.load(from_j, mask=mask, other=0.0), axis=0)
        v1 += tl.sum(along * uy[:, None] + carried * tl.load(from_j + FEATURES, mask=mask, other=0.0), axis=0)
        v2 += tl.sum(
            along * uz[:, None] + carried * tl.load(from_j + 2 * FEATURES, mask=mask, other=0.0), axis=0
        )
        begin += EDGES
    tl.store(scalars + i * FEATURES + f, s)
    tl.store(moved + i * 3 * FEATURES + f, v0)
    tl.store(moved + i * 3 * FEATURES + FEATURES + f, v1)
    tl.store(moved + i * 3 * FEATURES + 2 * FEATURES + f, v2)


@triton.jit
def give_back_kernel(
    positions,
    box,
    offsets,
    neighbors,
    shifts,
    sent,
    vectors,
    filter,
    by_scalars,
    by_vectors,
    by_sent,
    by_sent_vectors,
    parts,
    n_atoms,
    capacity,
    cutoff,
    n_basis,
    FEATURES: tl.constexpr,
    BLOCK: tl.constexpr,
    BASIS: tl.constexpr,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Add up what neighbours give back to an atom for what it has sent, and the gradient by its position.

    A pair's gradient is that of the messages in both directions, worked out in both rows.

    Launch grid: ``(n_atoms, FEATURES // BLOCK)``: a program to a row and some features.

    ===============  =======================  ==========  =====================================================
    argument         shape                    dtype       what it is
    ===============  =======================  ==========  =====================================================
    positions        (n_atoms, 3)             float32/64
    box              (3, 3)                   float32/64  lattice vectors, in rows
    offsets          (n_atoms + 1,)           int32
    neighbors        (capacity,)              int32
    shifts           (capacity,)              int32       packed
    sent             (n_atoms, 3 FEATURES)    float32
    vectors          (n_atoms, 3, FEATURES)   float32
    filter           (n_basis, 3 FEATURES)    float32     the constant's row at the end
    by_scalars       (n_atoms, FEATURES)      float32     gradient by the messages
    by_vectors       (n_atoms, 3, FEATURES)   float32     and so here
    by_sent          (n_atoms, 3 FEATURES)    float32     out
    by_sent_vectors  (n_atoms, 3, FEATURES)   float32     in and out: added
    parts            (any, n_atoms, 3)        float32     out: gradient by positions, of each block of features
    n_atoms          scalar                   int32
    capacity         scalar                   int32       entries of the list
    cutoff           scalar                   float32
    n_basis          scalar                   int32       radial functions, and a constant
    FEATURES         constant                             F
    BLOCK            constant                             features of a program
    BASIS            constant                             n_basis or more, a power of 2
    EDGES            constant                             pairs at once
    PERIODIC         constant                             whether there is a box
    ===============  =======================  ==========  =====================================================
    """
    i = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + i), tl.minimum(tl.load(offsets + i + 1), capacity)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    of_scalars = _matrix(filter, f, 0, n_basis, FEATURES, BASIS)
    of_along = _matrix(filter, f, 1, n_basis, FEATURES, BASIS)
    of_vectors = _matrix(filter, f, 2, n_basis, FEATURES, BASIS)
    own = sent + i * 3 * FEATURES + f[None, :]
    a0, a1, a2 = tl.load(own), tl.load(own + FEATURES), tl.load(own + 2 * FEATURES)
    own = vectors + i * 3 * FEATURES + f[None, :]
    va0, va1, va2 = tl.load(own), tl.load(own + FEATURES), tl.load(own + 2 * FEATURES)
    own = by_vectors + i * 3 * FEATURES + f[None, :]
    da0, da1, da2 = tl.load(own), tl.load(own + FEATURES), tl.load(own + 2 * FEATURES)
    sa = tl.load(by_scalars + i * FEATURES + f[None, :])
    zero = tl.zeros((BLOCK,), tl.float32)
    s, along, g0, g1, g2 = zero, zero, zero, zero, zero
    none = tl.zeros((EDGES,), tl.float32)
    x, y, z = none, none, none
    while begin < end:
        j, near, ux, uy, uz, r, per_r = edges(
            positions, box, neighbors, shifts, i, begin, end, n_atoms, cutoff, EDGES, PERIODIC
        )
        values, slopes = _radial(near, r, per_r, cutoff, n_basis, BASIS)
        mask = near[:, None]
        u0, u1, u2 = ux[:, None], uy[:, None], uz[:, None]
        rows = j[:, None] * (3 * FEATURES) + f[None, :]
        sb = tl.load(by_scalars + j[:, None] * FEATURES + f[None, :], mask=mask, other=0.0)
        db0 = tl.load(by_vectors + rows, mask=mask, other=0.0)
        db1 = tl.load(by_vectors + rows + FEATURES, mask=mask, other=0.0)
        db2 = tl.load(by_vectors + rows + 2 * FEATURES, mask=mask, other=0.0)

        w = tl.dot(values, of_scalars, input_precision="ieee")
        s += tl.sum(w * sb, axis=0)
        b0 = tl.load(sent + rows, mask=mask, other=0.0)
        slope = tl.dot(slopes, of_scalars, input_precision="ieee")
        radial = tl.sum(slope * (b0 * sa + a0 * sb), axis=1)

        w = tl.dot(values, of_along, input_precision="ieee")
        along -= tl.sum(w * (db0 * u0 + db1 * u1 + db2 * u2), axis=0)
        b1 = tl.load(sent + rows + FEATURES, mask=mask, other=0.0)
        m0, m1, m2 = b1 * da0 - a1 * db0, b1 * da1 - a1 * db1, b1 * da2 - a1 * db2
        slope = tl.dot(slopes, of_along, input_precision="ieee")
        radial += tl.sum(slope * (m0 * u0 + m1 * u1 + m2 * u2), axis=1)
        t0, t1, t2 = tl.sum(w * m0, axis=1), tl.sum(w * m1, axis=1), tl.sum(w * m2, axis=1)

        w = tl.dot(values, of_vectors, input_precision="ieee")
        g0 += tl.sum(w * db0, axis=0)
        g1 += tl.sum(w * db1, axis=0)
        g2 += tl.sum(w * db2, axis=0)
        received = tl.load(vectors + rows, mask=mask, other=0.0) * da0
        received += tl.load(vectors + rows + FEATURES, mask=mask, other=0.0) * da1
        received += tl.load(vectors + rows + 2 * FEATURES, mask=mask, other=0.0) * da2
        b2 = tl.load(sent + rows + 2 * FEATURES, mask=mask, other=0.0)
        slope = tl.dot(slopes, of_vectors, input_precision="ieee")
        radial += tl.sum(slope * (b2 * received + a2 * (va0 * db0 + va1 * db1 + va2 * db2)), axis=1)

        turn = t0 * ux + t1 * uy + t2 * uz
        x -= tl.where(near, radial * ux + (t0 - turn * ux) * per_r, 0.0)
        y -= tl.where(near, radial * uy + (t1 - turn * uy) * per_r, 0.0)
        z -= tl.where(near, radial * uz + (t2 - turn * uz) * per_r, 0.0)
        begin += EDGES
    to = by_sent + i * 3 * FEATURES + f
    tl.store(to, s)
    tl.store(to + FEATURES, along)
    own_sums = g0[None, :] * va0 + g1[None, :] * va1 + g2[None, :] * va2
    tl.store(by_sent + i * 3 * FEATURES + 2 * FEATURES + f[None, :], own_sums)
    to = by_sent_vectors + i * 3 * FEATURES + f[None, :]
    tl.store(to, tl.load(to) + a2 * g0[None, :])
    tl.store(to + FEATURES, tl.load(to + FEATURES) + a2 * g1[None, :])
    tl.store(to + 2 * FEATURES, tl.load(to + 2 * FEATURES) + a2 * g2[None, :])
    to = parts + (tl.program_id(1) * n_atoms + i) * 3
    tl.store(to, tl.sum(x, axis=0))
    tl.store(to + 1, tl.sum(y, axis=0))
    tl.store(to + 2, tl.sum(z, axis=0))
