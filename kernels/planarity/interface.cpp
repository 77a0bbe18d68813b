// Planarity on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "planes.h"

namespace openmm_density {

extern "C" double openmm_density_planarity(const FlatGroups& groups, const double* positions, int64_t n_positions, double scale,
                                           int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    const Planes planes{groups.members, groups.offsets, groups.inverse_sigmas, groups.count};
    const AtomTable table{groups.atom_offsets, groups.atom_members, groups.n_listed};
    return compute(positions, planes, table, groups.constants, scale, n_positions, gradient);
}

}  // namespace openmm_density
