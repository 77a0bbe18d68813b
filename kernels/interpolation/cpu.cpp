// A map interpolated at the atoms, and its gradient, on the CPU: 64 voxels per atom, in chunks of atoms that do not depend on the threads.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../grid_tensors.h"
#include "../scale.h"
#include "potential.h"

namespace openmm_density {
namespace {

std::tuple<at::Tensor, at::Tensor> map_potential(const at::Tensor& positions_, const at::Tensor& atoms_,
                                                 const at::Tensor& weights_, const at::Tensor& potential,
                                                 const at::Tensor& matrix, const at::Tensor& origin, bool periodic,
                                                 const std::optional<at::Tensor>& scale) {
    const Grid grid = grid_of(matrix, origin, potential.sizes(), periodic);
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
    const double factor = value_of(scale);
    const float* w = weights.const_data_ptr<float>();
    const float* map = potential.const_data_ptr<float>();
    if (positions.scalar_type() == at::kDouble) {
        value = interpolate(grid, positions.const_data_ptr<double>(), selection, atoms.numel(), w, map, factor,
                            gradient.mutable_data_ptr<double>());
    } else {
        TORCH_CHECK(positions.scalar_type() == at::kFloat, "positions must be float32 or float64, not ",
                    positions.scalar_type());
        value = interpolate(grid, positions.const_data_ptr<float>(), selection, atoms.numel(), w, map, factor,
                            gradient.mutable_data_ptr<float>());
    }
    return {similarity, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) { m.impl("map_potential", map_potential); }

}  // namespace openmm_density
