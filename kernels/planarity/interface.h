// What a force of OpenMM calls of this operator: in its library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of planarity that stay the same, which have been checked: see __init__.py.
struct FlatGroups {
    int64_t count;
    const int32_t* members;
    const int32_t* offsets;
    const float* inverse_sigmas;
    int64_t n_listed;
    const int32_t* atom_offsets;
    const int32_t* atom_members;
    bool constants;
};

// Return the negative log likelihood, and store scale times its gradient for all positions.
extern "C" __attribute__((visibility("default"))) double openmm_density_planarity(const FlatGroups& groups, const double* positions,
                                                                                  int64_t n_positions, double scale, int n_threads,
                                                                                  double* gradient);

}  // namespace openmm_density
