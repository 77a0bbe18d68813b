// What a force of OpenMM calls of this operator, and the operator itself: in a library of its own, by name, on the memory of tensors.
#pragma once

#include <cstdint>

namespace openmm_density {

constexpr int MAX_GAUSSIANS = 5;

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

// What the operators call, by torch's number of threads. Positions and their gradients come in either precision: null in the other.
template <typename Single, typename Twice>
struct Either {
    Single* single;
    Twice* twice;
};
using Points = Either<const float, const double>;
using Gradients = Either<float, double>;

// Atoms on a grid: the arguments that density_splat and density_gather share.
struct AtomsOnGrid {
    int64_t n_atoms;
    int gaussians;
    const float* amplitudes;
    const float* exponents;
    double cutoff;
    const double* matrix;
    const double* origin;
    int64_t shape[3];  // nz, ny, nx
    bool periodic;
};

#pragma GCC visibility push(default)
extern "C" double openmm_density_similarity_of(const Comparison& compared, const Points& positions, int64_t n_positions, double scale,
                                               const Gradients& gradients);

// Store the density of all voxels.
extern "C" void openmm_density_splat(const AtomsOnGrid& given, const Points& positions, float* density);

// Store what a field on the voxels is worth to positions and, where they are wanted, to amplitudes and exponents.
extern "C" void openmm_density_gather(const AtomsOnGrid& given, const Points& positions, const float* field, bool parameters,
                                      const Gradients& to_positions, float* to_amplitudes, float* to_exponents);
#pragma GCC visibility pop

}  // namespace openmm_density
