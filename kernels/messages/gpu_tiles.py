"""What a layer does between two messages, in Triton, for a tile of atoms at once.

A program reads a matrix once for all of its atoms, where `gpu_layers` reads it for each. Products of matrices are three of tf32
each, nearly as exact as float32. (F,) of an atom in `gpu_dense` is (ATOMS, F) here.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .gpu_dense import block, silu_and_slope
from .reference import NORM_FLOOR

_FLOOR = tl.constexpr(NORM_FLOOR)


@triton.jit
def _times(x, matrix):
    """Return x M, (ATOMS, N_OUT), of x (ATOMS, N_IN)."""
    return tl.dot(x, matrix, input_precision="tf32x3")


@triton.jit
def _rows(table, atoms, n_atoms, PART: tl.constexpr, PARTS: tl.constexpr, FEATURES: tl.constexpr):
    """Return a part of the rows of a tile's atoms, (ATOMS, FEATURES); 0 where there is no atom."""
    at = atoms[:, None].to(tl.int64) * (PARTS * FEATURES) + PART * FEATURES + tl.arange(0, FEATURES)[None, :]
    return tl.load(table + at, mask=atoms[:, None] < n_atoms, other=0.0)


@triton.jit
def _three_rows(table, atoms, n_atoms, PART: tl.constexpr, PARTS: tl.constexpr, FEATURES: tl.constexpr):
    """Return three parts of the rows of a tile's atoms that follow one another."""
    a = _rows(table, atoms, n_atoms, PART, PARTS, FEATURES)
    b = _rows(table, atoms, n_atoms, PART + 1, PARTS, FEATURES)
    c = _rows(table, atoms, n_atoms, PART + 2, PARTS, FEATURES)
    return a, b, c


@triton.jit
def _store_rows(
    table, values, atoms, n_atoms, PART: tl.constexpr, PARTS: tl.constexpr, FEATURES: tl.constexpr
):
    """Write a part of the rows of a tile's atoms."""
    at = atoms[:, None].to(tl.int64) * (PARTS * FEATURES) + PART * FEATURES + tl.arange(0, FEATURES)[None, :]
    tl.store(table + at, values, mask=atoms[:, None] < n_atoms)


@triton.jit
def _store_three_rows(
    table, a, b, c, atoms, n_atoms, PART: tl.constexpr, PARTS: tl.constexpr, FEATURES: tl.constexpr
):
    """Write three parts of the rows of a tile's atoms that follow one another."""
    _store_rows(table, a, atoms, n_atoms, PART, PARTS, FEATURES)
    _store_rows(table, b, atoms, n_atoms, PART + 1, PARTS, FEATURES)
    _store_rows(table, c, atoms, n_atoms, PART + 2, PARTS, FEATURES)


@triton.jit
def _bias(bias, PART: tl.constexpr, FEATURES: tl.constexpr):
    """Return a part of a bias, (1, FEATURES)."""
    return tl.load(bias + PART * FEATURES + tl.arange(0, FEATURES))[None, :]


@triton.jit
def _times_three(x, matrix, bias, FEATURES: tl.constexpr):
    """Return x M + b, three times (ATOMS, F), of a matrix (F, 3 F)."""
    F: tl.constexpr = FEATURES
    a = _times(x, block(matrix, F, F, 3 * F)) + _bias(bias, 0, F)
    b = _times(x, block(matrix + F, F, F, 3 * F)) + _bias(bias, 1, F)
    c = _times(x, block(matrix + 2 * F, F, F, 3 * F)) + _bias(bias, 2, F)
    return a, b, c


@triton.jit
def _times_three_back(by_a, by_b, by_c, transposed, FEATURES: tl.constexpr):
    """Return the gradient by x of which `_times_three` made three times (ATOMS, F), by a matrix (3 F, F)."""
    F: tl.constexpr = FEATURES
    by_x = _times(by_a, block(transposed, F, F, F))
    by_x += _times(by_b, block(transposed + F * F, F, F, F))
    by_x += _times(by_c, block(transposed + 2 * F * F, F, F, F))
    return by_x


@triton.jit
def _update(s, v0, v1, v2, mix, d3, b3, d4, b4, FEATURES: tl.constexpr):
    """Return what `gpu_dense.update` returns, of a tile."""
    F: tl.constexpr = FEATURES
    u = block(mix, F, F, 2 * F)
    p0, p1, p2 = _times(v0, u), _times(v1, u), _times(v2, u)
    v = block(mix + F, F, F, 2 * F)
    q0, q1, q2 = _times(v0, v), _times(v1, v), _times(v2, v)
    length = tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    hidden = _times(s, block(d3, F, F, F)) + _times(length, block(d3 + F * F, F, F, F)) + _bias(b3, 0, F)
    active, _ = silu_and_slope(hidden)
    grown, added, turned = _times_three(active, d4, b4, F)
    s += added + turned * (p0 * q0 + p1 * q1 + p2 * q2)
    return s, p0, p1, p2, q0, q1, q2, hidden, grown, turned


