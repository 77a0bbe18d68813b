// What the operators do with tiles: density into their scratch, and gradients out of it.
#pragma once

#include <algorithm>
#include <vector>

#include "atom_kernels.h"
#include "interface.h"
#include "measures.h"
#include "tile_lists.h"

namespace openmm_density {
namespace {

inline Plan make_plan(Workspace& work, const Grid& grid, const Atoms& atoms, const Points& positions, const int64_t* selection) {
    if (positions.twice) return make_plan(work, grid, atoms, positions.twice, selection);
    return make_plan(work, grid, atoms, positions.single, selection);
}

// Hand every tile to a thread: f(tile, view, scratch). The scratch has so many channels.
template <typename F>
void each_tile(Workspace& work, const Plan& plan, int channels, const F& f) {
    const int64_t n_tiles = static_cast<int64_t>(work.tiles.size());
    if (static_cast<int>(work.threads.size()) < threads_for(n_tiles)) work.threads.resize(threads_for(n_tiles));
    parallel_for(n_tiles, [&](int64_t index, int thread) {
        ThreadScratch& scratch = work.threads[thread];
        const Tile& tile = work.tiles[index];
        const TileView view(work, plan, tile, scratch.footprints);
        for (int channel = 0; channel < channels; ++channel) {
            auto& values = scratch.channels[channel];
            if (static_cast<int64_t>(values.size()) < view.size()) values.resize(view.size());
        }
        f(tile, view, scratch);
    });
}

inline void splat_tile(const Plan& plan, const Kernels& kernels, const Tile& tile, const TileView& view, ThreadScratch& scratch) {
    const int64_t table_size = kernels.table_size(plan);
    const int64_t n = tile.end - tile.begin;
    if (static_cast<int64_t>(scratch.tables.size()) < table_size * n) scratch.tables.resize(table_size * n);
    each_bricks(
        view,
        [&](int, int, int, int64_t at) { std::fill_n(scratch.channels[0].begin() + at, BRICK_ROWS, vec{}); },
        [] {});
    for (int64_t i = 0; i < n; ++i)
        kernels.splat(plan, scratch.footprints[i], view, scratch.tables.data() + table_size * i, scratch.channels[0].data());
}

// Sums over the partials of an atom's images, in the order of its list.
inline void add_partials(const Workspace& work, int64_t atom, int width, double* total) {
    std::fill_n(total, width, 0.0);
    for (int64_t i = work.first_image_of[atom]; i < work.first_image_of[atom + 1]; ++i) {
        const float* partial = work.partials.data() + int64_t(work.image_of_atom[i]) * width;
        for (int j = 0; j < width; ++j) total[j] += partial[j];
    }
}

// d(density)/dx = -2 rho'(s) (voxel - atom): from voxels to space.
inline void store_gradient(const Grid& grid, const double* in_voxels, const Gradients& gradients, int64_t atom) {
    for (int row = 0; row < 3; ++row) {
        double g = 0;
        for (int column = 0; column < 3; ++column) g += grid.matrix[row][column] * in_voxels[column];
        if (gradients.twice)
            gradients.twice[3 * atom + row] = 2 * g;
        else
            gradients.single[3 * atom + row] = static_cast<float>(2 * g);
    }
}

}  // namespace
}  // namespace openmm_density
