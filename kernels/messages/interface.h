// What a force of OpenMM calls of this operator: in its library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of painn that stay the same, which have been checked: see __init__.py. All atoms within the cut-off are neighbours.
struct TrainedNetwork {
    int64_t n_atoms;
    const int32_t* kinds;
    int64_t n_kinds;
    int64_t features;
    int64_t n_basis;  // radial functions, and a constant
    int64_t n_layers;
    const float* const* weights;
    double cutoff;
};

// Return the energy, and store its gradient (n_atoms, 3).
extern "C" __attribute__((visibility("default"))) double openmm_density_painn(const TrainedNetwork& network, const double* positions,
                                                                              int n_threads, double* gradient);

}  // namespace openmm_density
