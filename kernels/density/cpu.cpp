// Model density, its gradients, and similarity with forces, on the CPU: the operators, which check their arguments. similarity.h and
// splat_gather.h say how the kernels work.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

#include "../grid_tensors.h"
#include "../scale.h"
#include "interface.h"
#include "measures.h"

namespace openmm_density {
namespace {

struct Inputs {
    at::Tensor positions, amplitudes, exponents;
    double cutoff;
    int64_t count;

    Inputs(const at::Tensor& given_positions, const at::Tensor& given_amplitudes, const at::Tensor& given_exponents,
           double given_cutoff, int64_t n_atoms)
        : positions(given_positions.contiguous()),
          amplitudes(given_amplitudes.contiguous()),
          exponents(given_exponents.contiguous()),
          cutoff(given_cutoff),
          count(n_atoms) {
        TORCH_CHECK(positions.dim() == 2 && positions.size(1) == 3, "positions must have shape (N, 3), not ",
                    positions.sizes());
        TORCH_CHECK(positions.scalar_type() == at::kFloat || positions.scalar_type() == at::kDouble,
                    "positions must be float32 or float64, not ", positions.scalar_type());
        TORCH_CHECK(amplitudes.scalar_type() == at::kFloat && exponents.scalar_type() == at::kFloat,
                    "amplitudes and exponents must be float32, not ",
                    amplitudes.scalar_type(), " and ", exponents.scalar_type());
        TORCH_CHECK(amplitudes.dim() == 2 && amplitudes.size(0) == count && amplitudes.sizes() == exponents.sizes(),
                    "amplitudes and exponents must both have shape (", count, ", number of Gaussians), not ",
                    amplitudes.sizes(), " and ", exponents.sizes());
        TORCH_CHECK(amplitudes.size(1) >= 1 && amplitudes.size(1) <= MAX_GAUSSIANS, "an atom has between 1 and ",
                    MAX_GAUSSIANS, " Gaussians, not ", amplitudes.size(1));
        TORCH_CHECK(cutoff > 0 && std::isfinite(cutoff), "cutoff must be positive and finite, not ", cutoff);
        TORCH_CHECK(count < (int64_t(1) << 31), "2147483647 atoms are the most, not ", count);
    }

    AtomsOnGrid on(const at::Tensor& matrix, const at::Tensor& origin, at::IntArrayRef shape, bool periodic) const {
        return {count,
                static_cast<int>(amplitudes.size(1)),
                amplitudes.const_data_ptr<float>(),
                exponents.const_data_ptr<float>(),
                cutoff,
                matrix.const_data_ptr<double>(),
                origin.const_data_ptr<double>(),
                {shape[0], shape[1], shape[2]},
                periodic};
    }

