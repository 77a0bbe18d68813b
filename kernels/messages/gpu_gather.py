"""What an atom receives from its neighbours, and what they give back to it, in Triton: sums in the order of the list.

Programs that have one atom from a message to the next (`gpu_layers`) call the functions; where updates are launches of their own
(`gpu_tiles`), so are messages, the kernels here.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_dense import row_of_three, store_row_of_three, sum_of_four
from .gpu_filters import filters, filters_and_slopes, gathered, near_edges


@triton.jit
def receive(
    i,
    offsets,
    counts,
    near,
    geometry,
    kinds,
    s,
    sent,
    vectors,
    filter,
    cutoff,
    N_BASIS: tl.constexpr,
    FIRST: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Return an atom's scalars and vectors with its neighbours' messages added, from its scalars ``s`` before."""
    f = tl.arange(0, FEATURES)
    begin = tl.load(offsets + i)
    end = begin + tl.load(counts + i)
    if FIRST:
        v0 = tl.zeros((FEATURES,), tl.float32)
        v1, v2 = v0, v0
    else:
        v0, v1, v2 = row_of_three(vectors + i * 3 * FEATURES, FEATURES)
    while begin < end:
        j, here, ux, uy, uz, r = near_edges(near, geometry, begin, end, EDGES)
        source = tl.load(kinds + j, mask=here, other=0).to(tl.int64) if FIRST else j
        rows = source[:, None] * (3 * FEATURES) + f[None, :]
        a = gathered(sent + rows, here)
        a1 = gathered(sent + rows + FEATURES, here)
        if not FIRST:
            a2 = gathered(sent + rows + 2 * FEATURES, here)
            b0 = gathered(vectors + rows, here)
            b1 = gathered(vectors + rows + FEATURES, here)
            b2 = gathered(vectors + rows + 2 * FEATURES, here)
        w, w1, w2 = filters(a, r, here, filter, cutoff, N_BASIS, FEATURES, not FIRST)
        along = w1 * a1
        m0, m1, m2 = along * ux[:, None], along * uy[:, None], along * uz[:, None]
        if not FIRST:
            carried = w2 * a2
            m0, m1, m2 = m0 + carried * b0, m1 + carried * b1, m2 + carried * b2
        to_s, to_v0, to_v1, to_v2 = sum_of_four(w * a, m0, m1, m2)
        s, v0, v1, v2 = s + to_s, v0 + to_v0, v1 + to_v1, v2 + to_v2
        begin += EDGES
    return s, v0, v1, v2


@triton.jit
def add_to_gradient(address, x, y, z, BEGINS: tl.constexpr):
    """Write the sums of an atom's pairs, or add them to what is there."""
    x, y, z = tl.sum(x, axis=0), tl.sum(y, axis=0), tl.sum(z, axis=0)
    if BEGINS:
        tl.store(address, x)
        tl.store(address + 1, y)
        tl.store(address + 2, z)
    else:
        tl.store(address, tl.load(address) + x)
        tl.store(address + 1, tl.load(address + 1) + y)
        tl.store(address + 2, tl.load(address + 2) + z)


