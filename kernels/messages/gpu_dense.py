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
def sum_of_four(a, b, c, d):
    """Return the sums over the first axis of four tensors, which warps exchange at once."""
    pair, other = tl.split(tl.sum(tl.join(tl.join(a, b), tl.join(c, d)), axis=0))
    a, b = tl.split(pair)
    c, d = tl.split(other)
    return a, b, c, d


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
def _times_three(x, matrix, FEATURES: tl.constexpr):
    """Return x M, three times (F,), of a matrix (F, 3 F)."""
    x = x[:, None]
    a = x * block(matrix, FEATURES, FEATURES, 3 * FEATURES)
    b = x * block(matrix + FEATURES, FEATURES, FEATURES, 3 * FEATURES)
    c = x * block(matrix + 2 * FEATURES, FEATURES, FEATURES, 3 * FEATURES)
    a, b, c, _ = sum_of_four(a, b, c, tl.zeros_like(a))
    return a, b, c


@triton.jit
def store_four(address, a, b, c, d, FEATURES: tl.constexpr):
    """Write four times F numbers, the four of a feature beside one another: warps exchange them at once."""
    f = tl.arange(0, FEATURES)[:, None, None]
    pair, one = tl.arange(0, 2)[None, None, :], tl.arange(0, 2)[None, :, None]
    tl.store(address + 4 * f + 2 * pair + one, tl.join(tl.join(a, b), tl.join(c, d)))


@triton.jit
def load_four(address, FEATURES: tl.constexpr):
    """Return what `store_four` wrote."""
    f = 4 * tl.arange(0, FEATURES)
    return tl.load(address + f), tl.load(address + f + 1), tl.load(address + f + 2), tl.load(address + f + 3)


@triton.jit
def send(s, d1, b1, d2, b2, FEATURES: tl.constexpr):
    """Return (φ, φ′, φ″) of scalars, and what went into silu."""
    f = tl.arange(0, FEATURES)
    hidden = tl.load(b1 + f) + times(s, block(d1, FEATURES, FEATURES, FEATURES))
    active, _ = silu_and_slope(hidden)
    a, b, c = row_of_three(b2, FEATURES)
    own, along, carried = _times_three(active, d2, FEATURES)
    return a + own, b + along, c + carried, hidden


@triton.jit
def send_back(by_own, by_along, by_carried, hidden, d1_transposed, d2_transposed, FEATURES: tl.constexpr):
    """Return the gradient by the scalars of which `send` made what an atom sends."""
    size: tl.constexpr = FEATURES * FEATURES
    by_active = by_own[:, None] * block(d2_transposed, FEATURES, FEATURES, FEATURES)
    by_active += by_along[:, None] * block(d2_transposed + size, FEATURES, FEATURES, FEATURES)
    by_active += by_carried[:, None] * block(d2_transposed + 2 * size, FEATURES, FEATURES, FEATURES)
    _, slope = silu_and_slope(hidden)
    return times(tl.sum(by_active, axis=0) * slope, block(d1_transposed, FEATURES, FEATURES, FEATURES))


@triton.jit
def update(s, v0, v1, v2, mix, d3, b3, d4, b4, FEATURES: tl.constexpr):
    """Return the scalars after an update, **p**, **q**, what went into silu, and the gates a and a″."""
    f = tl.arange(0, FEATURES)
    u = block(mix, FEATURES, FEATURES, 2 * FEATURES)
    v = block(mix + FEATURES, FEATURES, FEATURES, 2 * FEATURES)
    of_0, of_1, of_2 = v0[:, None], v1[:, None], v2[:, None]
    p0, p1, q0, q1 = sum_of_four(of_0 * u, of_1 * u, of_0 * v, of_1 * v)
    p2, q2 = tl.split(tl.sum(tl.join(of_2 * u, of_2 * v), axis=0))
    length = tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    parts = s[:, None] * block(d3, FEATURES, FEATURES, FEATURES)
    parts += length[:, None] * block(d3 + FEATURES * FEATURES, FEATURES, FEATURES, FEATURES)
    hidden = tl.load(b3 + f) + tl.sum(parts, axis=0)
    active, _ = silu_and_slope(hidden)
    grown, added, turned = row_of_three(b4, FEATURES)
    a, b, c = _times_three(active, d4, FEATURES)
    grown, added, turned = grown + a, added + b, turned + c
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
):
    """Return the gradients by scalars and vectors before an update, from those after it."""
    size: tl.constexpr = FEATURES * FEATURES
    dot = p0 * q0 + p1 * q1 + p2 * q2
    by_grown = by_v0 * p0 + by_v1 * p1 + by_v2 * p2
    by_active = by_grown[:, None] * block(d4_transposed, FEATURES, FEATURES, FEATURES)
    by_active += by_s[:, None] * block(d4_transposed + size, FEATURES, FEATURES, FEATURES)
    by_active += (by_s * dot)[:, None] * block(d4_transposed + 2 * size, FEATURES, FEATURES, FEATURES)
    _, slope = silu_and_slope(hidden)
    by_hidden = (tl.sum(by_active, axis=0) * slope)[:, None]
    to_s, by_length = tl.split(
        tl.sum(
            tl.join(
                by_hidden * block(d3_transposed, FEATURES, FEATURES, 2 * FEATURES),
                by_hidden * block(d3_transposed + FEATURES, FEATURES, FEATURES, 2 * FEATURES),
            ),
            axis=0,
        )
    )
    by_length = by_length / tl.sqrt(q0 * q0 + q1 * q1 + q2 * q2 + _FLOOR)
    by_dot = by_s * turned
    u = block(mix_transposed, FEATURES, FEATURES, FEATURES)
    v = block(mix_transposed + size, FEATURES, FEATURES, FEATURES)
    a = (by_v0 * grown + by_dot * q0)[:, None] * u + (by_dot * p0 + by_length * q0)[:, None] * v
    b = (by_v1 * grown + by_dot * q1)[:, None] * u + (by_dot * p1 + by_length * q1)[:, None] * v
    c = (by_v2 * grown + by_dot * q2)[:, None] * u + (by_dot * p2 + by_length * q2)[:, None] * v
    a, b, c, _ = sum_of_four(a, b, c, tl.zeros_like(a))
    return by_s + to_s, by_v0 + a, by_v1 + b, by_v2 + c
