// What a force of OpenMM calls of this operator: in its library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of torsion_maps that stay the same, which have been checked: see __init__.py.
struct TorsionTerms {
    int64_t count;
    const int32_t* members;
    const int32_t* map_of_term;
    const float* handedness;
    int64_t n_listed;
    const int32_t* atom_offsets;
    const int32_t* atom_members;
    const float* nodes;
    int64_t n;  // of a map, along each angle
};

// Return the energy, and store scale times its gradient for all positions.
extern "C" __attribute__((visibility("default"))) double openmm_density_torsion_maps(const TorsionTerms& given, const double* positions,
                                                                                     int64_t n_positions, double scale, int n_threads,
                                                                                     double* gradient);

}  // namespace openmm_density
