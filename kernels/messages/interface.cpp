// A whole PaiNN on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"

#include <initializer_list>

#include "network.h"

namespace openmm_density {

extern "C" double openmm_density_painn(const TrainedNetwork& given, const double* positions, int n_threads, double* gradient) {
    const ThreadLimit limit(n_threads);
    prewake_threads();
    thread_local Edges edges;
    find_all_edges(given.n_atoms, positions, given.cutoff, static_cast<int>(given.n_basis) - 1, edges);
    const float* const* next = given.weights;
    const NetworkWeights weights = weights_in_order(given.n_kinds, given.features, given.n_basis, given.n_layers,
                                                    [&](std::initializer_list<int64_t>) { return *next++; });
    double energy = 0;
    with_features(given.features, [&](auto number) {
        Network<decltype(number)::value> network(edges, given.cutoff, weights, given.kinds);
        energy = network.evaluate();
        gather_gradient(edges, network.by_pair(), gradient);
    });
    return energy;
}

}  // namespace openmm_density
