// The similarity measures on the CPU: the sums over a tile, then S and its derivative with respect to the density.
//
// measures.py has the formulas. Its constants and slots stand here under the same names, which a test compares.
#pragma once

#include "tile_bricks.h"

namespace openmm_density {
namespace {

enum Measure { CROSS_CORRELATION, CROSS_CORRELATION_ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES, MEASURES };

constexpr double ENTROPY_FLOOR = 1e-3;
constexpr double UNIFORM_VARIANCE = 1e-5;
constexpr double UNIFORM_TARGET = 1e-13;
constexpr float SMALLEST_SHIFTED = 1e-6f;

// Slots of target_moments.
enum Moment {
    MOMENT_COUNT,
    MOMENT_SUM,
    MOMENT_SUM_OF_SQUARES,
    MOMENT_POSITIVE_COUNT,
    MOMENT_POSITIVE_SUM,
    MOMENT_POSITIVE_LOG,
    MOMENTS
};

// What is gathered: dS/d(density) is a combination of fields, of which each is a channel of the scratch, in the slots of
// measures.Coefficient. Of a correlation density, target and the constant 1, of which CROSS_CORRELATION needs no 1; of the other
// measures a single field.
enum Channel { CHANNEL_DENSITY, CHANNEL_TARGET, CHANNEL_CONSTANT, CHANNEL_SINGLE = CHANNEL_DENSITY };

inline int channels_of(Measure measure) {
    if (measure == CROSS_CORRELATION) return 2;
    return measure == INNER_PRODUCT || measure == RELATIVE_ENTROPY ? 1 : 3;
}

// Whether S is defined for a positive total weight alone.
inline bool divides_by_weight(Measure measure) { return measure == INNER_PRODUCT || measure == RELATIVE_ENTROPY; }

// S, and what each channel is multiplied by in dS/d(density).
struct Similarity {
    double value = 0, coefficients[MAX_CHANNELS] = {};
};

inline Similarity correlation(Measure measure, const double* t, const Sums& sums) {
    Similarity result;
    const double sum = sums[SUM_DENSITY], square = sums[SUM_DENSITY_SQUARED], product = sums[SUM_DENSITY_TARGET];
    const bool about_mean = measure != CROSS_CORRELATION;
    const double mean = about_mean ? sum / t[MOMENT_COUNT] : 0;
    const double target_mean = about_mean ? t[MOMENT_SUM] / t[MOMENT_COUNT] : 0;
    const double variance = square - mean * sum;
    const double target_variance = t[MOMENT_SUM_OF_SQUARES] - target_mean * t[MOMENT_SUM];
    if (!(variance > UNIFORM_VARIANCE * square) || !(target_variance > UNIFORM_TARGET * t[MOMENT_SUM_OF_SQUARES]))
        return result;
    const double norm = std::sqrt(variance * target_variance);
    result.value = (product - mean * t[MOMENT_SUM]) / norm;
    double of_target = 1 / norm, of_density = -result.value / variance;
    double constant = -(target_mean * of_target + mean * of_density);
    if (measure == LEAST_SQUARES) {
        const double twice = 2 * std::max(result.value, 0.0);
        constant *= twice;
        of_density *= twice;
        of_target *= twice;
        result.value = result.value > 0 ? result.value * result.value : 0;
    }
    result.coefficients[CHANNEL_DENSITY] = of_density;
    result.coefficients[CHANNEL_TARGET] = of_target;
    result.coefficients[CHANNEL_CONSTANT] = constant;
    return result;
}

inline Similarity similarity_of(Measure measure, const double* t, const Sums& sums, double total_weight) {
    Similarity result;
    if (measure == INNER_PRODUCT) {
        const double mean = t[MOMENT_SUM] / t[MOMENT_COUNT];
        const double square = t[MOMENT_SUM_OF_SQUARES] / t[MOMENT_COUNT];
        const double variance = square - mean * mean;
        if (variance > UNIFORM_TARGET * square) result.coefficients[CHANNEL_SINGLE] = 1 / (total_weight * std::sqrt(variance));
        result.value = result.coefficients[CHANNEL_SINGLE] * sums[SUM_DENSITY_TARGET];
        return result;
    }
    if (measure == RELATIVE_ENTROPY) {
        const double positive_sum = t[MOMENT_POSITIVE_SUM];
        if (!(positive_sum > 0)) return result;
        const double epsilon = ENTROPY_FLOOR / t[MOMENT_POSITIVE_COUNT];
        result.coefficients[CHANNEL_SINGLE] = 1 / positive_sum;
        result.value = -(t[MOMENT_POSITIVE_LOG] / positive_sum - std::log(positive_sum) - std::log(epsilon)) +
                       sums[SUM_ENTROPY] / positive_sum;
        return result;
    }
    return correlation(measure, t, sums);
}

// The relative entropy's floor as a density: epsilon, a part of the mean target share, times W.
inline double entropy_floor(const double* t, double total_weight) {
    return ENTROPY_FLOOR / t[MOMENT_POSITIVE_COUNT] * total_weight;
}

// Return a tile's sums, and leave in the channels what is to be gathered, with zeros wherever a voxel does not count: outside the
// grid, or not finite in the target. Of the relative entropy SUM_ENTROPY shares its slot, and a sum here, with SUM_DENSITY.
inline Sums sweep_tile(const Plan& plan, const TileView& view, ThreadScratch& scratch, const float* target, Measure measure,
                       double floor_density) {
    Sums sums{};
    vec* density = scratch.channels[CHANNEL_DENSITY].data();
    vec* t_out = scratch.channels[CHANNEL_TARGET].data();
    vec* constant_out = scratch.channels[CHANNEL_CONSTANT].data();
    const bool entropy = measure == RELATIVE_ENTROPY, inner = measure == INNER_PRODUCT;
    const bool counts = measure == CROSS_CORRELATION_ABOUT_MEAN || measure == LEAST_SQUARES;
    const float floor = static_cast<float>(floor_density), inverse_floor = static_cast<float>(1 / floor_density);
    const float outside = std::nanf("");
    vec density_or_entropy{}, density_squared{}, density_target{};
    each_bricks(
        view,
        [&](int bz, int by, int bx, int64_t at) {
            vec bricks[BRICK_ROWS];
            load_bricks(plan, bz, by, bx, target, outside, bricks);
            for (int i = 0; i < BRICK_ROWS; ++i, ++at) {
                ivec valid = bricks[i] - bricks[i] == 0.0f;
                if (entropy) valid &= bricks[i] > 0.0f;
                const vec t = zero_unless(valid, bricks[i]);
                const vec rho = zero_unless(valid, density[at]);
                if (entropy) {
                    const vec shifted = rho * inverse_floor + 1.0f;
                    density_or_entropy += t * log_of_positive(shifted > SMALLEST_SHIFTED ? shifted : broadcast(SMALLEST_SHIFTED));
                    density[at] = zero_unless(shifted > SMALLEST_SHIFTED, t / (shifted * floor));
                    continue;
                }
                density_or_entropy += rho;
                density_squared += rho * rho;
                density_target += rho * t;
                density[at] = inner ? t : rho;
                if (!inner) t_out[at] = t;
                if (counts) constant_out[at] = zero_unless(valid, broadcast(1.0f));
            }
        },
        [&] {
            sums[SUM_DENSITY] += sum(density_or_entropy);
            sums[SUM_DENSITY_SQUARED] += sum(density_squared);
            sums[SUM_DENSITY_TARGET] += sum(density_target);
            density_or_entropy = density_squared = density_target = vec{};
        });
    return sums;
}

}  // namespace
}  // namespace openmm_density
