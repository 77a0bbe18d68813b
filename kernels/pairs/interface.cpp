// Contacts of a unit with its mates on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "blocks.h"
#include "mates.h"

namespace openmm_density {

extern "C" double openmm_density_mate_contacts(const Contacts& given, const double* positions, int64_t n_positions, double scale,
                                               int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    for (int64_t i = 3 * given.n_atoms; i < 3 * n_positions; ++i) gradient[i] = 0;
    return mate_contacts(given, positions, scale, gradient);
}

extern "C" double openmm_density_nonbonded(const NonbondedPairs& given, std::unique_ptr<PairMemory>& memory, const double* positions,
                                           int n_threads, double* forces) {
    const ThreadLimit limit(n_threads);
    if (memory == nullptr) memory = std::make_unique<BlockList>();
    return static_cast<BlockList&>(*memory).evaluate(given, positions, forces);
}

}  // namespace openmm_density
