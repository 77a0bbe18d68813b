"""A network's layers in Triton: a program to an atom, all that one layer does for it.

An atom receives its neighbours' messages, is updated, and makes what it sends in the next layer; in the last layer it is read out
instead, and the way back begins (`gpu_layers_back`). Between two layers every atom has to be done, so that each is a launch. Sums
are in the order of the list.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_dense import (
    block,
    send,
    silu_and_slope,
    store_four,
    store_row_of_three,
    times,
    update,
    update_back,
)
from .gpu_gather import receive


@triton.jit
def _scalars_before(i, kinds, before, FIRST: tl.constexpr, FEATURES: tl.constexpr):
    """Return an atom's scalars before a layer: its kind's, or those on the tape of the layer before."""
    f = tl.arange(0, FEATURES)
    if FIRST:
        return tl.load(before + tl.load(kinds + i) * FEATURES + f)
    else:
        return tl.load(before + i * 12 * FEATURES + 8 * FEATURES + 4 * f)


@triton.jit
def layer_kernel(
    offsets,
    counts,
    near,
    geometry,
    kinds,
    before,
    sent,
    vectors,
    filter,
    mix,
    d3,
    b3,
    d4,
    b4,
    d1,
    b1,
    d2,
    b2,
    moved,
    next_sent,
    tape,
    cutoff,
    N_BASIS: tl.constexpr,
    FIRST: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Do a layer's message and update for an atom, and make what it sends in the next layer.

    Launch grid: ``(n_atoms,)``.

    =============  =========================  =======  ========================================================
    argument       shape                      dtype    what it is
    =============  =========================  =======  ========================================================
    offsets        (n_atoms + 1,)             int32    where rows begin
    counts         (n_atoms,)                 int32    of `near_kernel`, as the next two
    near           (capacity,)                int32
    geometry       (capacity, 4)              float32
    kinds          (n_atoms,)                 int32
    before         (n_atoms, 3, FEATURES, 4)  float32  tape of the layer before; in the first (n_kinds, FEATURES): scalars
    sent           (n_atoms, 3 FEATURES)      float32  in the first layer (n_kinds, 3 FEATURES)
    vectors        (n_atoms, 3, FEATURES)     float32  not read in the first layer
    filter         (N_BASIS, 3 FEATURES)      float32
    mix            (FEATURES, 2 FEATURES)     float32
    d3             (2 FEATURES, FEATURES)     float32
    b3             (FEATURES,)                float32
    d4             (FEATURES, 3 FEATURES)     float32
    b4             (3 FEATURES,)              float32
    d1             (FEATURES, FEATURES)       float32  of the next layer, as the next three
    b1             (FEATURES,)                float32
    d2             (FEATURES, 3 FEATURES)     float32
    b2             (3 FEATURES,)              float32
    moved          (n_atoms, 3, FEATURES)     float32  out: vectors
    next_sent      (n_atoms, 3 FEATURES)      float32  out
    tape           (n_atoms, 3, FEATURES, 4)  float32  out: **p** and a″; **q** and a; scalars, and what went into silu in the
                                                       update and on the way to what is sent
    cutoff         scalar                     float32
    N_BASIS        constant                            radial functions, and a constant
    FIRST          constant                            whether it is the first layer
    FEATURES       constant                            F
    EDGES          constant                            pairs at once
    =============  =========================  =======  ========================================================
    """
    i = tl.program_id(0).to(tl.int64)
    s = _scalars_before(i, kinds, before, FIRST, FEATURES)
    s, v0, v1, v2 = receive(
        *(i, offsets, counts, near, geometry, kinds, s, sent, vectors, filter, cutoff, N_BASIS),
        *(FIRST, FEATURES, EDGES),
    )
    s, p0, p1, p2, q0, q1, q2, hidden, grown, turned = update(s, v0, v1, v2, mix, d3, b3, d4, b4, FEATURES)
    store_row_of_three(moved + i * 3 * FEATURES, v0 + grown * p0, v1 + grown * p1, v2 + grown * p2, FEATURES)
    own, along, carried, next_hidden = send(s, d1, b1, d2, b2, FEATURES)
    store_row_of_three(next_sent + i * 3 * FEATURES, own, along, carried, FEATURES)
    to = tape + i * 12 * FEATURES
    store_four(to, p0, p1, p2, turned, FEATURES)
    store_four(to + 4 * FEATURES, q0, q1, q2, grown, FEATURES)
    store_four(to + 8 * FEATURES, s, hidden, next_hidden, next_hidden, FEATURES)


