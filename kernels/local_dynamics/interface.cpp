// Some atoms among fixed ones: what interface.h declares.

#include "interface.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "energy.h"
#include "minimizer.h"

namespace openmm_density {

double openmm_density_local_energy(const LocalTerms& terms, const double* positions, double hardness, double* gradient) {
    return LocalEnergy(terms, positions)(positions, hardness, gradient);
}

double openmm_density_local_minimize(const LocalTerms& terms, double* positions, double hardness, int64_t iterations, double tolerance) {
    const int64_t size = 3 * terms.n_moving;
    LocalEnergy energy(terms, positions);
    std::vector<double> all(positions, positions + 3 * terms.n_atoms), x(positions, positions + size);
    const double value = minimize(x, iterations, tolerance * std::sqrt(static_cast<double>(size)), [&](const double* at, double* gradient) {
        std::copy(at, at + size, all.begin());
        return energy(all.data(), hardness, gradient);
    });
    std::copy(x.begin(), x.end(), positions);
    return value;
}

void openmm_density_local_steps(const LocalTerms& terms, double* positions, double* velocities, double hardness, int64_t steps,
                                double timestep) {
    LocalEnergy energy(terms, positions);
    std::vector<double> gradient(3 * terms.n_moving);
    for (int64_t step = 0; step < steps; ++step) {
        energy(positions, hardness, gradient.data());
        for (int64_t k = 0; k < 3 * terms.n_moving; ++k) {
            velocities[k] -= timestep * gradient[k] / terms.masses[k / 3];
            positions[k] += timestep * velocities[k];
        }
    }
}

}  // namespace openmm_density
