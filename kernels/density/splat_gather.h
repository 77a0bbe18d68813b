// A model's density on all voxels (splat), and its adjoint: what a field on them is worth to the atoms (gather).
//
// One thread at a time owns a tile, as in similarity.h.
#pragma once

#include "passes.h"

namespace openmm_density {
namespace {

inline void splat(const Grid& grid, const Atoms& atoms, const Points& positions, float* density) {
    Workspace& work = workspace();
    const Plan plan = make_plan(work, grid, atoms, positions, nullptr);
    const Kernels kernels = kernels_for(plan);
    const int64_t plane = int64_t(grid.n[1]) * grid.n[0];
    parallel_for(grid.n[2], [&](int64_t z, int) { std::fill_n(density + z * plane, plane, 0.0f); });
    each_tile(work, plan, 1, [&](const Tile& tile, const TileView& view, ThreadScratch& scratch) {
        splat_tile(plan, kernels, tile, view, scratch);
        each_bricks(
            view,
            [&](int bz, int by, int bx, int64_t at) {
                store_bricks(plan, bz, by, bx, scratch.channels[0].data() + at, density);
            },
            [] {});
    });
}

// Amplitudes and exponents are written where `parameters` are wanted.
inline void gather(const Grid& grid, const Atoms& atoms, const Points& positions, const float* field, bool parameters,
                   const Gradients& to_positions, float* to_amplitudes, float* to_exponents) {
    Workspace& work = workspace();
    const Plan plan = make_plan(work, grid, atoms, positions, nullptr);
    const Kernels kernels = kernels_for(plan);
    const int n_gaussians = parameters ? atoms.gaussians : 0;
    const int width = parameters ? all_sums(n_gaussians) : GRADIENT_SUMS;
    const auto gather_atom = parameters ? kernels.fresh_gather_all : kernels.fresh_gather;
    work.partials.resize(work.images.size() * width);
    each_tile(work, plan, 1, [&](const Tile& tile, const TileView& view, ThreadScratch& scratch) {
        each_bricks(
            view,
            [&](int bz, int by, int bx, int64_t at) {
                vec bricks[BRICK_ROWS];
                load_bricks(plan, bz, by, bx, field, 0.0f, bricks);
                std::copy_n(bricks, BRICK_ROWS, scratch.channels[0].data() + at);
            },
            [] {});
        const size_t table_size = kernels.table_size(plan);
        if (scratch.tables.size() < table_size) scratch.tables.resize(table_size);
        for (int64_t i = 0; i < tile.end - tile.begin; ++i)
            gather_atom(plan, scratch.footprints[i], view, scratch.tables.data(), scratch,
                        work.partials.data() + width * (tile.begin + i));
    });

    const double s_c = atoms.cutoff * atoms.cutoff;
    const int64_t n_chunks = (atoms.count + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        double total[all_sums(MAX_GAUSSIANS)];
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(atoms.count, (chunk + 1) * ATOMS_PER_CHUNK);
             ++atom) {
            add_partials(work, atom, width, total);
            store_gradient(grid, total, to_positions, atom);
            if (!parameters) continue;
            const double sum_g = total[SUM_G], sum_gs = total[SUM_GS];
            for (int c = 0; c < n_gaussians; ++c) {
                const double of_ge = total[sum_ge(c)], of_gse = total[sum_gse(c)];
                const double a = atoms.amplitudes[atom * n_gaussians + c];
                const double alpha = atoms.exponents[atom * n_gaussians + c];
                const double edge = std::exp(-alpha * s_c);
                // d/dA and d/dalpha of A (exp(-alpha s) - exp(-alpha s_c) + alpha exp(-alpha s_c) (s - s_c)).
                to_amplitudes[atom * n_gaussians + c] =
                    static_cast<float>(of_ge - edge * sum_g + alpha * edge * (sum_gs - s_c * sum_g));
                to_exponents[atom * n_gaussians + c] =
                    static_cast<float>(a * (-of_gse + edge * (sum_gs - alpha * s_c * (sum_gs - s_c * sum_g))));
            }
        }
    });
}

}  // namespace
}  // namespace openmm_density
