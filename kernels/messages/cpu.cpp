// A network of PaiNN on the CPU: the operator, from checked arguments to results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in steps, beside the threads of OpenMM
#include "network.h"

namespace openmm_density {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check_table(const char* op, const at::Tensor& table, at::ScalarType type, at::IntArrayRef shape, const char* name) {
    TORCH_CHECK_VALUE(table.sizes() == shape && table.scalar_type() == type && table.is_contiguous(), op, ": ", name,
                      " must be a contiguous tensor of ", type, " of shape ", shape, ", not ", table.scalar_type(), " of shape ",
                      table.sizes());
}

void check_features(const char* op, int64_t features) {
    TORCH_CHECK_VALUE(features == 32 || features == 64 || features == 128, op, ": there may be 32, 64 or 128 features, not ", features);
}

int64_t radial_functions_of(const at::Tensor& filter) { return filter.dim() == 2 ? filter.size(0) - 1 : 0; }

Edges edges_of(const char* op, const at::Tensor& positions_, const OptionalTensor& box, const at::Tensor& offsets, const at::Tensor& neighbors,
               const at::Tensor& shifts, int64_t n_radial, double cutoff) {
    const at::ScalarType type = positions_.scalar_type();
    TORCH_CHECK_VALUE(positions_.dim() == 2 && positions_.size(1) == 3 && (type == at::kFloat || type == at::kDouble), op,
                      ": positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ", positions_.sizes(),
                      " and type ", type);
    const int64_t n = positions_.size(0), room = neighbors.numel();
    check_table(op, offsets, at::kInt, {n + 1}, "offsets");
    check_table(op, neighbors, at::kInt, {room}, "neighbors");
    check_table(op, shifts, at::kInt, {room}, "shifts");
    const int32_t* const steps = offsets.const_data_ptr<int32_t>();
    bool rises = steps[0] == 0 && steps[n] <= room;
    for (int64_t i = 0; i < n; ++i) rises &= steps[i] <= steps[i + 1];
    TORCH_CHECK_VALUE(rises, op, ": offsets must rise from 0 to ", room, " at most");
    TORCH_CHECK_VALUE(std::isfinite(cutoff) && cutoff > 0, op, ": cutoff must be a positive length, not ", cutoff);
    TORCH_CHECK_VALUE(n_radial >= 1 && n_radial < MOST_BASIS, op, ": there may be 1 to ", MOST_BASIS - 1, " radial functions, not ", n_radial);
    double vectors[9];
    if (box) {
        TORCH_CHECK_VALUE(box->dim() == 2 && box->size(0) == 3 && box->size(1) == 3 &&
                              (box->scalar_type() == at::kFloat || box->scalar_type() == at::kDouble),
                          op, ": box must be a float32 or float64 tensor of shape (3, 3), not ", box->scalar_type(), " of shape ", box->sizes());
        const at::Tensor rows = box->to(at::kDouble).contiguous();
        std::memcpy(vectors, rows.const_data_ptr<double>(), sizeof(vectors));
    }
    const at::Tensor positions = positions_.contiguous();
    const List list{n, steps, neighbors.const_data_ptr<int32_t>(), shifts.const_data_ptr<int32_t>()};
    Edges edges;
    const Fault fault = type == at::kDouble
                            ? find_edges(list, positions.const_data_ptr<double>(), box ? vectors : nullptr, cutoff, n_radial, edges)
                            : find_edges(list, positions.const_data_ptr<float>(), box ? vectors : nullptr, cutoff, n_radial, edges);
    TORCH_CHECK_VALUE(fault != Fault::INDEX, op, ": neighbors holds an index that is none of the ", n, " atoms'");
    TORCH_CHECK_VALUE(fault != Fault::ONE_WAY, op, ": the list must have every pair both ways: make it with both_ways");
    return edges;
}

at::Tensor gradient_of(const Edges& edges, const float* by_pair, const at::Tensor& positions) {
    at::Tensor gradient = at::empty({positions.size(0), 3}, positions.options());
    if (positions.scalar_type() == at::kDouble)
        gather_gradient(edges, by_pair, gradient.mutable_data_ptr<double>());
    else
        gather_gradient(edges, by_pair, gradient.mutable_data_ptr<float>());
    return gradient;
}

// The weights in the order of the operator's documentation.
NetworkWeights weights_of(const at::TensorList weights, int64_t features, int64_t n_basis) {
    size_t next = 0;
    const int64_t n_layers = (weights.size() - WEIGHTS_OF_ALL) / WEIGHTS_OF_A_LAYER;
    return weights_in_order(weights[0].size(0), features, n_basis, n_layers, [&](at::IntArrayRef shape) {
        const at::Tensor& tensor = weights[next++];
        TORCH_CHECK_VALUE(tensor.sizes() == shape && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), "painn: weight ", next - 1,
                          " must be a contiguous tensor of ", at::kFloat, " of shape ", shape, ", not ", tensor.scalar_type(), " of shape ",
                          tensor.sizes());
        return tensor.const_data_ptr<float>();
    });
}

std::tuple<at::Tensor, at::Tensor> painn(const at::Tensor& positions, const OptionalTensor& box, const at::Tensor& offsets,
                                         const at::Tensor& neighbors, const at::Tensor& shifts, const at::Tensor& kinds, at::TensorList weights,
                                         double cutoff) {
    prewake_threads();
    TORCH_CHECK_VALUE(weights.size() > WEIGHTS_OF_ALL && (weights.size() - WEIGHTS_OF_ALL) % WEIGHTS_OF_A_LAYER == 0,
                      "painn: there must be ", WEIGHTS_OF_ALL, " weights and ", WEIGHTS_OF_A_LAYER, " for each layer, not ", weights.size());
    TORCH_CHECK_VALUE(weights[0].dim() == 2, "painn: weight 0 must have a row for each kind of atom");
    const int64_t features = weights[0].size(1), n_basis = radial_functions_of(weights[WEIGHTS_OF_ALL + 6]) + 1;
    check_features("painn", features);
    const NetworkWeights found = weights_of(weights, features, n_basis);
    Edges edges = edges_of("painn", positions, box, offsets, neighbors, shifts, n_basis - 1, cutoff);
    check_table("painn", kinds, at::kInt, {edges.n_atoms}, "kinds");
    const int32_t* const numbers = kinds.const_data_ptr<int32_t>();
    for (int64_t i = 0; i < edges.n_atoms; ++i)
        TORCH_CHECK_VALUE(numbers[i] >= 0 && numbers[i] < found.n_kinds, "painn: kinds holds ", numbers[i], ", but there are ", found.n_kinds,
                          " kinds");
    at::Tensor energy = at::empty({}, positions.options().dtype(at::kDouble)), gradient;
    with_features(features, [&](auto number) {
        Network<decltype(number)::value> network(edges, cutoff, found, numbers);
        *energy.mutable_data_ptr<double>() = network.evaluate();
        gradient = gradient_of(edges, network.by_pair(), positions);
    });
    return {energy, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("painn", painn);
}

}  // namespace openmm_density
