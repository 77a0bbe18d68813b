// The similarity of a model's density and a target, with the gradient, on plain memory: for the operator and for a force of OpenMM.
//
// One thread at a time owns a tile of the grid (tiles.h): it splats the listed atoms (spheres.h) into a scratch of bricks (bricks.h)
// that stays in its cache, sweeps the scratch once for the sums of the similarity (measures.h), and gathers, for every listed atom,
// the gradients that those sums will weight. For the correlations dS/d(density) is c0 + c1*density + c2*target with c known only
// after the last tile, so the three terms are gathered apart and combined at the end: density and dS/d(density) never exist for
// more than a tile. Tiles, lists and the order of every addition follow from the input alone: the same bits for any number of
// threads.
#pragma once

#include <cstring>
#include <type_traits>

#include "passes.h"

namespace openmm_density {
namespace {

// With fewer atoms a single thread ends before another is awake.
constexpr int64_t ATOMS_TO_PREWAKE_FOR = 500;

// What a model is compared with. All that can be checked beforehand has been.
struct Target {
    const float* voxels;    // (nz, ny, nx); not finite where one does not count
    const double* moments;  // (MOMENTS)
    Measure measure;
    double total_weight;
};

// Return S, and store scale dS/dx for all positions: 0 for those that are not selected.
inline double similarity(const Grid& grid, const Atoms& atoms, const int64_t* selection, const Target& target,
                         const Points& positions, int64_t n_positions, double scale, const Gradients& gradients) {
    const Measure measure = target.measure;
    const int64_t n_atoms = atoms.count;
    const double floor = measure == RELATIVE_ENTROPY ? entropy_floor(target.moments, target.total_weight) : 1;

    // Whether tiles come after a plan that one thread makes, or the plan itself is shared: there is work for several.
    if (n_atoms >= ATOMS_TO_PREWAKE_FOR) prewake_threads();
    Workspace& work = workspace();
    const Plan plan = make_plan(work, grid, atoms, positions, selection);
    const Kernels kernels = kernels_for(plan);
    const int channels = channels_of(measure);
    const int width = GRADIENT_SUMS * channels;
    work.partials.resize(work.images.size() * width);
    work.sums.resize(work.tiles.size());
    each_tile(work, plan, channels, [&](const Tile& tile, const TileView& view, ThreadScratch& scratch) {
        splat_tile(plan, kernels, tile, view, scratch);
        work.sums[tile.number] = sweep_tile(plan, view, scratch, target.voxels, measure, floor);
        const int64_t table_size = kernels.table_size(plan);
        for (int64_t i = 0; i < tile.end - tile.begin; ++i)
            kernels.gather[channels - 1](plan, scratch.footprints[i], view, scratch.tables.data() + table_size * i, scratch,
                                         work.partials.data() + width * (tile.begin + i));
    });

    Sums sums{};
    for (const Sums& of_tile : work.sums)
        for (int i = 0; i < SUMS; ++i) sums[i] += of_tile[i];
    Similarity result = similarity_of(measure, target.moments, sums, target.total_weight);
    for (double& coefficient : result.coefficients) coefficient *= scale;

    // By one thread: see ../scale.h.
    if (n_atoms < n_positions) {
        if (gradients.twice)
            std::fill_n(gradients.twice, 3 * n_positions, 0.0);
        else
            std::fill_n(gradients.single, 3 * n_positions, 0.0f);
    }
    const auto combine = [&](auto number) {
        constexpr int CHANNELS = decltype(number)::value;
        const int64_t n_chunks = (n_atoms + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
        parallel_for(n_chunks, [&](int64_t chunk, int) {
            for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n_atoms, (chunk + 1) * ATOMS_PER_CHUNK); ++atom) {
                double total[GRADIENT_SUMS * CHANNELS], in_voxels[3] = {};
                add_partials(work, atom, GRADIENT_SUMS * CHANNELS, total);
                for (int channel = 0; channel < CHANNELS; ++channel)
                    for (int axis = 0; axis < 3; ++axis)
                        in_voxels[axis] += result.coefficients[channel] * total[GRADIENT_SUMS * channel + axis];
                store_gradient(grid, in_voxels, gradients, selection[atom]);
            }
        });
    };
    if (channels == 1) combine(std::integral_constant<int, 1>{});
    if (channels == 2) combine(std::integral_constant<int, 2>{});
    if (channels == 3) combine(std::integral_constant<int, 3>{});
    return result.value;
}

}  // namespace
}  // namespace openmm_density
