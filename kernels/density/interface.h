// What a force of OpenMM calls of this operator, and the operator itself: in a library of its own, by name, on the memory of tensors.
#pragma once

#include <cstdint>

namespace openmm_density {

// The arguments of density_similarity that stay the same, which have been checked: see __init__.py.
struct Comparison {
    int64_t n_atoms;
    int gaussians;
    const int64_t* atoms;
    const float* amplitudes;
    const float* exponents;
    double cutoff;
    const float* target;
    const double* moments;
    const double* matrix;
    const double* origin;
    int64_t shape[3];  // nz, ny, nx
    bool periodic;
    int measure;
    double total_weight;
};

// Return S, and store scale dS/dx of all positions.
extern "C" __attribute__((visibility("default"))) double openmm_density_similarity(const Comparison& compared, const double* positions,
                                                                                   int64_t n_positions, double scale, int n_threads,
                                                                                   double* gradient);

// The same for the operator, by torch's number of threads: of positions and gradient in either precision, null in the other.
struct EitherPrecision {
    const float* single_positions;
    const double* positions;
    float* single_gradient;
    double* gradient;
};
extern "C" __attribute__((visibility("default"))) double openmm_density_similarity_of(const Comparison& compared,
                                                                                      const EitherPrecision& arrays,
                                                                                      int64_t n_positions, double scale);

}  // namespace openmm_density
