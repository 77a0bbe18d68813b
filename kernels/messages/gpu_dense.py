"""What a network makes of one atom's features, and its derivative, in Triton: products of a vector with matrices, the update.

A program has one atom: a product reads the matrix once, multiplies and sums its rows. F features are a tensor (F,), F vectors
three of them. Matrices go from the input in rows to the output in columns, in float32.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from .reference import NORM_FLOOR

_FLOOR = tl.constexpr(NORM_FLOOR)


@triton.jit
def silu_and_slope(x):
    """Return silu(x) and its derivative."""
    y = tl.sigmoid(x)
    return x * y, y * (1.0 + x * (1.0 - y))


@triton.jit
def block(matrix, N_IN: tl.constexpr, N_OUT: tl.constexpr, STRIDE: tl.constexpr):
    """Return the block of a matrix, (N_IN, N_OUT), that begins at an address."""
    return tl.load(matrix + tl.arange(0, N_IN)[:, None] * STRIDE + tl.arange(0, N_OUT)[None, :])


@triton.jit
def times(x, matrix):
    """Return x M, (N_OUT,), of x (N_IN,) and a block M."""
    return tl.sum(x[:, None] * matrix, axis=0)


@triton.jit
def row_of_three(address, FEATURES: tl.constexpr):
    """Return three times F numbers that follow one another."""
    f = tl.arange(0, FEATURES)
    return tl.load(address + f), tl.load(address + FEATURES + f), tl.load(address + 2 * FEATURES + f)


@triton.jit
def store_row_of_three(address, a, b, c, FEATURES: tl.constexpr):
    """Write three times F numbers one after another."""
    f = tl.arange(0, FEATURES)
    tl.store(address + f, a)
    tl.store(address + FEATURES + f, b)
    tl.store(address + 2 * FEATURES + f, c)


@triton.jit
def send(s, d1, b1, d2, b2, FEATURES: tl.constexpr):
    """Return (φ, φ′, φ″) of scalars, and what went into silu."""
    f = tl.arange(0, FEATURES)
    hidden = tl.load(b1 + f) + times(s, block(d1, FEATURES, FEATURES, FEATURES))
    active, _ = silu_and_slope(hidden)
    own, along, carried = row_of_three(b2, FEATURES)
    own += times(active, block(d2, FEATURES, FEATURES, 3 * FEATURES))
    along += times(active, block(d2 + FEATURES, FEATURES, FEATURES, 3 * FEATURES))
    carried += times(active, block(d2 + 2 * FEATURES, FEATURES, FEATURES, 3 * FEATURES))
    return own, along, carried, hidden


@triton.jit
def send_back(by_own, by_along, by_carried, hidden, d1_transposed, d2_transposed, FEATURES: tl.constexpr):
    """Return the gradient by the scalars of which `send` made what an atom sends."""
    size: tl.constexpr = FEATURES * FEATURES
    by_active = times(by_own, block(d2_transposed, FEATURES, FEATURES, FEATURES))
    by_active += times(by_along, block(d2_transposed + size, FEATURES, FEATURES, FEATURES))
    by_active += times(by_carried, block(d2_transposed + 2 * size, FEATURES, FEATURES, FEATURES))
    _, slope = silu_and_slope(hidden)
    return times(by_active * slope, block(d1_transposed, FEATURES, FEATURES, FEATURES))


@triton.jit
def update(s, v0, v1, v2, mix, d3, b3, d4, b4, FEATURES: tl.constexpr, MOVES: tl.constexpr):
    """Return the scalars after an update, **p**, **q**, what went into silu, and the gates a and a″.

    Where nothing of the vectors is read afterwards (MOVES is false) a is 0.
    """
    f = tl.arange(0, FEATURES)
    matrix = block(mix, FEATURES, FEATURES, 2 * FEATURES)
    p0, p1, p2 = times(v0, matrix), times(v1, matrix), times(v2, matrix)
    matrix = block(mix + FEATURES, FEATURES, FEATURES, 2 * FEATURES)
    q0, q1, q2 = times(v0, matrix), times(v1, matrix), times(v2, matrix)
    length = tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    hidden = tl.load(b3 + f) + times(s, block(d3, FEATURES, FEATURES, FEATURES))
    hidden += times(length, block(d3 + FEATURES * FEATURES, FEATURES, FEATURES, FEATURES))
    active, _ = silu_and_slope(hidden)
    grown, added, turned = row_of_three(b4, FEATURES)
    if MOVES:
        grown += times(active, block(d4, FEATURES, FEATURES, 3 * FEATURES))
    else:
        grown = tl.zeros_like(added)
    added += times(active, block(d4 + FEATURES, FEATURES, FEATURES, 3 * FEATURES))
    turned += times(active, block(d4 + 2 * FEATURES, FEATURES, FEATURES, 3 * FEATURES))
    s += added + turned * (p0 * q0 + p1 * q1 + p2 * q2)
    return s, p0, p1, p2, q0, q1, q2, hidden, grown, turned


@triton.jit
def update_back(
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
    MOVES: tl.constexpr,
):
    """Return the gradients by scalars and vectors before an update, from those after it."""
    size: tl.constexpr = FEATURES * FEATURES
    dot = p0 * q0 + p1 * q1 + p2 * q2
    by_active = times(by_s, block(d4_transposed + size, FEATURES, FEATURES, FEATURES))
    by_active += times(by_s * dot, block(d4_transposed + 2 * size, FEATURES, FEATURES, FEATURES))
    if MOVES:
        by_grown = by_v0 * p0 + by_v1 * p1 + by_v2 * p2
        by_active += times(by_grown, block(d4_transposed, FEATURES, FEATURES, FEATURES))
    _, slope = silu_and_slope(hidden)
    by_hidden = by_active * slope
    by_length = times(by_hidden, block(d3_transposed + FEATURES, FEATURES, FEATURES, 2 * FEATURES))
    by_length = by_length / tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    by_dot = by_s * turned
    by_s += times(by_hidden, block(d3_transposed, FEATURES, FEATURES, 2 * FEATURES))
    u = block(mix_transposed, FEATURES, FEATURES, FEATURES)
    v = block(mix_transposed + size, FEATURES, FEATURES, FEATURES)
    by_v0 += times(by_v0 * grown + by_dot * q0, u) + times(by_dot * p0 + by_length * q0, v)
    by_v1 += times(by_v1 * grown + by_dot * q1, u) + times(by_dot * p1 + by_length * q1, v)
    by_v2 += times(by_v2 * grown + by_dot * q2, u) + times(by_dot * p2 + by_length * q2, v)
    return by_s, by_v0, by_v1, by_v2
