// The kernels of one atom in a tile (spheres.h), by the number of its Gaussians and the kind of grid.
//
// They are most of what is to be compiled here: files of their own hold them, which are compiled side by side.
#pragma once

#include "interface.h"
#include "tile_bricks.h"

namespace openmm_density {

// Slots of what gather_all_of_atom sums over the voxels of a field g; gather_atom sums the first three for each channel.
enum GatherSum {
    SUM_X,   // g (-d rho/ds) x, y and z from the atom to the voxel, in voxels
    SUM_Y,
    SUM_Z,
    SUM_G,   // g
    SUM_GS,  // g s
    SUM_GE,  // of each Gaussian g exp(-alpha s), and then g s exp(-alpha s)
    GRADIENT_SUMS = SUM_G
};
constexpr int sum_ge(int gaussian) { return SUM_GE + 2 * gaussian; }
constexpr int sum_gse(int gaussian) { return SUM_GE + 2 * gaussian + 1; }
constexpr int all_sums(int gaussians) { return SUM_GE + 2 * gaussians; }

// One instance of the kernels for a number of Gaussians and a kind of grid.
struct Kernels {
    using Gather = void (*)(const Plan&, const TileFootprint&, const TileView&, vec* table, const ThreadScratch&, float* sums);
    int (*table_size)(const Plan&);
    void (*splat)(const Plan&, const TileFootprint&, const TileView&, vec* table, vec* density);
    Gather gather[MAX_CHANNELS];
    Gather fresh_gather, fresh_gather_all;
};

// In one_gaussian.cpp, few_gaussians.cpp and five_gaussians.cpp.
Kernels kernels_of_one_gaussian(const Plan& plan);
Kernels kernels_of_two_gaussians(const Plan& plan);
Kernels kernels_of_three_gaussians(const Plan& plan);
Kernels kernels_of_four_gaussians(const Plan& plan);
Kernels kernels_of_five_gaussians(const Plan& plan);

inline Kernels kernels_for(const Plan& plan) {
    switch (plan.atoms.gaussians) {
        case 1: return kernels_of_one_gaussian(plan);
        case 2: return kernels_of_two_gaussians(plan);
        case 3: return kernels_of_three_gaussians(plan);
        case 4: return kernels_of_four_gaussians(plan);
        default: return kernels_of_five_gaussians(plan);
    }
}

}  // namespace openmm_density
