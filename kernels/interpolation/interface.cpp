// A map interpolated at the atoms on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "potential.h"

namespace openmm_density {

extern "C" double openmm_density_map_potential(const Potential& potential, const double* positions, int64_t n_positions, double scale,
                                               int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    const Grid grid(potential.matrix, potential.origin, potential.shape, potential.periodic);
    std::fill_n(gradient, 3 * n_positions, 0.0);
    return interpolate(grid, positions, potential.atoms, potential.n_atoms, potential.weights, potential.voxels, scale, gradient);
}

}  // namespace openmm_density
