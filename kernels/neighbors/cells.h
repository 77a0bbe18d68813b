// Atoms sorted by rectangular cells of the brick, x fastest.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "../parallel.h"
#include "../simd.h"
#include "brick.h"

namespace openmm_density {
namespace {

constexpr int64_t ATOMS_PER_TASK = 256;
// In a run, on average: enough to fill vectors, few enough to follow the sphere.
constexpr double ATOMS_PER_RUN = 20;
constexpr double ATOMS_PER_CELL = 1.5;

inline int64_t tasks_of(int64_t n) { return (n + ATOMS_PER_TASK - 1) / ATOMS_PER_TASK; }

// Uninitialised memory of plain types.
template <typename T>
using Buffer = std::unique_ptr<T[]>;

struct Cells {
    int32_t n[3] = {1, 1, 1};
    float per_length[3] = {};  // cells
    float width[3] = {};
    float margin = 0;          // of a coordinate, for rounding
    int64_t n_sorted = 0;
    std::vector<int32_t> starts;  // by cell, and the end
    Buffer<int32_t> atom, shift, cell;
    Buffer<float> x, y, z;     // W more than there are atoms may be read

    int32_t cell_along(int axis, float coordinate) const {
        return std::clamp(static_cast<int32_t>(coordinate * per_length[axis]), 0, n[axis] - 1);
    }
};

inline void choose_cells(const Brick& brick, double cutoff, int64_t n_atoms, Cells& cells) {
    double extent[3], width[3];
    for (int axis = 0; axis < 3; ++axis) extent[axis] = std::max(brick.size[axis], 1e-3 * cutoff);
    const double density = std::max(1.0, double(n_atoms)) / extent[0] / extent[1] / extent[2];
    const double across = std::clamp(std::sqrt(ATOMS_PER_RUN / (1.5 * cutoff * density)), 0.25 * cutoff, cutoff);
    width[0] = std::clamp(ATOMS_PER_CELL / (density * across * across), cutoff / 16, cutoff);
    width[1] = width[2] = across;
    for (;;) {
        double total = 1;
        for (int axis = 0; axis < 3; ++axis) total *= std::max(1.0, std::floor(extent[axis] / width[axis]));
        if (total <= 4.0 * n_atoms + 64) break;
        for (double& each : width) each *= 1.3;
    }
    double longest = cutoff;
    for (int axis = 0; axis < 3; ++axis) {
        cells.n[axis] = static_cast<int32_t>(std::max(1.0, std::floor(extent[axis] / width[axis])));
        cells.width[axis] = static_cast<float>(extent[axis] / cells.n[axis]);
        cells.per_length[axis] = static_cast<float>(cells.n[axis] / extent[axis]);
        longest = std::max(longest, extent[axis] + cutoff);
    }
    // As far are columns beyond the faces of a box moved that leans, and rounded.
    const double lean_y = std::abs(brick.cy) * (cutoff / extent[2] + 1);
    const double lean_x = std::abs(brick.bx) * ((cutoff + lean_y) / extent[1] + 1) + std::abs(brick.cx) * (cutoff / extent[2] + 1);
    cells.margin = static_cast<float>(1e-6 * std::max({longest, lean_x / 2, lean_y / 2}));
}

// The smallest brick around the atoms that are usable.
template <typename Real>
void enclose(const Real* positions, int64_t n_atoms, Brick& brick) {
    double low[3], high[3];
    std::fill(low, low + 3, std::numeric_limits<double>::infinity());
    std::fill(high, high + 3, -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < n_atoms; ++i) {
        const double position[3] = {double(positions[3 * i]), double(positions[3 * i + 1]), double(positions[3 * i + 2])};
        if (!brick.is_usable(position)) continue;
        for (int axis = 0; axis < 3; ++axis) {
            low[axis] = std::min(low[axis], position[axis]);
            high[axis] = std::max(high[axis], position[axis]);
        }
    }
    for (int axis = 0; axis < 3; ++axis) {
        if (!(low[axis] <= high[axis])) low[axis] = high[axis] = 0;
        brick.origin[axis] = low[axis];
        brick.size[axis] = high[axis] - low[axis];
    }
}

template <typename Real>
Cells sort_atoms(const Real* positions, int64_t n_atoms, const Brick& brick, double cutoff) {
    Cells cells;
    choose_cells(brick, cutoff, n_atoms, cells);
    const Buffer<int32_t> cell_of(new int32_t[n_atoms]), shift_of(new int32_t[n_atoms]);
    const Buffer<float> inside(new float[3 * n_atoms]);
    parallel_for(tasks_of(n_atoms), [&](int64_t task, int) {
        const int64_t end = std::min(n_atoms, (task + 1) * ATOMS_PER_TASK);
        for (int64_t i = task * ATOMS_PER_TASK; i < end; ++i) {
            const double position[3] = {double(positions[3 * i]), double(positions[3 * i + 1]), double(positions[3 * i + 2])};
            cell_of[i] = -1;
            if (!brick.is_usable(position)) continue;
            double place[3];
            shift_of[i] = brick.bring_in(position, place);
            int32_t k[3];
            for (int axis = 0; axis < 3; ++axis) {
                inside[3 * i + axis] = static_cast<float>(place[axis]);
                k[axis] = cells.cell_along(axis, inside[3 * i + axis]);
            }
            cell_of[i] = (k[2] * cells.n[1] + k[1]) * cells.n[0] + k[0];
        }
    });
    const int64_t n_cells = int64_t(cells.n[0]) * cells.n[1] * cells.n[2];
    cells.starts.assign(n_cells + 2, 0);
    int32_t* const next = cells.starts.data() + 1;  // behind the last is where a cell's next atom goes
    for (int64_t i = 0; i < n_atoms; ++i)
        if (cell_of[i] >= 0) ++next[cell_of[i] + 1];
    for (int64_t cell = 0; cell < n_cells; ++cell) next[cell + 1] += next[cell];
    cells.n_sorted = next[n_cells];
    const int64_t room = cells.n_sorted + W;
    for (auto* table : {&cells.atom, &cells.shift, &cells.cell}) table->reset(new int32_t[room]);
    for (auto* table : {&cells.x, &cells.y, &cells.z}) {
        table->reset(new float[room]);
        std::fill(table->get() + cells.n_sorted, table->get() + room, std::numeric_limits<float>::infinity());
    }
    for (auto* table : {&cells.atom, &cells.shift}) std::fill(table->get() + cells.n_sorted, table->get() + room, 0);
    for (int64_t i = 0; i < n_atoms; ++i) {
        if (cell_of[i] < 0) continue;
        const int32_t p = next[cell_of[i]]++;
        cells.atom[p] = static_cast<int32_t>(i);
        cells.shift[p] = shift_of[i];
        cells.cell[p] = cell_of[i];
        cells.x[p] = inside[3 * i], cells.y[p] = inside[3 * i + 1], cells.z[p] = inside[3 * i + 2];
    }
    return cells;
}

}  // namespace
}  // namespace openmm_density
