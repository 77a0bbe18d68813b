"""Before a network's layers, in Triton: each atom's neighbours within the cut-off, and what atoms of each kind send at first."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_dense import send, store_row_of_three
from .gpu_rows import edges


@triton.jit
def near_kernel(
    positions,
    box,
    offsets,
    neighbors,
    shifts,
    embedding,
    d1,
    b1,
    d2,
    b2,
    counts,
    near,
    geometry,
    sent,
    n_atoms,
    capacity,
    cutoff,
    FEATURES: tl.constexpr,
    EDGES: tl.constexpr,
    PERIODIC: tl.constexpr,
):
    """Write an atom's neighbours within the cut-off, in the list's order, or what a kind of atom sends in the first layer.

    Launch grid: ``(n_atoms + n_kinds,)``: a program to a row, and to a kind.

    =========  =====================  ==========  =====================================================
    argument   shape                  dtype       what it is
    =========  =====================  ==========  =====================================================
    positions  (n_atoms, 3)           float32/64
    box        (3, 3)                 float32/64  lattice vectors, in rows
    offsets    (n_atoms + 1,)         int32
    neighbors  (capacity,)            int32
    shifts     (capacity,)            int32       packed
    embedding  (n_kinds, FEATURES)    float32
    d1         (FEATURES, FEATURES)   float32     of the first layer, as the next three
    b1         (FEATURES,)            float32
    d2         (FEATURES, 3 FEATURES) float32
    b2         (3 FEATURES,)          float32
    counts     (n_atoms,)             int32       out: how many neighbours are near
    near       (capacity,)            int32       out: they, from the beginning of the atom's row in the list
    geometry   (capacity, 4)          float32     out: direction and distance of each
    sent       (n_kinds, 3 FEATURES)  float32     out
    n_atoms    scalar                 int32
    capacity   scalar                 int32       entries of the list
    cutoff     scalar                 float32
    FEATURES   constant                           F
    EDGES      constant                           pairs at once
    PERIODIC   constant                           whether there is a box
    =========  =====================  ==========  =====================================================
    """
    i = tl.program_id(0).to(tl.int64)
    if i < n_atoms:
        begin = tl.load(offsets + i)
        end = tl.minimum(tl.load(offsets + i + 1), capacity)
        to = begin.to(tl.int64)
        last = to
        while begin < end:
            j, is_near, ux, uy, uz, r, _ = edges(
                positions, box, neighbors, shifts, i, begin, end, n_atoms, cutoff, EDGES, PERIODIC
            )
            rank = tl.cumsum(is_near.to(tl.int32), axis=0)
            at = last + rank - 1
            tl.store(near + at, j.to(tl.int32), mask=is_near)
            tl.store(geometry + 4 * at, ux, mask=is_near)
            tl.store(geometry + 4 * at + 1, uy, mask=is_near)
            tl.store(geometry + 4 * at + 2, uz, mask=is_near)
            tl.store(geometry + 4 * at + 3, r, mask=is_near)
            last += tl.sum(is_near.to(tl.int32), axis=0)
            begin += EDGES
        tl.store(counts + i, (last - to).to(tl.int32))
    else:
        kind = i - n_atoms
        s = tl.load(embedding + kind * FEATURES + tl.arange(0, FEATURES))
        own, along, carried, _ = send(s, d1, b1, d2, b2, FEATURES)
        store_row_of_three(sent + kind * 3 * FEATURES, own, along, carried, FEATURES)
