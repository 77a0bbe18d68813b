// A model's density, its gradients, and its similarity to a target on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"

#include "../parallel.h"
#include "similarity.h"
#include "splat_gather.h"

namespace openmm_density {

namespace {

Grid grid_of(const AtomsOnGrid& given) { return Grid(given.matrix, given.origin, given.shape, given.periodic); }

Atoms atoms_of(const AtomsOnGrid& given) {
    return {given.n_atoms, given.gaussians, given.amplitudes, given.exponents, given.cutoff};
}

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

extern "C" double openmm_density_similarity_of(const Comparison& compared, const Points& positions, int64_t n_positions, double scale,
                                               const Gradients& gradients) {
    return compared_with(compared, positions, n_positions, scale, gradients);
}

extern "C" void openmm_density_splat(const AtomsOnGrid& given, const Points& positions, float* density) {
    splat(grid_of(given), atoms_of(given), positions, density);
}

extern "C" void openmm_density_gather(const AtomsOnGrid& given, const Points& positions, const float* field, bool parameters,
                                      const Gradients& to_positions, float* to_amplitudes, float* to_exponents) {
    gather(grid_of(given), atoms_of(given), positions, field, parameters, to_positions, to_amplitudes, to_exponents);
}

}  // namespace openmm_density
