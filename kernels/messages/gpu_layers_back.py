"""The way back through a network's layers in Triton: a program to an atom, all that one layer does for it.

An atom is given back what it had sent, and goes back through the layer before to that layer's message. As forward (`gpu_layers`),
each layer is a launch, and sums are in the order of the list.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_dense import load_four, row_of_three, send_back, store_row_of_three, update_back
from .gpu_filters import filters_and_slopes, gathered, near_edges
from .gpu_gather import add_to_gradient, give_back


@triton.jit
def layer_back_kernel(
    offsets,
    counts,
    near,
    geometry,
    sent,
    vectors,
    filter,
    by_scalars,
    by_vectors,
    d1_transposed,
    d2_transposed,
    tape,
    mix_transposed,
    d3_transposed,
    d4_transposed,
    to_scalars,
    to_vectors,
    gradient,
    cutoff,
    N_BASIS: tl.constexpr,
    BEGINS: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Gather what an atom is given back for what it has sent, and go back through the layer before to its message.

    A pair's gradient by the positions is that of the messages in both directions, worked out in both rows.

    Launch grid: ``(n_atoms,)``.

    ==============  =========================  ==========  ======================================================
    argument        shape                      dtype       what it is
    ==============  =========================  ==========  ======================================================
    offsets         (n_atoms + 1,)             int32       where rows begin
    counts          (n_atoms,)                 int32       of `near_kernel`, as the next two
    near            (capacity,)                int32
    geometry        (capacity, 4)              float32
    sent            (n_atoms, 3 FEATURES)      float32     in this layer
    vectors         (n_atoms, 3, FEATURES)     float32     before this layer
    filter          (N_BASIS, 3 FEATURES)      float32
    by_scalars      (n_atoms, FEATURES)        float32     gradient by the scalars after this layer's message
    by_vectors      (n_atoms, 3, FEATURES)     float32     and by the vectors
    d1_transposed   (FEATURES, FEATURES)       float32     of this layer, as the next
    d2_transposed   (3 FEATURES, FEATURES)     float32
    tape            (n_atoms, 3, FEATURES, 4)  float32     of the layer before, as the next three
    mix_transposed  (2 FEATURES, FEATURES)     float32
    d3_transposed   (FEATURES, 2 FEATURES)     float32
    d4_transposed   (3 FEATURES, FEATURES)     float32
    to_scalars      (n_atoms, FEATURES)        float32     out: gradient by the scalars after the message before
    to_vectors      (n_atoms, 3, FEATURES)     float32     out: and by the vectors
    gradient        (n_atoms, 3)               float32/64  in and out: by the positions
    cutoff          scalar                     float32
    N_BASIS         constant                               radial functions, and a constant
    BEGINS          constant                               whether the gradient is written, not added to
    FEATURES        constant                               F
    EDGES           constant                               pairs at once
    ==============  =========================  ==========  ======================================================
    """
    i = tl.program_id(0).to(tl.int64)
    s, along, carried, by_s, by_v0, by_v1, by_v2 = give_back(
        *(i, offsets, counts, near, geometry, sent, vectors, filter, by_scalars, by_vectors, gradient),
        *(cutoff, N_BASIS, BEGINS, FEATURES, EDGES),
    )
    of_before = tape + i * 12 * FEATURES
    p0, p1, p2, turned = load_four(of_before, FEATURES)
    q0, q1, q2, grown = load_four(of_before + 4 * FEATURES, FEATURES)
    _, update_hidden, hidden, _ = load_four(of_before + 8 * FEATURES, FEATURES)
    by_s += send_back(s, along, carried, hidden, d1_transposed, d2_transposed, FEATURES)
    by_s, by_v0, by_v1, by_v2 = update_back(
        *(by_s, by_v0, by_v1, by_v2, p0, p1, p2, q0, q1, q2),
        *(update_hidden, grown, turned, mix_transposed, d3_transposed, d4_transposed, FEATURES),
    )
    tl.store(to_scalars + i * FEATURES + tl.arange(0, FEATURES), by_s)
    store_row_of_three(to_vectors + i * 3 * FEATURES, by_v0, by_v1, by_v2, FEATURES)


