// The kernels of atoms that are two to four Gaussians.

#include "spheres.h"

namespace openmm_density {

Kernels kernels_of_two_gaussians(const Plan& plan) { return kernels_of_gaussians<2>(plan); }
Kernels kernels_of_three_gaussians(const Plan& plan) { return kernels_of_gaussians<3>(plan); }
Kernels kernels_of_four_gaussians(const Plan& plan) { return kernels_of_gaussians<4>(plan); }

}  // namespace openmm_density
