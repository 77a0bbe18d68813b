"""Of an atom's near neighbours, as `gpu_network` leaves them: what is gathered, and filters with their derivatives, in Triton."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

_PI = tl.constexpr(3.14159265358979323846)


@triton.jit
def near_edges(near, geometry, begin, end, EDGES: tl.constexpr):
    """Return of some near neighbours: which they are, whether they are there, the direction, r (1 where none is)."""
    entry = begin + tl.arange(0, EDGES)
    here = entry < end
    j = tl.load(near + entry, mask=here, other=0).to(tl.int64)
    at = geometry + 4 * entry.to(tl.int64)
    ux, uy, uz = (
        tl.load(at, mask=here, other=0.0),
        tl.load(at + 1, mask=here, other=0.0),
        tl.load(at + 2, mask=here, other=0.0),
    )
    return j, here, ux, uy, uz, tl.load(at + 3, mask=here, other=1.0)


@triton.jit
def gathered(address, here):
    """Return rows of F numbers, 0 where there is no neighbour."""
    return tl.load(address, mask=here[:, None], other=0.0)


@triton.jit
def _envelope(r, here, cutoff):
    x = (_PI / cutoff) * r
    value = tl.where(here, 0.5 * (tl.cos(x) + 1.0), 0.0)
    return x, value, tl.where(here, (-0.5 * _PI / cutoff) * tl.sin(x), 0.0)


@triton.jit
def filters(
    like,
    r,
    here,
    filter,
    cutoff,
    N_BASIS: tl.constexpr,
    FEATURES: tl.constexpr,
    VECTORS: tl.constexpr,
):
    """Return w, w′ and w″ of some pairs, (EDGES, FEATURES) each; w″ is 0 without VECTORS."""
    w = like - like
    w1, w2 = w, w
    f = tl.arange(0, FEATURES)
    x, envelope, _ = _envelope(r, here, cutoff)
    sine, cosine = tl.sin(x), tl.cos(x)
    s, c = sine, cosine
    scale = envelope / r
    for n in range(N_BASIS - 1):
        at = filter + n * 3 * FEATURES + f
        value = (s * scale)[:, None]
        w += value * tl.load(at)[None, :]
        w1 += value * tl.load(at + FEATURES)[None, :]
        if VECTORS:
            w2 += value * tl.load(at + 2 * FEATURES)[None, :]
        c, s = c * cosine - s * sine, s * cosine + c * sine
    at = filter + (N_BASIS - 1) * 3 * FEATURES + f
    w += envelope[:, None] * tl.load(at)[None, :]
    w1 += envelope[:, None] * tl.load(at + FEATURES)[None, :]
    if VECTORS:
        w2 += envelope[:, None] * tl.load(at + 2 * FEATURES)[None, :]
    return w, w1, w2


@triton.jit
def filters_and_slopes(
    like,
    r,
    here,
    filter,
    cutoff,
    N_BASIS: tl.constexpr,
    FEATURES: tl.constexpr,
    VECTORS: tl.constexpr,
):
    """Return w, w′, w″ of some pairs, and their derivatives by r; without VECTORS w, w″ and w″'s derivative are 0."""
    w = like - like
    w1, w2, dw, dw1, dw2 = w, w, w, w, w
    f = tl.arange(0, FEATURES)
    x, envelope, envelope_slope = _envelope(r, here, cutoff)
    sine, cosine = tl.sin(x), tl.cos(x)
    s, c = sine, cosine
    per_r = 1.0 / r
    by_cosine = (_PI / cutoff) * per_r * envelope
    by_sine = per_r * (envelope_slope - per_r * envelope)
    scale = per_r * envelope
    for n in range(N_BASIS - 1):
        at = filter + n * 3 * FEATURES + f
        value = (s * scale)[:, None]
        slope = ((n + 1.0) * c * by_cosine + s * by_sine)[:, None]
        k, k1 = tl.load(at)[None, :], tl.load(at + FEATURES)[None, :]
        dw += slope * k
        w1 += value * k1
        dw1 += slope * k1
        if VECTORS:
            w += value * k
            k2 = tl.load(at + 2 * FEATURES)[None, :]
            w2 += value * k2
            dw2 += slope * k2
        c, s = c * cosine - s * sine, s * cosine + c * sine
    at = filter + (N_BASIS - 1) * 3 * FEATURES + f
    value, slope = envelope[:, None], envelope_slope[:, None]
    k, k1 = tl.load(at)[None, :], tl.load(at + FEATURES)[None, :]
    dw += slope * k
    w1 += value * k1
    dw1 += slope * k1
    if VECTORS:
        w += value * k
        k2 = tl.load(at + 2 * FEATURES)[None, :]
        w2 += value * k2
        dw2 += slope * k2
    return w, w1, w2, dw, dw1, dw2