@triton.jit
def _update_back(
    by_s,
    by_v0,
    by_v1,
    by_v2,
    p0,
    p1,
    p2,
    q0,
    q1,
    q2,
    hidden,
    grown,
    turned,
    mix_transposed,
    d3_transposed,
    d4_transposed,
    FEATURES: tl.constexpr,
):
    """Return what `gpu_dense.update_back` returns, of a tile."""
    F: tl.constexpr = FEATURES
    by_grown = by_v0 * p0 + by_v1 * p1 + by_v2 * p2
    by_turned = by_s * (p0 * q0 + p1 * q1 + p2 * q2)
    by_active = _times_three_back(by_grown, by_s, by_turned, d4_transposed, F)
    _, slope = silu_and_slope(hidden)
    by_hidden = by_active * slope
    by_length = _times(by_hidden, block(d3_transposed + F, F, F, 2 * F))
    by_length /= tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    to_s = by_s + _times(by_hidden, block(d3_transposed, F, F, 2 * F))
    by_dot = by_s * turned
    u = block(mix_transposed, F, F, F)
    by_v0 += _times(by_v0 * grown + by_dot * q0, u)
    by_v1 += _times(by_v1 * grown + by_dot * q1, u)
    by_v2 += _times(by_v2 * grown + by_dot * q2, u)
    v = block(mix_transposed + F * F, F, F, F)
    by_v0 += _times(by_dot * p0 + by_length * q0, v)
    by_v1 += _times(by_dot * p1 + by_length * q1, v)
    by_v2 += _times(by_dot * p2 + by_length * q2, v)
    return to_s, by_v0, by_v1, by_v2


