// Bonded terms on plain memory, without torch: what interface.h declares.

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "interface.h"
#include "angles.h"
#include "blocks.h"
#include "torsions.h"

namespace openmm_density {

extern "C" BondedTerms* openmm_density_angles(int64_t n, const int32_t* atoms, const double* parameters) {
    std::vector<Angle> terms(n);
    for (int64_t i = 0; i < n; ++i) terms[i] = Angle(atoms + 3 * i, parameters[2 * i], parameters[2 * i + 1]);
    return new Blocks<Angle>(std::move(terms));
}

extern "C" BondedTerms* openmm_density_torsions(int64_t n, const int32_t* atoms, const int32_t* periodicities, const double* parameters) {
    std::vector<Torsion> terms(n);
    for (int64_t i = 0; i < n; ++i)
        terms[i] = Torsion(atoms + 4 * i, periodicities[i], parameters[2 * i], parameters[2 * i + 1]);
    return new Blocks<Torsion>(merged(std::move(terms)));
}

}  // namespace openmm_density
