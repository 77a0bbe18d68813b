// Bricks: the layout of density while the kernel works on it.
//
// A brick is one vector of voxels, BX along x, BY along y and BZ along z, x fastest. The sphere of an atom touches fewer bricks
// than it touches rows of the same length, the rest of a brick is not wasted on voxels beyond the cut-off, and every access is
// aligned. Maps stay in rows: whole rows of bricks are transposed into rows of voxels, or back, in registers.
#pragma once

#include <utility>

#include "../simd.h"

namespace openmm_density {

constexpr int BX = 4;
constexpr int BY = W >= 8 ? 2 : 1;
constexpr int BZ = W >= 16 ? 2 : 1;
constexpr int BRICK_ROWS = BY * BZ;  // of BX voxels; as many bricks hold a row of W voxels
static_assert(BX * BRICK_ROWS == W, "a brick is one vector");

constexpr int BRICK[3] = {BX, BY, BZ};
// Where the voxel of a lane is in its brick.
constexpr int lane_coordinate(int axis, int lane) {
    return axis == 0 ? lane % BX : axis == 1 ? lane / BX % BY : lane / BX / BY;
}

using Lanes = std::make_integer_sequence<int, W>;

#if defined(__clang__)
template <int... FROM>
inline vec shuffle(vec x, vec y) { return __builtin_shufflevector(x, y, FROM...); }
template <int... FROM>
inline vec shuffle(vec x) { return __builtin_shufflevector(x, x, FROM...); }
#else
template <int... FROM>
inline vec shuffle(vec x, vec y) { return __builtin_shuffle(x, y, ivec{FROM...}); }
template <int... FROM>
inline vec shuffle(vec x) { return __builtin_shuffle(x, ivec{FROM...}); }
#endif

// To every lane, what a table along one axis holds for its voxel in the brick that begins at entry FIRST of the table.
template <int AXIS, int FIRST, int... LANE>
inline vec broadcast(vec table, std::integer_sequence<int, LANE...>) {
    return shuffle<FIRST + lane_coordinate(AXIS, LANE)...>(table);
}

// f(brick, table broadcast over it) for the first n of the bricks that a table of W voxels along one axis covers.
template <int AXIS, typename F, int... B>
inline void each_broadcast(vec table, int n, const F& f, std::integer_sequence<int, B...>) {
    (void)((B < n && (f(B, broadcast<AXIS, B * BRICK[AXIS]>(table, Lanes{})), true)) && ...);
}
template <int AXIS, typename F>
inline void each_broadcast(vec table, int n, const F& f) {
    each_broadcast<AXIS>(table, n, f, std::make_integer_sequence<int, W / BRICK[AXIS]>{});
}
// Reads W entries, of which the first BX count.
inline vec broadcast_x(const float* table) { return broadcast<0, 0>(load(table), Lanes{}); }

// The voxel of every lane in its brick, along one axis.
template <int AXIS, int... LANE>
inline vec lane_coordinates(std::integer_sequence<int, LANE...>) {
    return vec{static_cast<float>(lane_coordinate(AXIS, LANE))...};
}
inline vec lane_x() { return lane_coordinates<0>(Lanes{}); }
inline vec lane_y() { return lane_coordinates<1>(Lanes{}); }
inline vec lane_z() { return lane_coordinates<2>(Lanes{}); }

// One exchange of the transposition below, between vectors that are STEP apart.
template <int STEP, bool UPPER, int... LANE>
inline vec exchange(vec x, vec y, std::integer_sequence<int, LANE...>) {
    constexpr int shift = STEP * BX;
    if constexpr (UPPER)
        return shuffle<((LANE / BX) & STEP ? W + LANE : LANE + shift)...>(x, y);
    else
        return shuffle<((LANE / BX) & STEP ? W + LANE - shift : LANE)...>(x, y);
}

// BRICK_ROWS rows of W voxels, one row for each of a brick's, become as many bricks side by side along x. Its own inverse.
template <int STEP = BRICK_ROWS / 2>
inline void transpose(vec (&rows)[BRICK_ROWS]) {
    if constexpr (STEP > 0) {
        for (int i = 0; i < BRICK_ROWS; ++i) {
            if (i & STEP) continue;
            const vec x = rows[i], y = rows[i + STEP];
            rows[i] = exchange<STEP, false>(x, y, Lanes{});
            rows[i + STEP] = exchange<STEP, true>(x, y, Lanes{});
        }
        transpose<STEP / 2>(rows);
    }
}

}  // namespace openmm_density
