// What a force of OpenMM calls of this operator: in its library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of whole_molecules that stay the same, which have been checked: see __init__.py.
struct Molecules {
    int64_t n_molecules;
    const int64_t* particles;
    const int64_t* order;
    const int64_t* offsets;
    const double* references;
};

// Store the positions of the particles, whole molecules beside their reference points; box vectors are in rows.
extern "C" __attribute__((visibility("default"))) void openmm_density_whole_molecules(const Molecules& molecules, const double* positions,
                                                                                      const double* box, int n_threads, double* whole);

}  // namespace openmm_density
