// The energy of a unit with its copies x' = R x + t: what symmetry_mates.py computes, in its order of operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "energy.h"

namespace openmm_density {

class SymmetryMates : public FormEnergy {
public:
    explicit SymmetryMates(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          n_atoms(form->length("atoms")),
          n_copies(form->length("rotations")),
          energy(energy_within(*form, n_copies * n_atoms)),
          atoms(form->indices<int64_t>("atoms", n_positions())),
          rotations(form->array<double>("rotations")),
          translations(form->array<double>("translations")) {
        if (form->length("translations") != n_copies)
            form->refuse("has " + std::to_string(n_copies) + " rotations with " + std::to_string(form->length("translations")) + " translations");
    }
    int n_strengths() const override {
        return energy->n_strengths();
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> copies, of_copies;
        copies.resize(3 * n_copies * n_atoms);
        of_copies.resize(3 * n_copies * n_atoms);
        for (int64_t copy = 0; copy < n_copies; ++copy) {
            const double* const R = rotations + 9 * copy;
            const double* const t = translations + 3 * copy;
            for (int64_t i = 0; i < n_atoms; ++i) {
                const double* const x = at.positions + 3 * atoms[i];
                double* const moved = copies.data() + 3 * (copy * n_atoms + i);
                for (int row = 0; row < 3; ++row) moved[row] = x[0] * R[3 * row] + x[1] * R[3 * row + 1] + x[2] * R[3 * row + 2] + t[row];
            }
        }
        const double found =
            energy->evaluate({copies.data(), n_copies * n_atoms, at.box, at.strengths, at.n_threads}, of_copies.data(), derivatives);
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t copy = 0; copy < n_copies; ++copy) {
            const double* const R = rotations + 9 * copy;
            for (int64_t i = 0; i < n_atoms; ++i) {
                const double* const f = of_copies.data() + 3 * (copy * n_atoms + i);
                double* const folded = forces + 3 * atoms[i];
                for (int column = 0; column < 3; ++column) {
                    const double back = f[0] * R[column] + f[1] * R[3 + column] + f[2] * R[6 + column];
                    folded[column] = copy == 0 ? back : folded[column] + back;
                }
            }
        }
        return found;
    }

private:
    const int64_t n_atoms;
    const int64_t n_copies;
    const EnergyPointer energy;
    const int64_t* const atoms;
    const double* const rotations;
    const double* const translations;
};

}  // namespace openmm_density
