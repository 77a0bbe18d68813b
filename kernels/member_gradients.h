// The atoms' gradients out of those of the members of groups of atoms.
//
// Every member of a group (a plane, a term of two torsions) has a gradient of its own in a buffer; an atom adds its members' in the
// order of a table. Every sum thus has one order, whatever the threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"

namespace openmm_density {
namespace {

// Write scale times the sum over the members of each of n_atoms; atom a < n_listed has the entries of atom_members from
// atom_offsets[a] up to atom_offsets[a + 1].
template <typename Real>
void add_to_atoms(const float* member_gradient, const int32_t* atom_offsets, const int32_t* atom_members, int64_t n_listed,
                  int64_t n_atoms, double scale, Real* gradient) {
    constexpr int64_t ATOMS_PER_TASK = 4096;
    parallel_for((n_atoms + ATOMS_PER_TASK - 1) / ATOMS_PER_TASK, [&](int64_t task, int) {
        const int64_t end = std::min(n_atoms, (task + 1) * ATOMS_PER_TASK);
        for (int64_t atom = task * ATOMS_PER_TASK; atom < end; ++atom) {
            float sum[3] = {0.0f, 0.0f, 0.0f};
            if (atom < n_listed)
                for (int32_t entry = atom_offsets[atom]; entry < atom_offsets[atom + 1]; ++entry)
                    for (int i = 0; i < 3; ++i) sum[i] += member_gradient[3 * int64_t{atom_members[entry]} + i];
            for (int i = 0; i < 3; ++i) gradient[3 * atom + i] = static_cast<Real>(scale * sum[i]);
        }
    });
}

}  // namespace
}  // namespace openmm_density
