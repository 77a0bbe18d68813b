// The similarity of a model's density and a target on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"

#include "../parallel.h"
#include "similarity.h"

namespace openmm_density {

namespace {

double compared_with(const Comparison& compared, const Points& positions, int64_t n_positions, double scale, const Gradients& gradients) {
    const Grid grid(compared.matrix, compared.origin, compared.shape, compared.periodic);
    const Atoms atoms{compared.n_atoms, compared.gaussians, compared.amplitudes, compared.exponents, compared.cutoff};
    const Target target{compared.target, compared.moments, static_cast<Measure>(compared.measure), compared.total_weight};
    return similarity(grid, atoms, compared.atoms, target, positions, n_positions, scale, gradients);
}

}  // namespace

extern "C" double openmm_density_similarity(const Comparison& compared, const double* positions, int64_t n_positions, double scale,
                                            int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    return compared_with(compared, {nullptr, positions}, n_positions, scale, {nullptr, gradient});
}

extern "C" double openmm_density_similarity_of(const Comparison& compared, const EitherPrecision& arrays, int64_t n_positions,
                                               double scale) {
    return compared_with(compared, {arrays.single_positions, arrays.positions}, n_positions, scale,
                         {arrays.single_gradient, arrays.gradient});
}

}  // namespace openmm_density
