// Small products of matrices, and the activation between them.
//
// Every element is added up in the order of its terms, whatever the number of rows: no result depends on how rows are dealt out.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../simd.h"

namespace openmm_density {
namespace {

template <int ROWS, int VECTORS>
inline void product_tile(const float* rows, int64_t row_stride, const float* matrix, int64_t matrix_stride, int terms, float* out,
                         int64_t out_stride, const float* start, bool add) {
    vec sums[ROWS][VECTORS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v)
            sums[r][v] = add ? load(out + r * out_stride + v * W) : start ? load(start + v * W) : vec{};
    for (int k = 0; k < terms; ++k) {
        vec columns[VECTORS];
        for (int v = 0; v < VECTORS; ++v) columns[v] = load(matrix + k * matrix_stride + v * W);
        for (int r = 0; r < ROWS; ++r) {
            const vec factor = broadcast(rows[r * row_stride + k]);
            for (int v = 0; v < VECTORS; ++v) sums[r][v] += factor * columns[v];
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v) store(out + r * out_stride + v * W, sums[r][v]);
}

// As many sums as there are registers for.
template <int VECTORS>
constexpr int rows_at_once() {
    return W == 16 ? (VECTORS == 4 ? 6 : 8) : (VECTORS == 2 ? 6 : 8);
}

template <int VECTORS>
inline void product_columns(const float* rows, int64_t row_stride, int64_t n_rows, const float* matrix, int64_t matrix_stride, int terms,
                            float* out, int64_t out_stride, const float* start, bool add) {
    constexpr int MOST = rows_at_once<VECTORS>();
    int64_t r = 0;
    for (; r + MOST <= n_rows; r += MOST)
        product_tile<MOST, VECTORS>(rows + r * row_stride, row_stride, matrix, matrix_stride, terms, out + r * out_stride, out_stride,
                                    start, add);
    const auto rest = [&](auto number) {
        constexpr int ROWS = decltype(number)::value;
        product_tile<ROWS, VECTORS>(rows + r * row_stride, row_stride, matrix, matrix_stride, terms, out + r * out_stride, out_stride,
                                    start, add);
        r += ROWS;
    };
    if (n_rows - r >= 4) rest(std::integral_constant<int, 4>());
    if (n_rows - r == 3) rest(std::integral_constant<int, 3>());
    if (n_rows - r == 2) rest(std::integral_constant<int, 2>());
    if (n_rows - r == 1) rest(std::integral_constant<int, 1>());
}

// out[r, m] = start[m] + sum over k of rows[r, k] matrix[k, m], or added to what is there; the number of columns is a multiple of 16.
inline void multiply(const float* rows, int64_t row_stride, int64_t n_rows, const float* matrix, int terms, int columns, float* out,
                     int64_t out_stride, const float* start = nullptr, bool add = false) {
    constexpr int WIDE = W == 16 ? 4 : 2;
    int m = 0;
    for (; m + WIDE * W <= columns; m += WIDE * W)
        product_columns<WIDE>(rows, row_stride, n_rows, matrix + m, columns, terms, out + m, out_stride, start ? start + m : nullptr, add);
    if (WIDE == 4 && m + 2 * W <= columns) {
        product_columns<2>(rows, row_stride, n_rows, matrix + m, columns, terms, out + m, out_stride, start ? start + m : nullptr, add);
        m += 2 * W;
    }
    for (; m < columns; m += W)
        product_columns<1>(rows, row_stride, n_rows, matrix + m, columns, terms, out + m, out_stride, start ? start + m : nullptr, add);
}

inline vec logistic(vec x) {
    const vec small = exp_of_negative(x < 0.0f ? x : -x);
    return (x < 0.0f ? small : broadcast(1.0f)) / (1.0f + small);
}

// silu(x) = x / (1 + exp(-x))
inline void activate(const float* before, float* after, int64_t n) {
    for (int64_t k = 0; k < n; k += W) {
        const vec x = load(before + k);
        store(after + k, x * logistic(x));
    }
}

// Gradients with respect to what was activated, in place.
inline void activate_backward(const float* before, float* gradient, int64_t n) {
    for (int64_t k = 0; k < n; k += W) {
        const vec x = load(before + k), y = logistic(x);
        store(gradient + k, load(gradient + k) * y * (1.0f + x * (1.0f - y)));
    }
}

}  // namespace
}  // namespace openmm_density
