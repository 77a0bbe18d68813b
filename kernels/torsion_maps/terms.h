// The energies of terms of two torsions, then the atoms' gradients, on plain memory. __init__.py has the formulas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../member_gradients.h"
#include "../parallel.h"
#include "../torsion_terms.h"

namespace openmm_density {
namespace {

constexpr int64_t TERMS_PER_TASK = 512;

// The rows of each atom among the gradients of members.
struct AtomTable {
    const int32_t* offsets;
    const int32_t* members;
    int64_t n_listed;
};

// Return the energy, and store scale times the gradient of all atoms.
template <typename Real>
double compute(const Real* positions, const Terms& terms, const AtomTable& table, double scale, int64_t n_atoms, Real* gradient) {
    // Those of the calling thread, which are all written before they are read.
    static thread_local std::vector<float> member_gradients;
    static thread_local std::vector<double> partial;
    const int64_t n_tasks = (terms.count + TERMS_PER_TASK - 1) / TERMS_PER_TASK;
    member_gradients.resize(std::max<size_t>(member_gradients.size(), 3 * ATOMS_PER_TERM * terms.count));
    partial.assign(n_tasks, 0.0);
    float* const of_members = member_gradients.data();
    double* const parts = partial.data();
    parallel_for(n_tasks, [&](int64_t task, int) {
        double energy = 0.0;
        const int64_t end = std::min(terms.count, (task + 1) * TERMS_PER_TASK);
        for (int64_t term = task * TERMS_PER_TASK; term < end; ++term)
            energy += evaluate(positions, terms, term, of_members + 3 * ATOMS_PER_TERM * term);
        parts[task] = energy;
    });

    add_to_atoms<Real>(of_members, table.offsets, table.members, table.n_listed, n_atoms, scale, gradient);
    double energy = 0.0;
    for (const double part : partial) energy += part;
    return energy;
}

}  // namespace
}  // namespace openmm_density
