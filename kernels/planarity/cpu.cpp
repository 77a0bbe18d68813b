// Planarity on the CPU: the operator, from checked arguments to results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../scale.h"
#include "planes.h"

namespace openmm_density {
namespace {

void check_table(const at::Tensor& table, at::ScalarType type, const char* name) {
    TORCH_CHECK_VALUE(table.dim() == 1 && table.scalar_type() == type && table.is_contiguous(), "planarity: ", name,
                      " must be a contiguous one-dimensional tensor of ", type, ", but has shape ", table.sizes(), " and type ",
                      table.scalar_type(), ": take it from pack_planes");
}

void check_entries(const at::Tensor& table, int64_t limit, const char* name, const char* of) {
    const int32_t* const entries = table.const_data_ptr<int32_t>();
    const int64_t n = table.numel();
    int32_t wrong = 0;
#pragma omp simd reduction(+ : wrong)
    for (int64_t i = 0; i < n; ++i) wrong += entries[i] < 0 || entries[i] >= limit;
    if (wrong == 0) return;
    const int32_t first = *std::find_if(entries, entries + n, [&](int32_t entry) { return entry < 0 || entry >= limit; });
    TORCH_CHECK_VALUE(false, "planarity: ", name, " holds index ", first, ", but there are ", limit, " ", of,
                      ": give the positions of all atoms that the planes were packed for");
}

void check_offsets(const at::Tensor& offsets, int64_t total, int32_t smallest_step, const char* name) {
    const int64_t n = offsets.numel();
    const int32_t* const values = offsets.const_data_ptr<int32_t>();
    int32_t steps_too_small = 0;
#pragma omp simd reduction(+ : steps_too_small)
    for (int64_t i = 1; i < n; ++i) steps_too_small += int64_t{values[i]} - values[i - 1] < smallest_step;
    const bool rises = n > 0 && values[0] == 0 && values[n - 1] == total && steps_too_small == 0;
    TORCH_CHECK_VALUE(rises, "planarity: ", name, " must rise from 0 to ", total, " in steps of at least ", smallest_step,
                      ": take it from pack_planes");
}

std::tuple<at::Tensor, at::Tensor> planarity(const at::Tensor& positions, const at::Tensor& members, const at::Tensor& offsets,
                                             const at::Tensor& inverse_sigmas, const at::Tensor& atom_offsets,
                                             const at::Tensor& atom_members, bool constants,
                                             const std::optional<at::Tensor>& scale) {
    const at::ScalarType type = positions.scalar_type();
    TORCH_CHECK_VALUE(positions.dim() == 2 && positions.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "planarity: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ",
                      positions.sizes(), " and type ", type);
    check_table(members, at::kInt, "members");
    check_table(offsets, at::kInt, "offsets");
    check_table(inverse_sigmas, at::kFloat, "inverse_sigmas");
    check_table(atom_offsets, at::kInt, "atom_offsets");
    check_table(atom_members, at::kInt, "atom_members");
    const int64_t n_members = members.numel();
    TORCH_CHECK_VALUE(inverse_sigmas.numel() == n_members && atom_members.numel() == n_members, "planarity: ", n_members,
                      " members need as many inverse_sigmas and atom_members, but there are ", inverse_sigmas.numel(), " and ",
                      atom_members.numel(), ": take all tables from one pack_planes");
    check_offsets(offsets, n_members, SMALLEST_PLANE, "offsets");
    check_offsets(atom_offsets, n_members, 0, "atom_offsets");
    check_entries(members, positions.size(0), "members", "positions");
    check_entries(atom_members, n_members, "atom_members", "members");

    const at::Tensor x = positions.contiguous();
    at::Tensor gradient = at::empty({x.size(0), 3}, x.options());
    at::Tensor energy = at::empty({}, x.options().dtype(at::kDouble));
    const AtomTable table{atom_offsets.const_data_ptr<int32_t>(), atom_members.const_data_ptr<int32_t>(), atom_offsets.numel() - 1};
    const Planes planes{members.const_data_ptr<int32_t>(), offsets.const_data_ptr<int32_t>(),
                        inverse_sigmas.const_data_ptr<float>(), offsets.numel() - 1};
    const double factor = value_of(scale);
    *energy.data_ptr<double>() = type == at::kFloat ? compute(x.const_data_ptr<float>(), planes, table, constants, factor, x.size(0),
                                                              gradient.data_ptr<float>())
                                                    : compute(x.const_data_ptr<double>(), planes, table, constants, factor, x.size(0),
                                                              gradient.data_ptr<double>());
    return {energy, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) { m.impl("planarity", &planarity); }

}  // namespace openmm_density
