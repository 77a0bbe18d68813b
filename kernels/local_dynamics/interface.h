// What moves some atoms among fixed ones: minimisation and dynamics with an energy of few atoms, on plain memory. __init__.py has the
// formulas.
#pragma once

#include <cstdint>

namespace openmm_density {

// Maps of two torsions, as torsion_maps lays them out: terms of five atoms, and splines of n by n nodes.
struct LocalMaps {
    int64_t count;
    const int32_t* members;
    const int32_t* map_of_term;
    const float* handedness;
    const float* nodes;
    int64_t n;
    double scale;
};

// Atoms, those that move before those that do not, and the terms of their energy; in nm, ps, dalton and kJ/mol.
struct LocalTerms {
    int64_t n_moving, n_atoms;
    const double* masses;  // of those that move
    int64_t n_bonds;
    const int32_t* bonds;           // (n, 2)
    const double* bond_parameters;  // (n, 2): length, k
    int64_t n_angles;
    const int32_t* angles;           // (n, 3)
    const double* angle_parameters;  // (n, 2): angle, k
    int64_t n_torsions;
    const int32_t* torsions;           // (n, 4)
    const double* torsion_parameters;  // (n, 3): periodicity, phase, k
    int64_t n_held;
    const int32_t* held;           // (n, 4)
    const double* held_parameters;  // (n, 3): target, tolerance, k
    LocalMaps ramachandran, cmap;
    // Of all atoms; a pair's radius is the sum of both, less allowance where both are polar.
    const float *radii, *polar, *weights;
    // Atoms that an atom that moves is in no pair with: those from excluded_offsets[a] up to excluded_offsets[a + 1], ascending.
    const int32_t *excluded_offsets, *excluded;
    double cutoff, repulsion, allowance, width, overlapping;
    // Coefficients of cubic B-splines on a grid [z, y, x], and the place of a point in it, in voxels: to_index (3, 3) times the point
    // plus shift, both in the order z, y, x. Beyond low and high nothing is there.
    const float* coefficients;
    int64_t shape[3];
    double to_index[9], shift[3], low[3], high[3];
    double slope;
};

#define OPENMM_DENSITY_LOCAL extern "C" __attribute__((visibility("default")))

// Return the energy at positions (n_atoms, 3), and store its gradient with respect to those that move.
OPENMM_DENSITY_LOCAL double openmm_density_local_energy(const LocalTerms& terms, const double* positions, double hardness,
                                                        double* gradient);

// Move positions to a lower energy in so many iterations at most, or until the root mean square of the gradient is below tolerance;
// return the energy.
OPENMM_DENSITY_LOCAL double openmm_density_local_minimize(const LocalTerms& terms, double* positions, double hardness, int64_t iterations,
                                                          double tolerance);

// Take so many steps with positions and velocities (n_moving, 3).
OPENMM_DENSITY_LOCAL void openmm_density_local_steps(const LocalTerms& terms, double* positions, double* velocities, double hardness,
                                                     int64_t steps, double timestep);

}  // namespace openmm_density
