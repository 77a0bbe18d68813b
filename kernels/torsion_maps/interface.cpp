// Maps of two torsions on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "terms.h"

namespace openmm_density {

extern "C" double openmm_density_torsion_maps(const TorsionTerms& given, const double* positions, int64_t n_positions, double scale,
                                              int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    const Terms terms{given.members, given.map_of_term, given.handedness, given.count, given.nodes, given.n};
    const AtomTable table{given.atom_offsets, given.atom_members, given.n_listed};
    return compute(positions, terms, table, scale, n_positions, gradient);
}

}  // namespace openmm_density
