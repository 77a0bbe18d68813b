"""The similarity measures on the GPU: the sums over a tile, then S, then ∂S/∂ρ per voxel.

`measures` has the formulas, and the constants and slots that are used here under the same names.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from . import measures
from .gpu_tiles import SIZES, kernel, touched_tile, voxels_by_tile, voxels_of_tile

CROSS_CORRELATION = tl.constexpr(measures.CROSS_CORRELATION)
INNER_PRODUCT = tl.constexpr(measures.INNER_PRODUCT)
RELATIVE_ENTROPY = tl.constexpr(measures.RELATIVE_ENTROPY)
LEAST_SQUARES = tl.constexpr(measures.LEAST_SQUARES)

ENTROPY_FLOOR = tl.constexpr(measures.ENTROPY_FLOOR)
UNIFORM_VARIANCE = tl.constexpr(measures.UNIFORM_VARIANCE)
UNIFORM_TARGET = tl.constexpr(measures.UNIFORM_TARGET)
SMALLEST_SHIFTED = tl.constexpr(measures.SMALLEST_SHIFTED)

MOMENT_COUNT = tl.constexpr(int(measures.Moment.COUNT))
MOMENT_SUM = tl.constexpr(int(measures.Moment.SUM))
MOMENT_SUM_OF_SQUARES = tl.constexpr(int(measures.Moment.SUM_OF_SQUARES))
MOMENT_POSITIVE_COUNT = tl.constexpr(int(measures.Moment.POSITIVE_COUNT))
MOMENT_POSITIVE_SUM = tl.constexpr(int(measures.Moment.POSITIVE_SUM))
MOMENT_POSITIVE_LOG = tl.constexpr(int(measures.Moment.POSITIVE_LOG))

SUM_DENSITY = tl.constexpr(int(measures.Sum.DENSITY))
SUM_DENSITY_SQUARED = tl.constexpr(int(measures.Sum.DENSITY_SQUARED))
SUM_DENSITY_TARGET = tl.constexpr(int(measures.Sum.DENSITY_TARGET))
SUM_ENTROPY = tl.constexpr(int(measures.Sum.ENTROPY))

COEFFICIENT_DENSITY = tl.constexpr(int(measures.Coefficient.DENSITY))
COEFFICIENT_TARGET = tl.constexpr(int(measures.Coefficient.TARGET))
COEFFICIENT_CONSTANT = tl.constexpr(int(measures.Coefficient.CONSTANT))


@triton.jit
def store_tile_sums(sums, entry, n_tiles, rho, t, inside, moments, total_weight, MEASURE: tl.constexpr):
    """Store the sums over the voxels of a tile that count, of ρ and the target t, both (TILE,), in `sums`, (3, n_tiles)."""
    counts = inside & (t - t == 0.0)
    if MEASURE == RELATIVE_ENTROPY:
        counts = counts & (t > 0.0)
    t = tl.where(counts, t, 0.0)
    rho = tl.where(counts, rho, 0.0)
    if MEASURE == RELATIVE_ENTROPY:
        floor = ENTROPY_FLOOR / tl.load(moments + MOMENT_POSITIVE_COUNT) * total_weight
        inverse_floor = (1.0 / floor).to(tl.float32)
        shifted = tl.maximum(rho * inverse_floor + 1.0, SMALLEST_SHIFTED)
        tl.store(sums + SUM_ENTROPY * n_tiles + entry, tl.sum(t * tl.log(shifted)))
    else:
        tl.store(sums + SUM_DENSITY * n_tiles + entry, tl.sum(rho))
        tl.store(sums + SUM_DENSITY_SQUARED * n_tiles + entry, tl.sum(rho * rho))
        tl.store(sums + SUM_DENSITY_TARGET * n_tiles + entry, tl.sum(rho * t))


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
    """Work out S, and the coefficients c of ∂S/∂ρ (`measures.Coefficient`), both from the sums over the tiles.

    With a scale, the coefficients are those of the derivative times it.

    Launch grid: ``(1,)``.

    ===============  ============  =======  =============================================
    argument         shape         dtype    what it is
    ===============  ============  =======  =============================================
    sums             (3, n_tiles)  float32  in the slots of `measures.Sum`
    n_tiles          scalar        int32
    n_touched        (1,)          int32    how many tiles have sums
    moments          (6,)          float64  in the slots of `measures.Moment`
    total_weight     scalar        float32  W
    scale            one number    float64  not read unless SCALED
    similarity       ()            float64  out: S
    coefficients     (3,)          float32  out: in the slots of `measures.Coefficient`
    MEASURE, SCALED  constant               one of the measures; whether there is a scale
    BLOCK            constant               sums that are read at once
    ===============  ============  =======  =============================================
    """
    density_or_entropy = tl.zeros([BLOCK], tl.float64)
    density_squared = tl.zeros([BLOCK], tl.float64)
    density_target = tl.zeros([BLOCK], tl.float64)
    last = tl.load(n_touched)
    for first in range(0, last, BLOCK):
        i = first + tl.arange(0, BLOCK)
        density_or_entropy += tl.load(sums + SUM_DENSITY * n_tiles + i, mask=i < last, other=0.0).to(
            tl.float64
        )
        if MEASURE != RELATIVE_ENTROPY:
            density_squared += tl.load(sums + SUM_DENSITY_SQUARED * n_tiles + i, mask=i < last, other=0.0).to(
                tl.float64
            )
            density_target += tl.load(sums + SUM_DENSITY_TARGET * n_tiles + i, mask=i < last, other=0.0).to(
                tl.float64
            )
    total = tl.sum(density_or_entropy, axis=0)
    square = tl.sum(density_squared, axis=0)
    product = tl.sum(density_target, axis=0)
    # Without any voxel that counts the sums are 0, and means shall be.
    n = tl.maximum(tl.load(moments + MOMENT_COUNT), 1.0)
    t_sum = tl.load(moments + MOMENT_SUM)
    t_square = tl.load(moments + MOMENT_SUM_OF_SQUARES)
    zero = total * 0.0
    if MEASURE == INNER_PRODUCT:
        mean = t_sum / n
        mean_square = t_square / n
        t_variance = mean_square - mean * mean
        meaningful = t_variance > UNIFORM_TARGET * mean_square
        t_variance = tl.where(meaningful, t_variance, 1.0)
        c_target = tl.where(meaningful, 1.0 / (total_weight * tl.sqrt(t_variance)), 0.0)
        value = c_target * product
        c_density = zero
        c_constant = zero
    elif MEASURE == RELATIVE_ENTROPY:
        positive = tl.load(moments + MOMENT_POSITIVE_COUNT)
        positive_sum = tl.load(moments + MOMENT_POSITIVE_SUM)
        positive_log = tl.load(moments + MOMENT_POSITIVE_LOG)
        meaningful = positive_sum > 0.0
        positive = tl.where(meaningful, positive, 1.0)
        positive_sum = tl.where(meaningful, positive_sum, 1.0)
        value = (
            tl.log(positive_sum)
            + tl.log(ENTROPY_FLOOR / positive)
            - positive_log / positive_sum
            + total / positive_sum
        )
        value = tl.where(meaningful, value, 0.0)
        c_target = tl.where(meaningful, 1.0 / positive_sum, 0.0)
        c_density = zero
        c_constant = ENTROPY_FLOOR / positive * total_weight
    else:
        if MEASURE == CROSS_CORRELATION:
            mean = zero
            t_mean = zero
        else:
            mean = total / n
            t_mean = t_sum / n
        variance = square - mean * total
        t_variance = t_square - t_mean * t_sum
        meaningful = (variance > UNIFORM_VARIANCE * square) & (t_variance > UNIFORM_TARGET * t_square)
        variance = tl.where(meaningful, variance, 1.0)
        t_variance = tl.where(meaningful, t_variance, 1.0)
        c_target = tl.where(meaningful, 1.0 / tl.sqrt(variance * t_variance), 0.0)
        value = c_target * (product - mean * t_sum)
        # 1/variance, without a second division.
        c_density = -value * (c_target * c_target * t_variance)
        c_constant = -(t_mean * c_target + mean * c_density)
        if MEASURE == LEAST_SQUARES:
            positive_part = tl.maximum(value, 0.0)
            c_target *= 2.0 * positive_part
            c_density *= 2.0 * positive_part
            c_constant *= 2.0 * positive_part
            value = positive_part * positive_part
    tl.store(similarity, value)
    if SCALED:
        factor = tl.load(scale).to(tl.float64)
        c_target *= factor
        if MEASURE != RELATIVE_ENTROPY:
            c_density *= factor
            c_constant *= factor
    tl.store(coefficients + COEFFICIENT_CONSTANT, c_constant.to(tl.float32))
    tl.store(coefficients + COEFFICIENT_DENSITY, c_density.to(tl.float32))
    tl.store(coefficients + COEFFICIENT_TARGET, c_target.to(tl.float32))


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
    """Replace the density of every touched tile by ∂S/∂ρ, 0 where a voxel does not count or is not in the grid.

    Launch grid: ``(programs,)``, any number: they share the touched tiles.

    =============  ===============  =======  ===========================================
    argument       shape            dtype    what it is
    =============  ===============  =======  ===========================================
    tiles          (n_tiles, 4)     int32    of `scan`
    n_touched      (1,)             int32
    nx, ny, nz     scalar           int32    voxels of the grid
    density        (n_tiles·TILE,)  float32  flat, in storage order; in: ρ, out: ∂S/∂ρ
    target         (nz, ny, nx)     float32  not finite where a voxel does not count
    coefficients   (3,)             float32  of `compare`
    MEASURE        constant                  one of the measures
    WIDE, ALIGNED  constant                  indices need 64 bits; nx is a multiple of 4
    =============  ===============  =======  ===========================================
    """
    c_constant = tl.load(coefficients + COEFFICIENT_CONSTANT)
    c_density = tl.load(coefficients + COEFFICIENT_DENSITY)
    c_target = tl.load(coefficients + COEFFICIENT_TARGET)
    for entry in range(tl.program_id(0), tl.load(n_touched), tl.num_programs(0)):
        tile, x0, y0, z0 = touched_tile(tiles, entry)
        at, inside = voxels_of_tile(x0, y0, z0, nx, ny, nz, WIDE, ALIGNED)
        by_tile = voxels_by_tile(tile, WIDE)
        t = tl.load(target + at, mask=inside, other=float("nan"))
        rho = tl.load(density + by_tile)
        counts = t - t == 0.0
        if MEASURE == RELATIVE_ENTROPY:
            counts = counts & (t > 0.0) & (rho + c_constant > SMALLEST_SHIFTED * c_constant)
            g = tl.where(counts, c_target * t / (rho + c_constant), 0.0)
        else:
            g = tl.where(counts, c_target * t + (c_density * rho + c_constant), 0.0)
        tl.store(density + by_tile, g)
