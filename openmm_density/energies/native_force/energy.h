// What every energy on plain memory is: a function of positions and strengths, made of a form.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "form.h"

namespace openmm_density {

// What an evaluation is of; positions (n, 3) and box vectors (3, 3, in rows) in nm.
struct Configuration {
    const double* positions;
    int64_t n_positions;
    const double* box;
    const double* strengths;
    int n_threads;
};

// Belongs to a force and serves any number of Contexts at once: it holds no scratch.
class Energy {
public:
    virtual ~Energy() = default;
    // Of how many positions, which nothing else checks.
    virtual int64_t n_positions() const = 0;
    virtual bool takes(int64_t n) const {
        return n == n_positions();
    }
    // How many numbers it reads as strengths, and stores as derivatives.
    virtual int n_strengths() const {
        return 1;
    }
    // Return the energy in kJ/mol; store the forces (n, 3) in kJ/mol/nm, and the energy's derivative with respect to each strength.
    virtual double evaluate(const Configuration& at, double* forces, double* derivatives) const = 0;
};

using EnergyPointer = std::shared_ptr<const Energy>;
inline EnergyPointer energy_of(std::shared_ptr<const Form> form);

// The energy within a form, of so many positions.
inline EnergyPointer energy_within(const Form& form, int64_t n_positions) {
    EnergyPointer found = energy_of(form.part("energy"));
    if (!found->takes(n_positions))
        form.refuse("has " + std::to_string(n_positions) + " positions for an energy of " + std::to_string(found->n_positions()));
    return found;
}

// An energy of as many positions as its form says.
class FormEnergy : public Energy {
public:
    explicit FormEnergy(std::shared_ptr<const Form> given) : form(std::move(given)) {}
    int64_t n_positions() const override {
        return static_cast<int64_t>(form->number("n_particles"));
    }

protected:
    const std::shared_ptr<const Form> form;
};

}  // namespace openmm_density
