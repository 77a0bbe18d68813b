// A network's weights, in the order in which the operator takes them (see __init__.py).
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

namespace openmm_density {
namespace {

constexpr int WEIGHTS_OF_ALL = 6, WEIGHTS_OF_A_LAYER = 15;

// A matrix from inputs to outputs, its transpose, and what is added.
struct Dense {
    const float *matrix, *transposed, *bias;
};

struct LayerWeights {
    Dense first, second;  // F -> F -> 3 F
    const float* filter;  // n_basis x 3 F
    Dense mix;            // F -> 2 F
    Dense third, fourth;  // 2 F -> F -> 3 F
};

struct NetworkWeights {
    const float* embedding;  // kinds x F
    int64_t n_kinds;
    Dense readout;  // F -> F / 2
    const float *last, *last_bias;
    std::vector<LayerWeights> layers;
};

// What `take({rows, columns})`, or of a vector `take({length})`, returns one after the other.
template <typename Take>
NetworkWeights weights_in_order(int64_t n_kinds, int64_t features, int64_t n_basis, int64_t n_layers, const Take& take) {
    const int64_t f = features;
    const auto dense = [&](int64_t from, int64_t to, bool biased) {
        Dense found;
        found.matrix = take({from, to});
        found.transposed = take({to, from});
        found.bias = biased ? take({to}) : nullptr;
        return found;
    };
    NetworkWeights found;
    found.n_kinds = n_kinds;
    found.embedding = take({n_kinds, f});
    found.readout = dense(f, f / 2, true);
    found.last = take({f / 2});
    found.last_bias = take({1});
    for (int64_t l = 0; l < n_layers; ++l) {
        LayerWeights layer;
        layer.first = dense(f, f, true);
        layer.second = dense(f, 3 * f, true);
        layer.filter = take({n_basis, 3 * f});
        layer.mix = dense(f, 2 * f, false);
        layer.third = dense(2 * f, f, true);
        layer.fourth = dense(f, 3 * f, true);
        found.layers.push_back(layer);
    }
    return found;
}

// Call f with the number of features, 32, 64 or 128, as a type.
template <typename Function>
void with_features(int64_t features, const Function& f) {
    if (features == 32)
        f(std::integral_constant<int, 32>());
    else if (features == 64)
        f(std::integral_constant<int, 64>());
    else
        f(std::integral_constant<int, 128>());
}

}  // namespace
}  // namespace openmm_density
