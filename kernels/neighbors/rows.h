// The rows of a list: an atom against runs of sorted atoms.
#pragma once

#include "../masks.h"
#include "cells.h"

namespace openmm_density {
namespace {

// Consecutive sorted atoms, in one image of the lattice.
struct Run {
    int32_t begin, end;
    float x, y, z;    // where the row's atom is, seen from their image
    int32_t shift;    // of their image, with the steps of the row's atom
};

struct Scope {
    bool both_ways;
    double cutoff, squared;
    float surely_in, surely_out;  // squared distances in float32 that need no second look

    Scope(const Cells& cells, double cutoff, bool both_ways) : both_ways(both_ways), cutoff(cutoff), squared(cutoff * cutoff) {
        // Three coordinates, each off by the margin at most, which is sixteen roundings.
        const double error = 4 * cells.margin * (cutoff + cells.margin) + 1e-6 * squared;
        surely_in = static_cast<float>(squared - error);
        surely_out = static_cast<float>(squared + error);
    }
};

inline int32_t whole(float x) { return static_cast<int32_t>(std::floor(std::clamp(x, -1e9f, 1e9f))); }

inline int32_t image_of(int32_t cell, int32_t n) {
    if (cell >= 0 && cell < n) return 0;
    return cell >= 0 ? cell / n : -((n - 1 - cell) / n);
}

// How far a coordinate is from a cell along an axis, less the margin.
inline float beyond(const Cells& cells, int axis, int32_t cell, float coordinate) {
    const float low = cell * cells.width[axis];
    return std::max({low - coordinate, coordinate - low - cells.width[axis], cells.margin}) - cells.margin;
}

// Call f(run) for the runs that may have neighbours of the p-th sorted atom: all of them, or those that its own row has.
template <typename Function>
void for_each_run(const Brick& brick, const Cells& cells, const Scope& scope, int32_t p, const Function& f) {
    const float reach = static_cast<float>(scope.cutoff) + cells.margin;
    const int32_t nx = cells.n[0], ny = cells.n[1], nz = cells.n[2];
    const int32_t own = cells.cell[p] / nx, own_y = own % ny, own_z = own / ny;
    const int32_t last[3] = {brick.periodic ? INT32_MAX : nx - 1, brick.periodic ? INT32_MAX : ny - 1, brick.periodic ? INT32_MAX : nz - 1};
    const int32_t first = brick.periodic ? INT32_MIN : 0;
    const float z = cells.z[p];
    int32_t kz = std::max(first, whole((z - reach) * cells.per_length[2]));
    if (!scope.both_ways) kz = own_z;
    const int32_t end_z = std::min(last[2], whole((z + reach) * cells.per_length[2]));
    for (; kz <= end_z; ++kz) {
        const int32_t iz = image_of(kz, nz), layer = kz - iz * nz;
        const float away_z = beyond(cells, 2, kz, z);
        const float left_z = reach * reach - away_z * away_z;
        if (left_z < 0) continue;
        const float reach_y = std::sqrt(left_z);
        const float y = iz ? static_cast<float>(cells.y[p] - iz * brick.cy) : cells.y[p];
        int32_t ky = std::max(first, whole((y - reach_y) * cells.per_length[1]));
        if (!scope.both_ways && kz == own_z) ky = own_y;
        const int32_t end_y = std::min(last[1], whole((y + reach_y) * cells.per_length[1]));
        for (; ky <= end_y; ++ky) {
            const int32_t iy = image_of(ky, ny), column = layer * ny + (ky - iy * ny);
            const float away_y = beyond(cells, 1, ky, y);
            const float left_y = left_z - away_y * away_y;
            if (left_y < 0) continue;
            const float reach_x = std::sqrt(left_y) + cells.margin;
            const float x = iz || iy ? static_cast<float>(cells.x[p] - iz * brick.cx - iy * brick.bx) : cells.x[p];
            const bool is_own = kz == own_z && ky == own_y;
            int32_t low = std::max(first, whole((x - reach_x) * cells.per_length[0]));
            if (!scope.both_ways && is_own) low = cells.cell[p] - own * nx;
            const int32_t high = std::min(last[0], whole((x + reach_x) * cells.per_length[0]));
            if (low > high) continue;
            const int32_t* const starts = cells.starts.data() + int64_t(column) * nx;
            const int32_t last_image = image_of(high, nx);
            for (int32_t ix = image_of(low, nx); ix <= last_image; ++ix) {
                Run run;
                run.begin = starts[std::max(0, low - ix * nx)];
                run.end = starts[std::min(nx - 1, high - ix * nx) + 1];
                if (!scope.both_ways && is_own && ix == 0) run.begin = p + 1;
                if (run.begin >= run.end) continue;
                run.x = ix ? static_cast<float>(x - ix * brick.size[0]) : x;
                run.y = iy ? static_cast<float>(y - iy * brick.size[1]) : y;
                run.z = iz ? static_cast<float>(z - iz * brick.size[2]) : z;
                run.shift = packed(ix, iy, iz) + cells.shift[p];
                f(run);
            }
        }
    }
}

inline vec squared_distances(const Cells& cells, const Run& run, int32_t q) {
    const vec x = load(cells.x.get() + q) - run.x, y = load(cells.y.get() + q) - run.y, z = load(cells.z.get() + q) - run.z;
    return x * x + y * y + z * z;
}

// Which of the W sorted atoms from the q-th on are neighbours in a run, a bit for each.
template <typename Real>
inline uint32_t hits(const Brick& brick, const Cells& cells, const Scope& scope, const Real* positions, int32_t p, const Run& run,
                     int32_t q) {
    const vec squared = squared_distances(cells, run, q);
    uint32_t within = bits(squared < scope.surely_out);
    const uint32_t unsure = within & ~bits(squared < scope.surely_in);
    if (run.end - q < W) within &= (1u << (run.end - q)) - 1;
    for (uint32_t left = unsure & within; left; left &= left - 1) {
        const int32_t other = q + __builtin_ctz(left);
        const bool same = other == p && run.shift == cells.shift[p];
        const double exact = brick.squared_distance(positions + 3 * int64_t(cells.atom[p]), positions + 3 * int64_t(cells.atom[other]),
                                                    run.shift - cells.shift[other]);
        if (same || !(exact < scope.squared)) within &= ~(left & -left);
    }
    if (scope.both_ways && run.shift == cells.shift[p] && p >= q && p < q + W) within &= ~(1u << (p - q));
    return within;
}

template <typename Real>
int32_t count_row(const Brick& brick, const Cells& cells, const Scope& scope, const Real* positions, int32_t p) {
    int32_t count = 0;
    for_each_run(brick, cells, scope, p, [&](const Run& run) {
        for (int32_t q = run.begin; q < run.end; q += W) count += __builtin_popcount(hits(brick, cells, scope, positions, p, run, q));
    });
    return count;
}

// Append those of W numbers that have a bit, `n` of them at most.
inline void append(int32_t* to, const int32_t* from, int32_t minus_from, bool subtract, uint32_t chosen, int32_t n) {
#if defined(__AVX512F__)
    __m512i values = _mm512_loadu_si512(from);
    if (subtract) values = _mm512_sub_epi32(_mm512_set1_epi32(minus_from), values);
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1u << n) - 1), _mm512_maskz_compress_epi32(static_cast<__mmask16>(chosen), values));
#else
    for (; n > 0; --n, chosen &= chosen - 1) {
        const int32_t value = from[__builtin_ctz(chosen)];
        *to++ = subtract ? minus_from - value : value;
    }
#endif
}

template <typename Real>
void fill_row(const Brick& brick, const Cells& cells, const Scope& scope, const Real* positions, int32_t p, int32_t next, int32_t end,
              int32_t* neighbors, int32_t* shifts) {
    for_each_run(brick, cells, scope, p, [&](const Run& run) {
        for (int32_t q = run.begin; q < run.end && next < end; q += W) {
            const uint32_t chosen = hits(brick, cells, scope, positions, p, run, q);
            const int32_t n = std::min(__builtin_popcount(chosen), end - next);
            append(neighbors + next, cells.atom.get() + q, 0, false, chosen, n);
            append(shifts + next, cells.shift.get() + q, run.shift, true, chosen, n);
            next += n;
        }
    });
}

}  // namespace
}  // namespace openmm_density
