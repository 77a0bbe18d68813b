// What a force of OpenMM calls of these operators: in their library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of mate_contacts that stay the same, which have been checked: see __init__.py.
struct Contacts {
    int64_t n_atoms;
    const float* parameters;
    int64_t n_images;
    const double* images;
    int64_t n_excluded;
    const int32_t* excluded;
    double cutoff;
    const double* settings;
};

// Return the energy of a unit, and store scale times its gradient for all positions.
extern "C" __attribute__((visibility("default"))) double openmm_density_mate_contacts(const Contacts& given, const double* positions,
                                                                                      int64_t n_positions, double scale, int n_threads,
                                                                                      double* gradient);

}  // namespace openmm_density
