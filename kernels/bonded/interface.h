// What the CPU platform calls in place of OpenMM's own kernels: in their library, by name.
#pragma once

#include <cstdint>

namespace openmm_density {

// Most periods of a torsion in a turn that are served.
constexpr int MOST_PERIODS = 6;

// Terms of one kind, in the order in which they are evaluated.
struct BondedTerms {
    virtual ~BondedTerms() = default;
    // Return the energy, and add the forces (n, 3).
    virtual double evaluate(const double* positions, int n_threads, double* forces) const = 0;
};

// Angles (n, 3), with (n, 2) ideal angles and force constants; the caller's to delete.
extern "C" __attribute__((visibility("default"))) BondedTerms* openmm_density_angles(int64_t n, const int32_t* atoms,
                                                                                     const double* parameters);

// Torsions (n, 4), with their periodicities, from 1 to MOST_PERIODS, and (n, 2) phases and force constants; the caller's to delete.
extern "C" __attribute__((visibility("default"))) BondedTerms* openmm_density_torsions(int64_t n, const int32_t* atoms,
                                                                                       const int32_t* periodicities,
                                                                                       const double* parameters);

}  // namespace openmm_density