@triton.jit
def last_layer_kernel(
    offsets,
    counts,
    near,
    geometry,
    kinds,
    before,
    sent,
    vectors,
    filter,
    mix,
    mix_transposed,
    d3,
    d3_transposed,
    b3,
    d4,
    d4_transposed,
    b4,
    r1,
    r1_transposed,
    c1,
    r2,
    c2,
    atomic,
    by_scalars,
    by_vectors,
    cutoff,
    N_BASIS: tl.constexpr,
    FIRST: tl.constexpr,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Do the last layer's message and update for an atom, read it out, and go back to its message.

    Launch grid: ``(n_atoms,)``.

    ==============  ==========================  =======  ========================================================
    argument        shape                       dtype    what it is
    ==============  ==========================  =======  ========================================================
    offsets         (n_atoms + 1,)              int32    where rows begin
    counts          (n_atoms,)                  int32    of `near_kernel`, as the next two
    near            (capacity,)                 int32
    geometry        (capacity, 4)               float32
    kinds           (n_atoms,)                  int32
    before          (n_atoms, 3, FEATURES, 4)   float32  tape of the layer before; in the first (n_kinds, FEATURES): scalars
    sent            (n_atoms, 3 FEATURES)       float32  in the first layer (n_kinds, 3 FEATURES)
    vectors         (n_atoms, 3, FEATURES)      float32  not read in the first layer
    filter          (N_BASIS, 3 FEATURES)       float32
    mix             (FEATURES, 2 FEATURES)      float32
    mix_transposed  (2 FEATURES, FEATURES)      float32
    d3              (2 FEATURES, FEATURES)      float32
    d3_transposed   (FEATURES, 2 FEATURES)      float32
    b3              (FEATURES,)                 float32
    d4              (FEATURES, 3 FEATURES)      float32
    d4_transposed   (3 FEATURES, FEATURES)      float32
    b4              (3 FEATURES,)               float32
    r1              (FEATURES, FEATURES // 2)   float32  of the readout, as the next four
    r1_transposed   (FEATURES // 2, FEATURES)   float32
    c1              (FEATURES // 2,)            float32
    r2              (FEATURES // 2,)            float32
    c2              (1,)                        float32
    atomic          (n_atoms,)                  float32  out: energies
    by_scalars      (n_atoms, FEATURES)         float32  out: gradient by the scalars after the message
    by_vectors      (n_atoms, 3, FEATURES)      float32  out: and by the vectors
    cutoff          scalar                      float32
    N_BASIS         constant                             radial functions, and a constant
    FIRST           constant                             whether it is the first layer as well
    FEATURES        constant                             F
    EDGES           constant                             pairs at once
    ==============  ==========================  =======  ========================================================
    """
    i = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, FEATURES)
    s = _scalars_before(i, kinds, before, FIRST, FEATURES)
    s, v0, v1, v2 = receive(
        *(i, offsets, counts, near, geometry, kinds, s, sent, vectors, filter, cutoff, N_BASIS),
        *(FIRST, FEATURES, EDGES),
    )
    s, p0, p1, p2, q0, q1, q2, hidden, grown, turned = update(s, v0, v1, v2, mix, d3, b3, d4, b4, FEATURES)
    half: tl.constexpr = FEATURES // 2
    h = tl.arange(0, half)
    read = tl.load(c1 + h) + times(s, block(r1, FEATURES, half, half))
    active, slope = silu_and_slope(read)
    last = tl.load(r2 + h)
    tl.store(atomic + i, tl.sum(active * last, axis=0) + tl.load(c2))
    by_s = times(slope * last, block(r1_transposed, half, FEATURES, FEATURES))
    none = tl.zeros((FEATURES,), tl.float32)
    by_s, by_v0, by_v1, by_v2 = update_back(
        *(by_s, none, none, none, p0, p1, p2, q0, q1, q2, hidden, grown, turned),
        *(mix_transposed, d3_transposed, d4_transposed, FEATURES),
    )
    tl.store(by_scalars + i * FEATURES + f, by_s)
    store_row_of_three(by_vectors + i * 3 * FEATURES, by_v0, by_v1, by_v2, FEATURES)
