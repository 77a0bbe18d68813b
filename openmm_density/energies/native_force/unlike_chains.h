// What keeps OpenMM's platforms of GPUs from comparing the chains of a complex.
//
// They sort like molecules by their places, of use for water in a periodic box, and to find these compare each with all those before it
// that are unlike, term by term. The copies of a chain are unlike, as each is held where it was, if only by a rounding: to find that
// out of 600 took most of a Context's time.

#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "openmm/HarmonicBondForce.h"
#include "openmm/System.h"
#include "openmm/common/ComputeForceInfo.h"

namespace openmm_density {

class UnlikeChains : public OpenMM::ComputeForceInfo {
public:
    explicit UnlikeChains(const OpenMM::System& system) : parent(system.getNumParticles()), sizes(parent.size(), 1) {
        std::iota(parent.begin(), parent.end(), 0);
        for (int i = 0; i < system.getNumForces(); i++) {
            const auto* bonds = dynamic_cast<const OpenMM::HarmonicBondForce*>(&system.getForce(i));
            for (int j = 0; bonds != nullptr && j < bonds->getNumBonds(); j++) {
                int a, b;
                double length, k;
                bonds->getBondParameters(j, a, b, length, k);
                join(a, b);
            }
        }
    }

    bool areParticlesIdentical(int a, int b) override {
        return sizes[root(a)] < CHAIN && sizes[root(b)] < CHAIN;
    }

private:
    // Bonded atoms of a chain, at least: ligands, ions and waters are fewer.
    static constexpr int CHAIN = 200;

    int root(int atom) {
        while (parent[atom] != atom)
            atom = parent[atom] = parent[parent[atom]];
        return atom;
    }

    void join(int a, int b) {
        a = root(a), b = root(b);
        if (a == b)
            return;
        if (sizes[a] < sizes[b])
            std::swap(a, b);
        parent[b] = a;
        sizes[a] += sizes[b];
    }

    std::vector<int> parent, sizes;
};

}  // namespace openmm_density
