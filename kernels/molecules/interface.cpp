// Molecules put back whole on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "whole.h"

namespace openmm_density {

extern "C" void openmm_density_whole_molecules(const Molecules& molecules, const double* positions, const double* box, int n_threads,
                                               double* whole) {
    const ThreadLimit limit(n_threads);
    shift_molecules<double>(positions, molecules.particles, molecules.order, molecules.offsets, molecules.n_molecules,
                            molecules.references, Lattice(box), whole);
}

}  // namespace openmm_density
