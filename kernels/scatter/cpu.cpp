// structured_scatter_add and structured_gather on the CPU.
//
// Every thread owns a contiguous part of the output and walks the cubes in order, skipping those, and those of their rows, that
// cannot reach its part. A voxel therefore receives its additions in the order of the input for every number of threads.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include "parallel.h"

namespace {

using openmm_density::parallel_for;
using openmm_density::threads_for;

constexpr int64_t LINE_FLOATS = 16;      // a cache line: two threads never write to the same one
constexpr int64_t PART_LINES = 1 << 14;  // 1 MiB: a part stays in the second-level cache while cubes add to it
constexpr int64_t PARTS_PER_THREAD = 8;  // models fill maps unevenly
constexpr int64_t PART_FLOATS = 4096;    // less work than that is not worth waking a thread
constexpr int64_t CUBES_PER_TASK = 64;

template <typename Index>
struct Range {
    Index low = std::numeric_limits<Index>::max();
    Index high = std::numeric_limits<Index>::lowest();

    void add(const Range& other) {
        low = std::min(low, other.low);
        high = std::max(high, other.high);
    }
};

template <typename Index>
Range<Index> range_of(const Index* values, int64_t n) {
    Range<Index> range;
    for (int64_t i = 0; i < n; ++i) {
        range.low = std::min(range.low, values[i]);
        range.high = std::max(range.high, values[i]);
    }
    return range;
}

struct Shape {
    int64_t n_cubes, nx, ny, nz;

    int64_t n_voxels() const { return n_cubes * nx * ny * nz; }
};

// Where the cubes lie in the map: what each thread needs to know to skip those of the others.
template <typename Index>
struct Layout {
    struct Row {
        Range<Index> range;
        bool contiguous;
    };
    struct Cube {
        Range<Index> plane;      // of wbwc
        int64_t low, high;       // of wa + wbwc
        bool in_range;
    };

    Shape shape;
    const Index* wa;
    const Index* wbwc;
    std::unique_ptr<Row[]> rows;
    std::unique_ptr<Cube[]> cubes;

