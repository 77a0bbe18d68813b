// The contacts of a unit with its symmetry mates: what mate_contacts.py computes, by the same kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "energy.h"

#include "pairs/interface.h"

namespace openmm_density {

class MateContacts : public FormEnergy {
public:
    explicit MateContacts(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_mate_contacts)>()),
          settings{form->number("switch_from"), form->number("coulomb"), form->number("dielectric")},
          contacts{form->length("spheres"),  form->array<float>("spheres"),     form->length("images"), form->array<double>("images"),
                   form->length("excluded"), form->array<int32_t>("excluded"), form->number("reach"),  settings} {
        if (contacts.n_atoms != n_positions() || !(contacts.cutoff > 0 && std::isfinite(contacts.cutoff)))
            form->refuse("has " + std::to_string(contacts.n_atoms) + " spheres of " + std::to_string(n_positions()) + " particles");
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        const double k = at.strengths[0];
        derivatives[0] = kernel(contacts, at.positions, at.n_positions, -k, at.n_threads, forces);
        return k * derivatives[0];
    }

private:
    decltype(openmm_density_mate_contacts)* const kernel;
    const double settings[3];
    const Contacts contacts;
};

}  // namespace openmm_density
