// The kernels of atoms that are one Gaussian, as at a map's resolution: what fits use.

#include "spheres.h"

namespace openmm_density {

Kernels kernels_of_one_gaussian(const Plan& plan) { return kernels_of_gaussians<1>(plan); }

}  // namespace openmm_density