    Layout(const Shape& shape, const Index* wa, const Index* wbwc, int64_t map_size)
        : shape(shape),
          wa(wa),
          wbwc(wbwc),
          rows(new Row[shape.n_cubes * shape.ny]),
          cubes(new Cube[shape.n_cubes]) {
        const int64_t n_tasks = (shape.n_cubes + CUBES_PER_TASK - 1) / CUBES_PER_TASK;
        parallel_for(n_tasks, [&](int64_t task, int) {
            const int64_t end = std::min(shape.n_cubes, (task + 1) * CUBES_PER_TASK);
            for (int64_t c = task * CUBES_PER_TASK; c < end; ++c) measure(c, map_size);
        });
        for (int64_t c = 0; c < shape.n_cubes; ++c) {
            TORCH_CHECK_VALUE(cubes[c].in_range, "wa + wbwc of cube ", c, " leaves the map: it spans ", cubes[c].low, " to ",
                              cubes[c].high, ", and map_size ", map_size, " allows 0 to ", map_size - 1,
                              "; wrap or clip the indices first");
        }
    }

private:
    void measure(int64_t c, int64_t map_size) {
        Cube& cube = cubes[c];
        cube.plane = Range<Index>();
        for (int64_t j = 0; j < shape.ny; ++j) {
            Row& row = rows[c * shape.ny + j];
            const Index* w = wbwc + (c * shape.ny + j) * shape.nz;
            row.range = range_of(w, shape.nz);
            cube.plane.add(row.range);
            bool contiguous = true;
            for (int64_t k = 1; k < shape.nz; ++k) contiguous &= w[k] > w[k - 1];
            // Strictly rising from the smallest to the largest in nz - 1 steps leaves no gap.
            row.contiguous = contiguous && static_cast<uint64_t>(row.range.high) - static_cast<uint64_t>(row.range.low) ==
                                               static_cast<uint64_t>(shape.nz - 1);
        }
        const Range<Index> a = range_of(wa + c * shape.nx, shape.nx);
        const bool low_overflows = __builtin_add_overflow(int64_t{a.low}, int64_t{cube.plane.low}, &cube.low);
        const bool high_overflows = __builtin_add_overflow(int64_t{a.high}, int64_t{cube.plane.high}, &cube.high);
        cube.in_range = !low_overflows && !high_overflows && cube.low >= 0 && cube.high < map_size;
    }
};

// Add to map[begin, end), and only there, what the cubes hold for it.
template <typename Index>
void scatter_part(const Layout<Index>& layout, const float* values, float* map, int64_t begin, int64_t end) {
    const auto [n_cubes, nx, ny, nz] = layout.shape;
    for (int64_t c = 0; c < n_cubes; ++c) {
        const auto& cube = layout.cubes[c];
        if (cube.high < begin || cube.low >= end) continue;
        const auto* rows = layout.rows.get() + c * ny;
        const Index* plane = layout.wbwc + c * ny * nz;
        for (int64_t i = 0; i < nx; ++i) {
            const int64_t base = layout.wa[c * nx + i];
            if (base + cube.plane.high < begin || base + cube.plane.low >= end) continue;
            float* const origin = map + base;
            const float* slice = values + (c * nx + i) * ny * nz;
            for (int64_t j = 0; j < ny; ++j) {
                const int64_t low = base + rows[j].range.low;
                const int64_t high = base + rows[j].range.high;
                if (high < begin || low >= end) continue;
                const float* value = slice + j * nz;
                if (rows[j].contiguous) {
                    const int64_t first = std::max<int64_t>(0, begin - low);
                    const int64_t last = std::min(nz, end - low);
                    float* const __restrict row = map + low;
                    for (int64_t k = first; k < last; ++k) row[k] += value[k];
                } else if (low >= begin && high < end) {
                    const Index* w = plane + j * nz;
                    for (int64_t k = 0; k < nz; ++k) origin[w[k]] += value[k];
                } else {
                    const Index* w = plane + j * nz;
                    for (int64_t k = 0; k < nz; ++k) {
                        const int64_t index = base + w[k];
                        if (index >= begin && index < end) map[index] += value[k];
                    }
                }
            }
        }
    }
}

template <typename Index>
void scatter(const Layout<Index>& layout, const float* values, float* map, int64_t map_size) {
    const int64_t n_lines = (map_size + LINE_FLOATS - 1) / LINE_FLOATS;
    const int64_t n_worthwhile = std::min(n_lines, 1 + (map_size + layout.shape.n_voxels()) / PART_FLOATS);
    const int64_t n_threads = threads_for(n_worthwhile);
    const int64_t n_shares = n_threads == 1 ? 1 : n_threads * PARTS_PER_THREAD;
    const int64_t n_parts = std::min(n_worthwhile, std::max(n_shares, n_lines / PART_LINES));
    parallel_for(n_parts, [&](int64_t part, int) {
        const int64_t begin = n_lines * part / n_parts * LINE_FLOATS;
        const int64_t end = std::min(map_size, n_lines * (part + 1) / n_parts * LINE_FLOATS);
        std::fill(map + begin, map + end, 0.0f);
        scatter_part(layout, values, map, begin, end);
    });
}

template <typename Index>
void gather(const Layout<Index>& layout, const float* map, float* values) {
    const auto [n_cubes, nx, ny, nz] = layout.shape;
    const int64_t n_tasks = (n_cubes + CUBES_PER_TASK - 1) / CUBES_PER_TASK;
    parallel_for(n_tasks, [&, n_cubes = n_cubes, nx = nx, ny = ny, nz = nz](int64_t task, int) {
        const int64_t end = std::min(n_cubes, (task + 1) * CUBES_PER_TASK);
        for (int64_t c = task * CUBES_PER_TASK; c < end; ++c) {
            const auto* rows = layout.rows.get() + c * ny;
            for (int64_t i = 0; i < nx; ++i) {
                const int64_t base = layout.wa[c * nx + i];
                for (int64_t j = 0; j < ny; ++j) {
                    float* const __restrict value = values + ((c * nx + i) * ny + j) * nz;
                    if (rows[j].contiguous) {
                        const float* row = map + (base + rows[j].range.low);
                        for (int64_t k = 0; k < nz; ++k) value[k] = row[k];
                    } else {
                        const float* const origin = map + base;
                        const Index* w = layout.wbwc + (c * ny + j) * nz;
                        for (int64_t k = 0; k < nz; ++k) value[k] = origin[w[k]];
                    }
                }
            }
        }
    });
}

at::Tensor as_float32(const at::Tensor& values, const char* argument) {
    const at::ScalarType type = values.scalar_type();
    TORCH_CHECK_VALUE(type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16, argument,
                      " must be real floating-point numbers, got ", type, ": convert it with .to(torch.float32)");
    if (type != at::kFloat) {
        static std::atomic<bool> said[static_cast<int>(at::ScalarType::NumOptions)];
        if (!said[static_cast<int>(type)].exchange(true)) {
            TORCH_WARN(argument, " is ", type, " and is converted to float32, as is the result: pass float32 to avoid this");
        }
    }
    return values.to(at::kFloat).contiguous();
}

void check_indices(const at::Tensor& wa, const at::Tensor& wbwc, int64_t map_size) {
    const at::ScalarType type = wa.scalar_type();
    TORCH_CHECK_VALUE(type == wbwc.scalar_type() && (type == at::kInt || type == at::kLong),
                      "wa and wbwc must both be int32 or both int64, got ", type, " and ", wbwc.scalar_type());
    TORCH_CHECK_VALUE(wa.dim() == 2 && wbwc.dim() == 3 && wa.size(0) == wbwc.size(0),
                      "wa must have the shape (C, nx) and wbwc (C, ny, nz), got ", wa.sizes(), " and ", wbwc.sizes());
    TORCH_CHECK_VALUE(map_size >= 0, "map_size must not be negative, got ", map_size);
    TORCH_CHECK_VALUE(type == at::kLong || map_size <= std::numeric_limits<int32_t>::max(), "map_size ", map_size,
                      " is beyond the reach of int32 indices (2147483647): pass wa and wbwc as int64");
}

template <typename Function>
void with_layout(const Shape& shape, const at::Tensor& wa, const at::Tensor& wbwc, int64_t map_size, const Function& f) {
    if (wa.scalar_type() == at::kInt) {
        f(Layout<int32_t>(shape, wa.const_data_ptr<int32_t>(), wbwc.const_data_ptr<int32_t>(), map_size));
    } else {
        f(Layout<int64_t>(shape, wa.const_data_ptr<int64_t>(), wbwc.const_data_ptr<int64_t>(), map_size));
    }
}

at::Tensor structured_scatter_add(const at::Tensor& density_cube, const at::Tensor& wa, const at::Tensor& wbwc,
                                  int64_t map_size) {
    check_indices(wa, wbwc, map_size);
    TORCH_CHECK_VALUE(density_cube.dim() == 4 && density_cube.size(0) == wa.size(0) && density_cube.size(1) == wa.size(1) &&
                          density_cube.size(2) == wbwc.size(1) && density_cube.size(3) == wbwc.size(2),
                      "density_cube must have the shape (C, nx, ny, nz) for wa (C, nx) and wbwc (C, ny, nz), got ",
                      density_cube.sizes(), " for ", wa.sizes(), " and ", wbwc.sizes());
    const at::Tensor values = as_float32(density_cube, "density_cube");
    const at::Tensor a = wa.contiguous();
    const at::Tensor bc = wbwc.contiguous();
    at::Tensor map = at::empty({map_size}, values.options());
    Shape shape{values.size(0), values.size(1), values.size(2), values.size(3)};
    if (shape.n_voxels() == 0) shape = Shape{0, 0, 0, 0};
    with_layout(shape, a, bc, map_size, [&](const auto& layout) {
        scatter(layout, values.const_data_ptr<float>(), map.mutable_data_ptr<float>(), map_size);
    });
    return map;
}

at::Tensor structured_gather(const at::Tensor& density_map, const at::Tensor& wa, const at::Tensor& wbwc) {
    TORCH_CHECK_VALUE(density_map.dim() == 1, "density_map must have the shape (map_size,), got ", density_map.sizes(),
                      ": flatten it first");
    check_indices(wa, wbwc, density_map.size(0));
    const at::Tensor map = as_float32(density_map, "density_map");
    const at::Tensor a = wa.contiguous();
    const at::Tensor bc = wbwc.contiguous();
    const Shape shape{a.size(0), a.size(1), bc.size(1), bc.size(2)};
    at::Tensor values = at::empty({shape.n_cubes, shape.nx, shape.ny, shape.nz}, map.options());
    if (shape.n_voxels() == 0) return values;
    with_layout(shape, a, bc, map.size(0), [&](const auto& layout) {
        gather(layout, map.const_data_ptr<float>(), values.mutable_data_ptr<float>());
    });
    return values;
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, library) {
    library.impl("structured_scatter_add", structured_scatter_add);
    library.impl("structured_gather", structured_gather);
}
