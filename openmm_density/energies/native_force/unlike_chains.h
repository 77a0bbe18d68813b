// What keeps OpenMM's CUDA platform from comparing the chains of a complex.
//
// It sorts like molecules by their places, of use for water in a periodic box, and to find these compares each, term by term, with one
// of each kind found so far. The copies of a chain are of kinds of their own, as each is held where it was, if only by a rounding: of
// 600 all would be compared with all, term by term.

#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "openmm/HarmonicBondForce.h"
#include "openmm/System.h"
#include "openmm/common/ComputeForceInfo.h"

namespace openmm_density {

// Which particles are of chains: those that bonds and constraints join to so many that ligands, ions and waters have fewer. OpenMM's own
// ContextImpl::getMolecules would ask forces that are not initialized yet, as a CustomCVForce.
class ChainParticles {
public:
    explicit ChainParticles(const OpenMM::System& system) : parent(system.getNumParticles()) {
        std::iota(parent.begin(), parent.end(), 0);
        std::vector<int> sizes(parent.size(), 1);
        double length, k;
        int a, b;
        for (int i = 0; i < system.getNumConstraints(); i++) {
            system.getConstraintParameters(i, a, b, length);
            join(a, b, sizes);
        }
        for (int i = 0; i < system.getNumForces(); i++) {
            const auto* bonds = dynamic_cast<const OpenMM::HarmonicBondForce*>(&system.getForce(i));
            for (int j = 0; bonds != nullptr && j < bonds->getNumBonds(); j++) {
                bonds->getBondParameters(j, a, b, length, k);
                join(a, b, sizes);
            }
        }
        are_of_chains.resize(parent.size());
        for (size_t i = 0; i < parent.size(); i++)
            are_of_chains[i] = sizes[root(i)] >= LEAST;
    }

    bool operator[](int particle) const {
        return are_of_chains[particle];
    }

private:
    static constexpr int LEAST = 30;

    int root(int particle) {
        while (parent[particle] != particle)
            particle = parent[particle] = parent[parent[particle]];
        return particle;
    }

    void join(int a, int b, std::vector<int>& sizes) {
        a = root(a), b = root(b);
        if (a == b)
            return;
        if (sizes[a] < sizes[b])
            std::swap(a, b);
        parent[b] = a;
        sizes[a] += sizes[b];
    }

    std::vector<int> parent;
    std::vector<char> are_of_chains;
};

// OpenMM deletes it as its base class, which has no virtual destructor: it owns nothing.
class UnlikeChains : public OpenMM::ComputeForceInfo {
public:
    explicit UnlikeChains(const ChainParticles& chains) : chains(chains) {}

    bool areParticlesIdentical(int a, int b) override {
        return !(chains[a] && chains[b]);
    }

private:
    const ChainParticles& chains;
};

}  // namespace openmm_density
