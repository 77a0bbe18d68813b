// A map interpolated at the atoms, with the gradient, on plain memory: 64 voxels per atom.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "../grid.h"
#include "../parallel.h"

namespace openmm_density {
namespace {

constexpr int64_t ATOMS_PER_CHUNK = 512;

// Keys' cubic convolution (a = -1/2) for the four voxels around a point at fraction t of the way from the second to the third.
inline void cubic_weights(float t, float value[4], float slope[4]) {
    value[0] = ((-0.5f * t + 1.0f) * t - 0.5f) * t;
    value[1] = (1.5f * t - 2.5f) * t * t + 1.0f;
    value[2] = ((-1.5f * t + 2.0f) * t + 0.5f) * t;
    value[3] = (0.5f * t - 0.5f) * t * t;
    slope[0] = (-1.5f * t + 2.0f) * t - 0.5f;
    slope[1] = (4.5f * t - 5.0f) * t;
    slope[2] = (-4.5f * t + 4.0f) * t + 0.5f;
    slope[3] = (1.5f * t - 1.0f) * t;
}

// Return S, and store scale dS/dx of the atoms.
template <typename T>
double interpolate(const Grid& grid, const T* positions, const int64_t* atoms, int64_t n_atoms, const float* weights,
                   const float* potential, double scale, T* gradient) {
    const int64_t n_chunks = (n_atoms + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    double total_weight = 0;
    for (int64_t i = 0; i < n_atoms; ++i) total_weight += weights[i];
    std::vector<double> sums(n_chunks, 0.0);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        for (int64_t i = chunk * ATOMS_PER_CHUNK; i < std::min(n_atoms, (chunk + 1) * ATOMS_PER_CHUNK); ++i) {
            double u[3];
            if (!grid.locate(positions + 3 * atoms[i], u)) continue;
            float weight[3][4], slope[3][4];
            int64_t index[3][4];
            for (int axis = 0; axis < 3; ++axis) {
                const int64_t below = static_cast<int64_t>(std::floor(u[axis]));
                cubic_weights(static_cast<float>(u[axis] - below), weight[axis], slope[axis]);
                for (int k = 0; k < 4; ++k) {
                    int64_t voxel = below - 1 + k;
                    const int64_t n = grid.n[axis];
                    if (grid.periodic) voxel = ((voxel % n) + n) % n;
                    if (voxel < 0 || voxel >= n) {
                        voxel = 0;
                        weight[axis][k] = slope[axis][k] = 0;
                    }
                    index[axis][k] = voxel;
                }
            }
            float value = 0, du[3] = {};
            for (int z = 0; z < 4; ++z) {
                for (int y = 0; y < 4; ++y) {
                    const float* row = potential + (index[2][z] * grid.n[1] + index[1][y]) * grid.n[0];
                    float in_row = 0, slope_in_row = 0;
                    for (int x = 0; x < 4; ++x) {
                        in_row += weight[0][x] * row[index[0][x]];
                        slope_in_row += slope[0][x] * row[index[0][x]];
                    }
                    value += weight[2][z] * weight[1][y] * in_row;
                    du[0] += weight[2][z] * weight[1][y] * slope_in_row;
                    du[1] += weight[2][z] * slope[1][y] * in_row;
                    du[2] += slope[2][z] * weight[1][y] * in_row;
                }
            }
            const double share = weights[i] / total_weight;
            sums[chunk] += share * value;
            for (int axis = 0; axis < 3; ++axis)
                gradient[3 * atoms[i] + axis] =
                    static_cast<T>(scale * share * (grid.inverse[0][axis] * du[0] + grid.inverse[1][axis] * du[1] +
                                            grid.inverse[2][axis] * du[2]));
        }
    });
    double similarity = 0;
    for (const double sum : sums) similarity += sum;
    return similarity;
}

}  // namespace
}  // namespace openmm_density