@triton.jit
def update_kernel(
    scalars,
    vectors,
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
    n_atoms,
    FEATURES: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Update a tile of atoms after a layer's message, and make what they send in the next layer.

    Launch grid: ``(ceil(n_atoms / ATOMS),)``.

    =========  ========================  =======  ========================================================
    argument   shape                     dtype    what it is
    =========  ========================  =======  ========================================================
    scalars    (n_atoms, FEATURES)       float32  in and out: after the message, after the update
    vectors    (n_atoms, 3, FEATURES)    float32  after the message
    mix        (FEATURES, 2 FEATURES)    float32
    d3         (2 FEATURES, FEATURES)    float32
    b3         (FEATURES,)               float32
    d4         (FEATURES, 3 FEATURES)    float32
    b4         (3 FEATURES,)             float32
    d1         (FEATURES, FEATURES)      float32  of the next layer, as the next three
    b1         (FEATURES,)               float32
    d2         (FEATURES, 3 FEATURES)    float32
    b2         (3 FEATURES,)             float32
    moved      (n_atoms, 3, FEATURES)    float32  out: vectors after the update
    next_sent  (n_atoms, 3 FEATURES)     float32  out
    tape       (n_atoms, 10, FEATURES)   float32  out: **p**, **q**, a, a″, and what went into silu in the update and on the
                                                  way to what is sent
    n_atoms    scalar                    int32
    FEATURES   constant                           F
    ATOMS      constant                           atoms of a tile, 16 or more for `tl.dot`
    =========  ========================  =======  ========================================================
    """
    F: tl.constexpr = FEATURES
    atoms = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    s = _rows(scalars, atoms, n_atoms, 0, 1, F)
    v0, v1, v2 = _three_rows(vectors, atoms, n_atoms, 0, 3, F)
    s, p0, p1, p2, q0, q1, q2, hidden, grown, turned = _update(s, v0, v1, v2, mix, d3, b3, d4, b4, F)
    _store_three_rows(tape, p0, p1, p2, atoms, n_atoms, 0, 10, F)
    _store_three_rows(tape, q0, q1, q2, atoms, n_atoms, 3, 10, F)
    _store_three_rows(tape, grown, turned, hidden, atoms, n_atoms, 6, 10, F)
    v0, v1, v2 = v0 + grown * p0, v1 + grown * p1, v2 + grown * p2
    _store_three_rows(moved, v0, v1, v2, atoms, n_atoms, 0, 3, F)
    _store_rows(scalars, s, atoms, n_atoms, 0, 1, F)
    hidden = _times(s, block(d1, F, F, F)) + _bias(b1, 0, F)
    _store_rows(tape, hidden, atoms, n_atoms, 9, 10, F)
    active, _ = silu_and_slope(hidden)
    own, along, carried = _times_three(active, d2, b2, F)
    _store_three_rows(next_sent, own, along, carried, atoms, n_atoms, 0, 3, F)


@triton.jit
def readout_kernel(
    scalars,
    vectors,
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
    n_atoms,
    FEATURES: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Update a tile of atoms after the last message, read them out, and go back to that message.

    Launch grid: ``(ceil(n_atoms / ATOMS),)``.

    ==============  ==========================  =======  ========================================================
    argument        shape                       dtype    what it is
    ==============  ==========================  =======  ========================================================
    scalars         (n_atoms, FEATURES)         float32  after the message
    vectors         (n_atoms, 3, FEATURES)      float32  after the message
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
    n_atoms         scalar                      int32
    FEATURES        constant                             F
    ATOMS           constant                             atoms of a tile, 16 or more for `tl.dot`
    ==============  ==========================  =======  ========================================================
    """
    F: tl.constexpr = FEATURES
    half: tl.constexpr = FEATURES // 2
    atoms = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    s = _rows(scalars, atoms, n_atoms, 0, 1, F)
    v0, v1, v2 = _three_rows(vectors, atoms, n_atoms, 0, 3, F)
    s, p0, p1, p2, q0, q1, q2, hidden, grown, turned = _update(s, v0, v1, v2, mix, d3, b3, d4, b4, F)
    active, slope = silu_and_slope(_times(s, block(r1, F, half, half)) + _bias(c1, 0, half))
    last = _bias(r2, 0, half)
    tl.store(atomic + atoms, tl.sum(active * last, axis=1) + tl.load(c2), mask=atoms < n_atoms)
    by_s = _times(slope * last, block(r1_transposed, half, F, F))
    none = tl.zeros_like(by_s)
    by_s, by_v0, by_v1, by_v2 = _update_back(
        *(by_s, none, none, none, p0, p1, p2, q0, q1, q2, hidden, grown, turned),
        *(mix_transposed, d3_transposed, d4_transposed, F),
    )
    _store_rows(by_scalars, by_s, atoms, n_atoms, 0, 1, F)
    _store_three_rows(by_vectors, by_v0, by_v1, by_v2, atoms, n_atoms, 0, 3, F)


@triton.jit
def update_back_kernel(
    by_sent,
    by_scalars,
    by_vectors,
    tape,
    d1_transposed,
    d2_transposed,
    mix_transposed,
    d3_transposed,
    d4_transposed,
    n_atoms,
    FEATURES: tl.constexpr,
    ATOMS: tl.constexpr,
):
    """Go back, for a tile of atoms, from what they send in a layer through the update before it to the message before that.

    Launch grid: ``(ceil(n_atoms / ATOMS),)``.

    ==============  ========================  =======  ========================================================
    argument        shape                     dtype    what it is
    ==============  ========================  =======  ========================================================
    by_sent         (n_atoms, 3 FEATURES)     float32  gradient by what was sent
    by_scalars      (n_atoms, FEATURES)       float32  in and out: by the scalars after the update, after the message before it
    by_vectors      (n_atoms, 3, FEATURES)    float32  in and out: by the vectors, likewise
    tape            (n_atoms, 10, FEATURES)   float32  of `update_kernel`
    d1_transposed   (FEATURES, FEATURES)      float32
    d2_transposed   (3 FEATURES, FEATURES)    float32
    mix_transposed  (2 FEATURES, FEATURES)    float32  of the layer before, as the next two
    d3_transposed   (FEATURES, 2 FEATURES)    float32
    d4_transposed   (3 FEATURES, FEATURES)    float32
    n_atoms         scalar                    int32
    FEATURES        constant                           F
    ATOMS           constant                           atoms of a tile, 16 or more for `tl.dot`
    ==============  ========================  =======  ========================================================
    """
    F: tl.constexpr = FEATURES
    atoms = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    by_own, by_along, by_carried = _three_rows(by_sent, atoms, n_atoms, 0, 3, F)
    by_active = _times_three_back(by_own, by_along, by_carried, d2_transposed, F)
    _, slope = silu_and_slope(_rows(tape, atoms, n_atoms, 9, 10, F))
    by_s = _rows(by_scalars, atoms, n_atoms, 0, 1, F)
    by_s += _times(by_active * slope, block(d1_transposed, F, F, F))
    p0, p1, p2 = _three_rows(tape, atoms, n_atoms, 0, 10, F)
    q0, q1, q2 = _three_rows(tape, atoms, n_atoms, 3, 10, F)
    grown, turned, hidden = _three_rows(tape, atoms, n_atoms, 6, 10, F)
    by_v0, by_v1, by_v2 = _three_rows(by_vectors, atoms, n_atoms, 0, 3, F)
    by_s, by_v0, by_v1, by_v2 = _update_back(
        *(by_s, by_v0, by_v1, by_v2, p0, p1, p2, q0, q1, q2, hidden, grown, turned),
        *(mix_transposed, d3_transposed, d4_transposed, F),
    )
    _store_rows(by_scalars, by_s, atoms, n_atoms, 0, 1, F)
    _store_three_rows(by_vectors, by_v0, by_v1, by_v2, atoms, n_atoms, 0, 3, F)