@triton.jit
def first_layer_back_kernel(
    offsets,
    counts,
    near,
    geometry,
    kinds,
    sent,
    filter,
    by_scalars,
    by_vectors,
    atomic,
    gradient,
    energy,
    n_atoms,
    cutoff,
    N_BASIS: tl.constexpr,
    BEGINS: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Add the gradient by an atom's position through the first layer, whose vectors are 0; or add up all energies.

    Launch grid: ``(n_atoms + 1,)``: a program to an atom, and one to the energy.

    ==========  =====================  ==========  =========================================================
    argument    shape                  dtype       what it is
    ==========  =====================  ==========  =========================================================
    offsets     (n_atoms + 1,)         int32       where rows begin
    counts      (n_atoms,)             int32       of `near_kernel`, as the next two
    near        (capacity,)            int32
    geometry    (capacity, 4)          float32
    kinds       (n_atoms,)             int32
    sent        (n_kinds, 3 FEATURES)  float32     in this layer
    filter      (N_BASIS, 3 FEATURES)  float32
    by_scalars  (n_atoms, FEATURES)    float32     gradient by the scalars after this layer's message
    by_vectors  (n_atoms, 3, FEATURES) float32     and by the vectors
    atomic      (n_atoms,)             float32     energies
    gradient    (n_atoms, 3)           float32/64  in and out: by the positions
    energy      ()                     float64     out: the sum
    n_atoms     scalar                 int32
    cutoff      scalar                 float32
    N_BASIS     constant                           radial functions, and a constant
    BEGINS      constant                           whether the gradient is written, not added to
    FEATURES    constant                           F
    EDGES       constant                           pairs at once
    ==========  =====================  ==========  =========================================================
    """
    i = tl.program_id(0).to(tl.int64)
    if i == n_atoms:
        total = tl.zeros((512,), tl.float64)
        first = 0
        while first < n_atoms:
            k = first + tl.arange(0, 512)
            total += tl.load(atomic + k, mask=k < n_atoms, other=0.0).to(tl.float64)
            first += 512
        tl.store(energy, tl.sum(total, axis=0))
        return
    f = tl.arange(0, FEATURES)
    begin = tl.load(offsets + i)
    end = begin + tl.load(counts + i)
    row = sent + tl.load(kinds + i).to(tl.int64) * 3 * FEATURES + f
    a0, a1 = tl.load(row)[None, :], tl.load(row + FEATURES)[None, :]
    da0, da1, da2 = row_of_three(by_vectors + i * 3 * FEATURES, FEATURES)
    sa = tl.load(by_scalars + i * FEATURES + f)[None, :]
    none = tl.zeros((EDGES,), tl.float32)
    x, y, z = none, none, none
    while begin < end:
        j, here, ux, uy, uz, r = near_edges(near, geometry, begin, end, EDGES)
        kind = tl.load(kinds + j, mask=here, other=0).to(tl.int64)
        rows = j[:, None] * (3 * FEATURES) + f[None, :]
        from_kind = sent + kind[:, None] * (3 * FEATURES) + f[None, :]
        sb = gathered(by_scalars + j[:, None] * FEATURES + f[None, :], here)
        _, w1, _, dw, dw1, _ = filters_and_slopes(sb, r, here, filter, cutoff, N_BASIS, FEATURES, False)
        b = gathered(from_kind + FEATURES, here)
        m0 = b * da0[None, :] - a1 * gathered(by_vectors + rows, here)
        m1 = b * da1[None, :] - a1 * gathered(by_vectors + rows + FEATURES, here)
        m2 = b * da2[None, :] - a1 * gathered(by_vectors + rows + 2 * FEATURES, here)
        by_r = dw * (gathered(from_kind, here) * sa + a0 * sb)
        by_r += dw1 * (m0 * ux[:, None] + m1 * uy[:, None] + m2 * uz[:, None])
        along_r = tl.sum(by_r, axis=1)
        t0, t1, t2 = tl.sum(w1 * m0, axis=1), tl.sum(w1 * m1, axis=1), tl.sum(w1 * m2, axis=1)
        turn = t0 * ux + t1 * uy + t2 * uz
        x -= along_r * ux + (t0 - turn * ux) / r
        y -= along_r * uy + (t1 - turn * uy) / r
        z -= along_r * uz + (t2 - turn * uz) / r
        begin += EDGES
    add_to_gradient(gradient + 3 * i, x, y, z, BEGINS)
