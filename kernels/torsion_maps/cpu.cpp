// Maps of two torsions on the CPU: the operator, from checked arguments to results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdint>
#include <tuple>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../scale.h"
#include "terms.h"

namespace openmm_density {
namespace {

void check_table(const at::Tensor& table, at::ScalarType type, at::IntArrayRef shape, const char* name) {
    TORCH_CHECK_VALUE(table.sizes() == shape && table.scalar_type() == type && table.is_contiguous(), "torsion_maps: ", name,
                      " must be a contiguous tensor of ", type, " of shape ", shape, ", but has shape ", table.sizes(), " and type ",
                      table.scalar_type(), ": take all tables from one pack_torsions");
}

void check_entries(const at::Tensor& table, int64_t limit, const char* name, const char* of) {
    const int32_t* const entries = table.const_data_ptr<int32_t>();
    for (int64_t i = 0; i < table.numel(); ++i)
        TORCH_CHECK_VALUE(entries[i] >= 0 && entries[i] < limit, "torsion_maps: ", name, " holds index ", entries[i], ", but there are ",
                          limit, " ", of, ": give the positions and maps that the terms were packed for");
}

void check_offsets(const at::Tensor& offsets, int64_t total) {
    const int64_t n = offsets.numel();
    const int32_t* const values = offsets.const_data_ptr<int32_t>();
    bool rises = n > 0 && values[0] == 0 && values[n - 1] == total;
    for (int64_t i = 1; i < n; ++i) rises &= values[i] >= values[i - 1];
    TORCH_CHECK_VALUE(rises, "torsion_maps: atom_offsets must rise from 0 to ", total, ": take it from pack_torsions");
}

std::tuple<at::Tensor, at::Tensor> torsion_maps(const at::Tensor& positions, const at::Tensor& members, const at::Tensor& map_of_term,
                                                const at::Tensor& handedness, const at::Tensor& atom_offsets,
                                                const at::Tensor& atom_members, const at::Tensor& nodes,
                                                const std::optional<at::Tensor>& scale) {
    const at::ScalarType type = positions.scalar_type();
    TORCH_CHECK_VALUE(positions.dim() == 2 && positions.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "torsion_maps: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ",
                      positions.sizes(), " and type ", type);
    const int64_t n_terms = map_of_term.numel(), n_members = ATOMS_PER_TERM * n_terms;
    check_table(members, at::kInt, {n_terms, ATOMS_PER_TERM}, "members");
    check_table(map_of_term, at::kInt, {n_terms}, "map_of_term");
    check_table(handedness, at::kFloat, {n_terms}, "handedness");
    check_table(atom_offsets, at::kInt, {atom_offsets.numel()}, "atom_offsets");
    check_table(atom_members, at::kInt, {n_members}, "atom_members");
    TORCH_CHECK_VALUE(nodes.dim() == 4 && nodes.size(1) == nodes.size(2) && nodes.size(1) > 0 && nodes.size(3) == 4 &&
                          nodes.scalar_type() == at::kFloat && nodes.is_contiguous(),
                      "torsion_maps: nodes must be a contiguous tensor of float32 of shape (maps, n, n, 4), but have shape ",
                      nodes.sizes(), " and type ", nodes.scalar_type(), ": take them from spline_nodes");
    check_offsets(atom_offsets, n_members);
    check_entries(members, positions.size(0), "members", "positions");
    check_entries(map_of_term, nodes.size(0), "map_of_term", "maps");
    check_entries(atom_members, n_members, "atom_members", "members");

    const at::Tensor x = positions.contiguous();
    at::Tensor gradient = at::empty({x.size(0), 3}, x.options());
    at::Tensor energy = at::empty({}, x.options().dtype(at::kDouble));
    const Terms terms{members.const_data_ptr<int32_t>(), map_of_term.const_data_ptr<int32_t>(), handedness.const_data_ptr<float>(),
                      n_terms, nodes.const_data_ptr<float>(), nodes.size(1)};
    const double factor = value_of(scale);
    const AtomTable table{atom_offsets.const_data_ptr<int32_t>(), atom_members.const_data_ptr<int32_t>(), atom_offsets.numel() - 1};
    *energy.data_ptr<double>() =
        type == at::kFloat
            ? compute(x.const_data_ptr<float>(), terms, table, factor, x.size(0), gradient.data_ptr<float>())
            : compute(x.const_data_ptr<double>(), terms, table, factor, x.size(0), gradient.data_ptr<double>());
    return {energy, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) { m.impl("torsion_maps", &torsion_maps); }

}  // namespace openmm_density
