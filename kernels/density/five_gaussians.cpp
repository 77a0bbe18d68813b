// The kernels of atoms that are five Gaussians, as form factors have.

#include "spheres.h"

namespace openmm_density {

Kernels kernels_of_five_gaussians(const Plan& plan) { return kernels_of_gaussians<5>(plan); }

}  // namespace openmm_density