    Points points() const {
        if (positions.scalar_type() == at::kDouble) return {nullptr, positions.const_data_ptr<double>()};
        return {positions.const_data_ptr<float>(), nullptr};
    }
};

Gradients gradients_of(const at::Tensor& gradient) {
    if (gradient.scalar_type() == at::kDouble) return {nullptr, gradient.mutable_data_ptr<double>()};
    return {gradient.mutable_data_ptr<float>(), nullptr};
}

at::Tensor density_splat(const at::Tensor& positions, const at::Tensor& amplitudes, const at::Tensor& exponents,
                         double cutoff, const at::Tensor& matrix, const at::Tensor& origin, at::IntArrayRef shape,
                         bool periodic) {
    const at::Tensor rows = matrix.contiguous(), corner = origin.contiguous();
    grid_of(rows, corner, shape, periodic);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    at::Tensor density = at::empty(shape, inputs.amplitudes.options());
    openmm_density_splat(inputs.on(rows, corner, shape, periodic), inputs.points(), density.mutable_data_ptr<float>());
    return density;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> density_gather(const at::Tensor& gradient, const at::Tensor& positions,
                                                              const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                              double cutoff, const at::Tensor& matrix,
                                                              const at::Tensor& origin, bool periodic,
                                                              bool parameters) {
    const at::Tensor rows = matrix.contiguous(), corner = origin.contiguous();
    grid_of(rows, corner, gradient.sizes(), periodic);
    TORCH_CHECK(gradient.scalar_type() == at::kFloat, "gradient must be float32, not ", gradient.scalar_type());
    const at::Tensor field = gradient.contiguous();
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    const int64_t n_gaussians = parameters ? inputs.amplitudes.size(1) : 0;
    const at::Tensor d_positions = at::empty(inputs.positions.sizes(), inputs.positions.options());
    const at::Tensor d_amplitudes = at::empty({inputs.count, n_gaussians}, inputs.amplitudes.options());
    const at::Tensor d_exponents = at::empty({inputs.count, n_gaussians}, inputs.exponents.options());
    openmm_density_gather(inputs.on(rows, corner, field.sizes(), periodic), inputs.points(), field.const_data_ptr<float>(), parameters,
                          gradients_of(d_positions), d_amplitudes.mutable_data_ptr<float>(), d_exponents.mutable_data_ptr<float>());
    return {d_positions, d_amplitudes, d_exponents};
}

std::tuple<at::Tensor, at::Tensor> density_similarity(const at::Tensor& positions, const at::Tensor& atoms,
                                                      const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                      double cutoff, const at::Tensor& target, const at::Tensor& moments,
                                                      const at::Tensor& matrix, const at::Tensor& origin, bool periodic,
                                                      int64_t measure_number, double total_weight,
                                                      const std::optional<at::Tensor>& scale) {
    const at::Tensor rows = matrix.contiguous(), corner = origin.contiguous();
    grid_of(rows, corner, target.sizes(), periodic);
    TORCH_CHECK(target.scalar_type() == at::kFloat, "target must be float32, not ", target.scalar_type());
    TORCH_CHECK(target.is_contiguous(), "target must be contiguous, but has strides ", target.strides(),
                ": pass target.contiguous()");
    TORCH_CHECK(moments.scalar_type() == at::kDouble && moments.numel() == MOMENTS && moments.is_contiguous(),
                "moments must be ", static_cast<int>(MOMENTS), " contiguous float64 numbers, not ", moments.sizes(), " of ",
                moments.scalar_type(), ": take them from target_moments");
    TORCH_CHECK(atoms.scalar_type() == at::kLong && atoms.dim() == 1, "atoms must be int64 of shape (M,), not ",
                atoms.scalar_type(), " of shape ", atoms.sizes());
    TORCH_CHECK(measure_number >= 0 && measure_number < MEASURES, "there is no measure ", measure_number,
                ": use one of the constants of openmm_density.kernels.density");
    const Measure measure = static_cast<Measure>(measure_number);
    TORCH_CHECK(total_weight > 0 || !divides_by_weight(measure),
                "the total weight must be positive, not ", total_weight);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, atoms.size(0));
    const at::Tensor selected = atoms.contiguous();
    const int64_t* selection = selected.const_data_ptr<int64_t>();
    const int64_t n_atoms = inputs.count, n_positions = inputs.positions.size(0);
    for (int64_t i = 0; i < n_atoms; ++i)
        TORCH_CHECK_INDEX(selection[i] >= 0 && selection[i] < n_positions, "atom ", selection[i], " is not among the ",
                          n_positions, " positions: atoms are counted from 0");
    const at::Tensor value = at::empty({}, moments.options());
    const at::Tensor gradient = at::empty(inputs.positions.sizes(), inputs.positions.options());
    const Comparison compared{n_atoms,
                              static_cast<int>(inputs.amplitudes.size(1)),
                              selection,
                              inputs.amplitudes.const_data_ptr<float>(),
                              inputs.exponents.const_data_ptr<float>(),
                              cutoff,
                              target.const_data_ptr<float>(),
                              moments.const_data_ptr<double>(),
                              rows.const_data_ptr<double>(),
                              corner.const_data_ptr<double>(),
                              {target.size(0), target.size(1), target.size(2)},
                              periodic,
                              static_cast<int>(measure),
                              total_weight};
    *value.mutable_data_ptr<double>() =
        openmm_density_similarity_of(compared, inputs.points(), n_positions, value_of(scale), gradients_of(gradient));
    return {value, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("density_splat", density_splat);
    m.impl("density_gather", density_gather);
    m.impl("density_similarity", density_similarity);
}

}  // namespace openmm_density