@triton.jit
def give_back(
    i,
    offsets,
    counts,
    near,
    geometry,
    sent,
    vectors,
    filter,
    by_scalars,
    by_vectors,
    gradient,
    cutoff,
    N_BASIS: tl.constexpr,
    BEGINS: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Return the gradients by what an atom sent (φ, φ′, φ″), its scalars and vectors; write or add that by its position."""
    f = tl.arange(0, FEATURES)
    begin = tl.load(offsets + i)
    end = begin + tl.load(counts + i)
    a0, a1, a2 = row_of_three(sent + i * 3 * FEATURES, FEATURES)
    va0, va1, va2 = row_of_three(vectors + i * 3 * FEATURES, FEATURES)
    da0, da1, da2 = row_of_three(by_vectors + i * 3 * FEATURES, FEATURES)
    sa = tl.load(by_scalars + i * FEATURES + f)
    zero = tl.zeros((FEATURES,), tl.float32)
    s, along, g0, g1, g2 = zero, zero, zero, zero, zero
    none = tl.zeros((EDGES,), tl.float32)
    x, y, z = none, none, none
    while begin < end:
        j, here, ux, uy, uz, r = near_edges(near, geometry, begin, end, EDGES)
        u0, u1, u2 = ux[:, None], uy[:, None], uz[:, None]
        rows = j[:, None] * (3 * FEATURES) + f[None, :]
        sb = gathered(by_scalars + j[:, None] * FEATURES + f[None, :], here)
        db0 = gathered(by_vectors + rows, here)
        db1 = gathered(by_vectors + rows + FEATURES, here)
        db2 = gathered(by_vectors + rows + 2 * FEATURES, here)
        w, w1, w2, dw, dw1, dw2 = filters_and_slopes(sb, r, here, filter, cutoff, N_BASIS, FEATURES, True)
        to_s, to_g0, to_g1, to_g2 = sum_of_four(w * sb, w2 * db0, w2 * db1, w2 * db2)
        s, g0, g1, g2 = s + to_s, g0 + to_g0, g1 + to_g1, g2 + to_g2
        along -= tl.sum(w1 * (db0 * u0 + db1 * u1 + db2 * u2), axis=0)
        b = gathered(sent + rows, here)
        by_r = dw * (b * sa[None, :] + a0[None, :] * sb)
        b = gathered(sent + rows + FEATURES, here)
        m0, m1, m2 = (
            b * da0[None, :] - a1[None, :] * db0,
            b * da1[None, :] - a1[None, :] * db1,
            b * da2[None, :] - a1[None, :] * db2,
        )
        by_r += dw1 * (m0 * u0 + m1 * u1 + m2 * u2)
        received = gathered(vectors + rows, here) * da0[None, :]
        received += gathered(vectors + rows + FEATURES, here) * da1[None, :]
        received += gathered(vectors + rows + 2 * FEATURES, here) * da2[None, :]
        b = gathered(sent + rows + 2 * FEATURES, here)
        own = va0[None, :] * db0 + va1[None, :] * db1 + va2[None, :] * db2
        by_r += dw2 * (b * received + a2[None, :] * own)
        along_r = tl.sum(by_r, axis=1)
        t0, t1, t2 = tl.sum(w1 * m0, axis=1), tl.sum(w1 * m1, axis=1), tl.sum(w1 * m2, axis=1)
        turn = t0 * ux + t1 * uy + t2 * uz
        x -= along_r * ux + (t0 - turn * ux) / r
        y -= along_r * uy + (t1 - turn * uy) / r
        z -= along_r * uz + (t2 - turn * uz) / r
        begin += EDGES
    add_to_gradient(gradient + 3 * i, x, y, z, BEGINS)
    carried = g0 * va0 + g1 * va1 + g2 * va2
    return s, along, carried, sa, da0 + a2 * g0, da1 + a2 * g1, da2 + a2 * g2


@triton.jit
def message_kernel(
    offsets,
    counts,
    near,
    geometry,
    kinds,
    before,
    sent,
    vectors,
    filter,
    scalars,
    moved,
    cutoff,
    N_BASIS: tl.constexpr,
    FIRST: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Add to an atom's scalars and vectors what it receives in a layer.

    Launch grid: ``(n_atoms,)``.

    ========  ========================  =======  ========================================================
    argument  shape                     dtype    what it is
    ========  ========================  =======  ========================================================
    offsets   (n_atoms + 1,)            int32    where rows begin
    counts    (n_atoms,)                int32    of `near_kernel`, as the next two
    near      (capacity,)               int32
    geometry  (capacity, 4)             float32
    kinds     (n_atoms,)                int32
    before    (n_atoms, FEATURES)       float32  scalars before the message; in the first layer (n_kinds, FEATURES)
    sent      (n_atoms, 3 FEATURES)     float32  in the first layer (n_kinds, 3 FEATURES)
    vectors   (n_atoms, 3, FEATURES)    float32  before the message; not read in the first layer, where they are 0
    filter    (N_BASIS, 3 FEATURES)     float32
    scalars   (n_atoms, FEATURES)       float32  out: after the message; may be ``before``
    moved     (n_atoms, 3, FEATURES)    float32  out: vectors after the message
    cutoff    scalar                    float32
    N_BASIS   constant                           radial functions, and a constant
    FIRST     constant                           whether it is the first layer
    FEATURES  constant                           F
    EDGES     constant                           pairs at once
    ========  ========================  =======  ========================================================
    """
    i = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, FEATURES)
    s = tl.load(before + (tl.load(kinds + i) if FIRST else i) * FEATURES + f)
    s, v0, v1, v2 = receive(
        *(i, offsets, counts, near, geometry, kinds, s, sent, vectors, filter, cutoff, N_BASIS),
        *(FIRST, FEATURES, EDGES),
    )
    tl.store(scalars + i * FEATURES + f, s)
    store_row_of_three(moved + i * 3 * FEATURES, v0, v1, v2, FEATURES)


@triton.jit
def message_back_kernel(
    offsets,
    counts,
    near,
    geometry,
    sent,
    vectors,
    filter,
    by_scalars,
    by_vectors,
    by_sent,
    to_vectors,
    gradient,
    cutoff,
    N_BASIS: tl.constexpr,
    BEGINS: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Gather what an atom is given back for what it has sent in a layer, and its gradient by the position.

    Launch grid: ``(n_atoms,)``.

    ==========  ========================  ==========  ======================================================
    argument    shape                     dtype       what it is
    ==========  ========================  ==========  ======================================================
    offsets     (n_atoms + 1,)            int32       where rows begin
    counts      (n_atoms,)                int32       of `near_kernel`, as the next two
    near        (capacity,)               int32
    geometry    (capacity, 4)             float32
    sent        (n_atoms, 3 FEATURES)     float32
    vectors     (n_atoms, 3, FEATURES)    float32     before the message
    filter      (N_BASIS, 3 FEATURES)     float32
    by_scalars  (n_atoms, FEATURES)       float32     gradient by the scalars after the message
    by_vectors  (n_atoms, 3, FEATURES)    float32     and by the vectors
    by_sent     (n_atoms, 3 FEATURES)     float32     out: by what was sent
    to_vectors  (n_atoms, 3, FEATURES)    float32     out: by the vectors before the message
    gradient    (n_atoms, 3)              float32/64  in and out: by the positions
    cutoff      scalar                    float32
    N_BASIS     constant                              radial functions, and a constant
    BEGINS      constant                              whether the gradient is written, not added to
    FEATURES    constant                              F
    EDGES       constant                              pairs at once
    ==========  ========================  ==========  ======================================================
    """
    i = tl.program_id(0).to(tl.int64)
    own, along, carried, _, v0, v1, v2 = give_back(
        *(i, offsets, counts, near, geometry, sent, vectors, filter, by_scalars, by_vectors, gradient),
        *(cutoff, N_BASIS, BEGINS, FEATURES, EDGES),
    )
    store_row_of_three(by_sent + i * 3 * FEATURES, own, along, carried, FEATURES)
    store_row_of_three(to_vectors + i * 3 * FEATURES, v0, v1, v2, FEATURES)
