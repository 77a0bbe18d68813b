"""From the sums over the tiles to the similarity, and from the density to what the similarity makes of a change of it."""

# No annotations from __future__: Triton reads those of its kernels.
import triton.language as tl

from .gpu_tiles import SIZES, kernel, touched_tile, voxels_by_tile, voxels_of_tile

CROSS_CORRELATION, ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES = (
    tl.constexpr(measure) for measure in range(5)
)


@kernel("n_tiles")
def compare(
    sums,
    n_tiles,
    n_touched,
    moments,
    total_weight,
    scale,
    similarity,
    coefficients,
    MEASURE: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return S, and c of dS/d(density) = c0 + c1 density + c2 target; for the entropy c2 target / (density + c0), over t > 0.

    With a scale, of the derivative times it.
    """
    sum_0 = tl.zeros([BLOCK], tl.float64)
    sum_1 = tl.zeros([BLOCK], tl.float64)
    sum_2 = tl.zeros([BLOCK], tl.float64)
    last = tl.load(n_touched)
    for first in range(0, last, BLOCK):
        i = first + tl.arange(0, BLOCK)
        sum_0 += tl.load(sums + i, mask=i < last, other=0.0).to(tl.float64)
        if MEASURE != RELATIVE_ENTROPY:
            sum_1 += tl.load(sums + n_tiles + i, mask=i < last, other=0.0).to(tl.float64)
            sum_2 += tl.load(sums + 2 * n_tiles + i, mask=i < last, other=0.0).to(tl.float64)
    total = tl.sum(sum_0, axis=0)
    square = tl.sum(sum_1, axis=0)
    product = tl.sum(sum_2, axis=0)
    n = tl.load(moments)
    t_sum = tl.load(moments + 1)
    t_square = tl.load(moments + 2)
    zero = total * 0.0
    if MEASURE == INNER_PRODUCT:
        mean = t_sum / n
        c2 = 1.0 / (total_weight * tl.sqrt(t_square / n - mean * mean))
        value = c2 * product
        c1 = zero
        c0 = zero
    elif MEASURE == RELATIVE_ENTROPY:
        positive = tl.load(moments + 3)
        positive_sum = tl.load(moments + 4)
        positive_log = tl.load(moments + 5)
        value = (
            tl.log(positive_sum)
            + tl.log(1e-3 / positive)
            - positive_log / positive_sum
            + total / positive_sum
        )
        c2 = 1.0 / positive_sum
        c1 = zero
        c0 = 1e-3 / positive * total_weight
    else:
        if MEASURE == CROSS_CORRELATION:
            mean = zero
            t_mean = zero
        else:
            mean = total / n
            t_mean = t_sum / n
        variance = square - mean * total
        t_variance = t_square - t_mean * t_sum
        # Below this the density is uniform up to rounding, and a correlation has no meaning.
        meaningful = (variance > 1e-8 * square) & (t_variance > 0.0)
        variance = tl.where(meaningful, variance, 1.0)
        t_variance = tl.where(meaningful, t_variance, 1.0)
        c2 = tl.where(meaningful, 1.0 / tl.sqrt(variance * t_variance), 0.0)
        value = c2 * (product - mean * t_sum)
        # 1/variance, without a second division.
        c1 = -value * (c2 * c2 * t_variance)
        c0 = -(t_mean * c2 + mean * c1)
        if MEASURE == LEAST_SQUARES:
            positive_part = tl.maximum(value, 0.0)
            c2 *= 2.0 * positive_part
            c1 *= 2.0 * positive_part
            c0 *= 2.0 * positive_part
            value = positive_part * positive_part
    tl.store(similarity, value)
    if SCALED:
        factor = tl.load(scale).to(tl.float64)
        c2 *= factor
        if MEASURE != RELATIVE_ENTROPY:
            c1 *= factor
            c0 *= factor
    tl.store(coefficients, c0.to(tl.float32))
    tl.store(coefficients + 1, c1.to(tl.float32))
    tl.store(coefficients + 2, c2.to(tl.float32))


@kernel(*SIZES)
def differentiate(
    tiles,
    n_touched,
    nx,
    ny,
    nz,
    density,
    target,
    coefficients,
    MEASURE: tl.constexpr,
    WIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Replace the density of every touched tile by dS/d(density), 0 where a voxel does not count or is not in the grid."""
    c0 = tl.load(coefficients)
    c1 = tl.load(coefficients + 1)
    c2 = tl.load(coefficients + 2)
    for turn in range(tl.program_id(0), tl.load(n_touched), tl.num_programs(0)):
        tile, x0, y0, z0 = touched_tile(tiles, turn)
        at, inside = voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE, ALIGNED)
        by_tile = voxels_by_tile(tile, WIDE)
        t = tl.load(target + at, mask=inside, other=float("nan"))
        rho = tl.load(density + by_tile)
        counts = t - t == 0.0
        if MEASURE == RELATIVE_ENTROPY:
            counts = counts & (t > 0.0) & (rho + c0 > 1e-6 * c0)
            g = tl.where(counts, c2 * t / (rho + c0), 0.0)
        else:
            g = tl.where(counts, c2 * t + (c1 * rho + c0), 0.0)
        tl.store(density + by_tile, g)
