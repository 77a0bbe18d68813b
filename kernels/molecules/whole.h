// Molecules put back whole, on plain memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "../parallel.h"

namespace openmm_density {
namespace {

constexpr int64_t MOLECULES_PER_TASK = 512;

struct Lattice {
    double vector[3][3];  // rows
    double inverse[3][3];

    explicit Lattice(const double* box) {
        std::copy(box, box + 9, &vector[0][0]);
        double volume = 0;
        for (int row = 0; row < 3; ++row) {
            const double* const b = vector[(row + 1) % 3];
            const double* const c = vector[(row + 2) % 3];
            for (int axis = 0; axis < 3; ++axis) {
                const int j = (axis + 1) % 3, k = (axis + 2) % 3;
                inverse[axis][row] = b[j] * c[k] - b[k] * c[j];
            }
        }
        for (int axis = 0; axis < 3; ++axis) volume += vector[0][axis] * inverse[axis][0];
        for (auto& row : inverse)
            for (double& element : row) element /= volume;
    }

    // The lattice vector nearest to a point.
    void nearest(const double point[3], double shift[3]) const {
        double steps[3], least = std::numeric_limits<double>::infinity();
        for (int i = 0; i < 3; ++i) {
            double fraction = 0;
            for (int axis = 0; axis < 3; ++axis) fraction += point[axis] * inverse[axis][i];
            steps[i] = std::nearbyint(fraction);
            shift[i] = std::numeric_limits<double>::quiet_NaN();  // unless a distance is finite
        }
        constexpr double around[3] = {0, -1, 1};
        for (const double a : around)
            for (const double b : around)
                for (const double c : around) {
                    const double n[3] = {steps[0] + a, steps[1] + b, steps[2] + c};
                    double candidate[3], distance = 0;
                    for (int axis = 0; axis < 3; ++axis) {
                        candidate[axis] = n[0] * vector[0][axis] + n[1] * vector[1][axis] + n[2] * vector[2][axis];
                        distance += (point[axis] - candidate[axis]) * (point[axis] - candidate[axis]);
                    }
                    if (distance < least) {
                        least = distance;
                        std::copy(candidate, candidate + 3, shift);
                    }
                }
    }
};

template <typename Real>
void shift_molecules(const Real* positions, const int64_t* particles, const int64_t* order, const int64_t* offsets,
                     int64_t n_molecules, const double* references, const Lattice& lattice, Real* whole) {
    parallel_for((n_molecules + MOLECULES_PER_TASK - 1) / MOLECULES_PER_TASK, [&](int64_t task, int) {
        const int64_t end = std::min(n_molecules, (task + 1) * MOLECULES_PER_TASK);
        for (int64_t molecule = task * MOLECULES_PER_TASK; molecule < end; ++molecule) {
            double sum[3] = {}, away[3], shift[3];
            for (int64_t k = offsets[molecule]; k < offsets[molecule + 1]; ++k) {
                const Real* const position = positions + 3 * particles[order[k]];
                for (int axis = 0; axis < 3; ++axis) sum[axis] += position[axis];
            }
            const double size = static_cast<double>(offsets[molecule + 1] - offsets[molecule]);
            for (int axis = 0; axis < 3; ++axis) away[axis] = references[3 * molecule + axis] - sum[axis] / size;
            lattice.nearest(away, shift);
            for (int64_t k = offsets[molecule]; k < offsets[molecule + 1]; ++k) {
                const Real* const position = positions + 3 * particles[order[k]];
                for (int axis = 0; axis < 3; ++axis)
                    whole[3 * order[k] + axis] = position[axis] + static_cast<Real>(shift[axis]);
            }
        }
    });
}

}  // namespace
}  // namespace openmm_density
