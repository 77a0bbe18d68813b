// What a force of OpenMM calls of these operators: in their library, by name, on the memory of tensors that the operator takes.
#pragma once

#include <cstdint>
#include <memory>

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

// All pairs of a System without a box: the arguments that stay the same, see openmm_density/energies/native_force/nonbonded.h.
struct NonbondedPairs {
    int64_t n_atoms;
    const float* spheres;  // (n, 3): sigma, epsilon, charge
    const int32_t *excluded_offsets, *excluded;
    int64_t n_exceptions;
    const int32_t* exceptions;          // (n, 2)
    const float* exception_parameters;  // (n, 3): sigma, epsilon, product of charges
    double cutoff;
    const double* settings;  // of `pairs`: the cut-off again, for no switch, Coulomb's constant, dielectric constant beyond
};

// What is kept from one evaluation to the next: the list of pairs.
struct PairMemory {
    virtual ~PairMemory() = default;
};

// Return the energy and add the forces (n, 3); `memory` is null at first.
extern "C" __attribute__((visibility("default"))) double openmm_density_nonbonded(const NonbondedPairs& given, std::unique_ptr<PairMemory>& memory,
                                                                                  const double* positions, int n_threads, double* forces);

}  // namespace openmm_density
