// Bricks: the layout of density while the kernel works on it.
//
// A brick is one vector of voxels, BX along x, BY along y and BZ along z, x fastest. The sphere of an atom touches fewer bricks
// than it touches rows of the same length, the rest of a brick is not wasted on voxels beyond the cut-off, and every access is
// aligned. Maps stay in rows: whole rows of bricks are turned into rows of voxels, or back, in registers.
#pragma once

#include <utility>

#include "../simd.h"

namespace openmm_density {

constexpr int BX = 4;
constexpr int BY = W >= 8 ? 2 : 1;
constexpr int BZ = W >= 16 ? 2 : 1;
constexpr int BRICK_ROWS = BY * BZ;  // of BX voxels; as many bricks hold a row of W voxels
static_assert(BX * BRICK_ROWS == W, "a brick is one vector");

constexpr int x_of_lane(int lane) { return lane % BX; }
constexpr int y_of_lane(int lane) { return lane / BX % BY; }
constexpr int z_of_lane(int lane) { return lane / BX / BY; }

using Lanes = std::make_integer_sequence<int, W>;

#if defined(__clang__)
template <int... FROM>
inline vec picked(vec x, vec y) { return __builtin_shufflevector(x, y, FROM...); }
template <int... FROM>
inline vec picked(vec x) { return __builtin_shufflevector(x, x, FROM...); }
#else
template <int... FROM>
inline vec picked(vec x, vec y) { return __builtin_shuffle(x, y, ivec{FROM...}); }
template <int... FROM>
inline vec picked(vec x) { return __builtin_shuffle(x, ivec{FROM...}); }
#endif

// Every lane takes what a table along one axis holds for its place in the brick that begins at place FIRST of the table.
template <int (*PLACE)(int), int FIRST, int... LANE>
inline vec spread(vec table, std::integer_sequence<int, LANE...>) { return picked<FIRST + PLACE(LANE)...>(table); }

// f(brick, table spread over it) for the first n of the bricks of SIZE voxels that a table of W voxels along one axis covers.
template <int (*PLACE)(int), int SIZE, typename F, int... BRICK>
inline void each_spread(vec table, int n, const F& f, std::integer_sequence<int, BRICK...>) {
    (void)((BRICK < n && (f(BRICK, spread<PLACE, BRICK * SIZE>(table, Lanes{})), true)) && ...);
}
template <typename F>
inline void each_spread_x(vec table, int n, const F& f) {
    each_spread<x_of_lane, BX>(table, n, f, std::make_integer_sequence<int, W / BX>{});
}
template <typename F>
inline void each_spread_y(vec table, int n, const F& f) {
    each_spread<y_of_lane, BY>(table, n, f, std::make_integer_sequence<int, W / BY>{});
}
template <typename F>
inline void each_spread_z(vec table, int n, const F& f) {
    each_spread<z_of_lane, BZ>(table, n, f, std::make_integer_sequence<int, W / BZ>{});
}
// Reads W places, of which the first BX count.
inline vec spread_x(const float* table) { return spread<x_of_lane, 0>(load(table), Lanes{}); }

template <int (*PLACE)(int), int... LANE>
inline vec places(std::integer_sequence<int, LANE...>) { return vec{static_cast<float>(PLACE(LANE))...}; }
inline vec x_places() { return places<x_of_lane>(Lanes{}); }
inline vec y_places() { return places<y_of_lane>(Lanes{}); }
inline vec z_places() { return places<z_of_lane>(Lanes{}); }

// One exchange of the transposition below, between vectors that are STEP apart.
template <int STEP, bool UPPER, int... LANE>
inline vec exchanged(vec x, vec y, std::integer_sequence<int, LANE...>) {
    constexpr int shift = STEP * BX;
    if constexpr (UPPER)
        return picked<((LANE / BX) & STEP ? W + LANE : LANE + shift)...>(x, y);
    else
        return picked<((LANE / BX) & STEP ? W + LANE - shift : LANE)...>(x, y);
}

// BRICK_ROWS rows of W voxels, one row for each of a brick's, become as many bricks side by side along x. Its own inverse.
template <int STEP = BRICK_ROWS / 2>
inline void transpose(vec (&rows)[BRICK_ROWS]) {
    if constexpr (STEP > 0) {
        for (int i = 0; i < BRICK_ROWS; ++i) {
            if (i & STEP) continue;
            const vec x = rows[i], y = rows[i + STEP];
            rows[i] = exchanged<STEP, false>(x, y, Lanes{});
            rows[i + STEP] = exchanged<STEP, true>(x, y, Lanes{});
        }
        transpose<STEP / 2>(rows);
    }
}

}  // namespace openmm_density
