// A map interpolated at the atoms, and its gradient, on the CPU: 64 voxels per atom, in chunks of atoms that do not depend on the threads.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "../grid.h"
#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../parallel.h"
#include "../scale.h"

namespace openmm_density {
namespace {

constexpr int64_t ATOMS_PER_CHUNK = 512;

// Keys' cubic convolution (a = -1/2) for the four voxels around a point at fraction t of the way from the second to the third.
void cubic_weights(float t, float value[4], float slope[4]) {
    value[0] = ((-0.5f * t + 1.0f) * t - 0.5f) * t;
    value[1] = (1.5f * t - 2.5f) * t * t + 1.0f;
    value[2] = ((-1.5f * t + 2.0f) * t + 0.5f) * t;
    value[3] = (0.5f * t - 0.5f) * t * t;
    slope[0] = (-1.5f * t + 2.0f) * t - 0.5f;
    slope[1] = (4.5f * t - 5.0f) * t;
    slope[2] = (-4.5f * t + 4.0f) * t + 0.5f;
    slope[3] = (1.5f * t - 1.0f) * t;
}

template <typename T>
void interpolate(const Grid& grid, const T* positions, const int64_t* atoms, int64_t n_atoms, const float* weights,
                 const float* potential, double scale, T* gradient, double& similarity) {
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
    for (const double sum : sums) similarity += sum;
}

std::tuple<at::Tensor, at::Tensor> map_potential(const at::Tensor& positions_, const at::Tensor& atoms_,
                                                 const at::Tensor& weights_, const at::Tensor& potential,
                                                 const at::Tensor& matrix, const at::Tensor& origin, bool periodic,
                                                 const std::optional<at::Tensor>& scale) {
    const Grid grid(matrix, origin, potential.sizes(), periodic);
    const at::Tensor positions = positions_.contiguous(), atoms = atoms_.contiguous(), weights = weights_.contiguous();
    TORCH_CHECK(positions.dim() == 2 && positions.size(1) == 3, "positions must have shape (N, 3), not ",
                positions.sizes());
    TORCH_CHECK(atoms.scalar_type() == at::kLong && atoms.dim() == 1, "atoms must be int64 of shape (M,), not ",
                atoms.scalar_type(), " of shape ", atoms.sizes());
    TORCH_CHECK(weights.scalar_type() == at::kFloat && weights.sizes() == atoms.sizes(),
                "weights must be float32 of the shape of atoms, ", atoms.sizes(), ", not ", weights.scalar_type(), " of shape ",
                weights.sizes());
    TORCH_CHECK(potential.scalar_type() == at::kFloat && potential.is_contiguous(),
                "potential must be float32 and contiguous, not ", potential.scalar_type(), " with strides ", potential.strides(),
                ": pass potential.float().contiguous()");
    const int64_t* selection = atoms.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < atoms.numel(); ++i)
        TORCH_CHECK_INDEX(selection[i] >= 0 && selection[i] < positions.size(0), "atom ", selection[i],
                          " is not among the ", positions.size(0),
                          " positions: atoms are counted from 0");
    at::Tensor gradient = at::empty(positions.sizes(), positions.options());
    std::memset(gradient.mutable_data_ptr(), 0, gradient.nbytes());
    at::Tensor similarity = at::empty({}, matrix.options());
    double& value = *similarity.mutable_data_ptr<double>();
    value = 0;
    const double factor = value_of(scale);
    const float* w = weights.const_data_ptr<float>();
    const float* map = potential.const_data_ptr<float>();
    if (positions.scalar_type() == at::kDouble) {
        interpolate(grid, positions.const_data_ptr<double>(), selection, atoms.numel(), w, map, factor,
                    gradient.mutable_data_ptr<double>(), value);
    } else {
        TORCH_CHECK(positions.scalar_type() == at::kFloat, "positions must be float32 or float64, not ",
                    positions.scalar_type());
        interpolate(grid, positions.const_data_ptr<float>(), selection, atoms.numel(), w, map, factor,
                    gradient.mutable_data_ptr<float>(), value);
    }
    return {similarity, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) { m.impl("map_potential", map_potential); }

}  // namespace openmm_density
