// The lists of a call: where its atoms are on the grid, its tiles, and which atoms reach each.
#pragma once

#include <algorithm>
#include <cstring>

#include "../parallel.h"
#include "tiles.h"

namespace openmm_density {
namespace {

// One thread finds where atoms are on the grid unless they are many: waking another takes as long as a thousand of them.
constexpr int ATOMS_PER_CHUNK = 2048;

inline Workspace& workspace() {
    static thread_local Workspace instance;
    return instance;
}

inline void fill_edges(const Atoms& atoms, int64_t first, int64_t last, float* edges) {
    const float s_c = static_cast<float>(atoms.cutoff * atoms.cutoff);
    for (int64_t i = first * atoms.gaussians; i < last * atoms.gaussians; i += W) {
        const int width = static_cast<int>(std::min<int64_t>(W, last * atoms.gaussians - i));
        const vec edge = load_first(atoms.amplitudes + i, width) *
                         exp_of_negative(load_first(atoms.exponents + i, width) * -s_c);
        std::memcpy(edges + i, &edge, width * sizeof(float));
    }
}

// Fill the workspace but for partials and sums: what is known before any density.
template <typename T>
Plan make_plan(Workspace& work, const Grid& grid, const Atoms& atoms, const T* positions, const int64_t* selection) {
    const int64_t n = atoms.count;
    work.edges.resize(n * atoms.gaussians);
    work.positions.resize(n);
    Plan plan(grid, atoms, work.edges.data());
    const int64_t n_chunks = (n + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    const auto each_atom = [&](int64_t chunk, const auto& f) {
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n, (chunk + 1) * ATOMS_PER_CHUNK); ++atom)
            f(static_cast<int>(atom));
    };
    struct Box {
        Interval y, z;
    };
    const Box nothing{{grid.n[1], 0}, {grid.n[2], 0}};
    std::vector<Box> boxes(n_chunks, nothing);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        fill_edges(atoms, chunk * ATOMS_PER_CHUNK, std::min(n, (chunk + 1) * ATOMS_PER_CHUNK), work.edges.data());
        Box box = nothing;
        each_atom(chunk, [&](int atom) {
            GridPosition& position = work.positions[atom];
            double u[3];
            bool near = grid.locate(positions + 3 * (selection ? selection[atom] : atom), u);
            for (int axis = 0; near && axis < 3; ++axis) {
                const double begin = std::ceil(u[axis] - plan.reach[axis]);
                near = grid.periodic || (begin < grid.n[axis] && u[axis] + plan.reach[axis] >= 0);
                const double nearest = std::floor(u[axis] + 0.5);
                position.nearest[axis] = static_cast<int>(nearest);
                position.offset[axis] = static_cast<float>(u[axis] - nearest);
                position.range[axis] = {static_cast<int>(begin),
                                        static_cast<int>(std::floor(u[axis] + plan.reach[axis])) + 1};
            }
            if (!near) {
                position.range[0].begin = INT_MIN;
                return;
            }
            plan.each_image(position, [&](const std::array<int, 3>&, Interval y, Interval z) {
                box.y = hull(box.y, y);
                box.z = hull(box.z, z);
            });
        });
        boxes[chunk] = box;
    });
    Box box = nothing;
    for (const Box& of_chunk : boxes) box = {hull(box.y, of_chunk.y), hull(box.z, of_chunk.z)};
    plan.first_y = box.y.begin;
    plan.first_z = box.z.begin;
    const Interval all_y = box.y.end > box.y.begin ? plan.bricks_y(box.y) : Interval{0, 0};
    const Interval all_z = box.z.end > box.z.begin ? plan.bricks_z(box.z) : Interval{0, 0};
    const int tiles_y = (all_y.end + TILE_Y - 1) / TILE_Y, tiles_z = (all_z.end + TILE_Z - 1) / TILE_Z;
    const int64_t n_tiles = int64_t(tiles_z) * tiles_y;
    const auto each_tile_of = [&](int atom, const auto& f) {
        if (!work.positions[atom].near()) return;
        plan.each_image(work.positions[atom], [&](const std::array<int, 3>& cell, Interval y, Interval z) {
            const Interval by = plan.bricks_y(y), bz = plan.bricks_z(z);
            for (int tz = bz.begin / TILE_Z; tz * TILE_Z < bz.end; ++tz)
                for (int ty = by.begin / TILE_Y; ty * TILE_Y < by.end; ++ty) f(int64_t(tz) * tiles_y + ty, cell);
        });
    };

    // Counted per chunk and tile, so that chunks can fill the lists side by side and still in the order of the atoms.
    work.chunk_offsets.assign(n_chunks * n_tiles, 0);
    work.first_image_of.resize(n + 1);
    work.first_image_of[0] = 0;
    if (static_cast<int64_t>(work.entries.size()) < n_chunks) work.entries.resize(n_chunks);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        int64_t* counts = work.chunk_offsets.data() + chunk * n_tiles;
        std::vector<TileEntry>& entries = work.entries[chunk];
        entries.clear();
        each_atom(chunk, [&](int atom) {
            const size_t before = entries.size();
            each_tile_of(atom, [&](int64_t tile, const std::array<int, 3>& cell) {
                ++counts[tile];
                entries.push_back({static_cast<int>(tile), {atom, cell}});
            });
            work.first_image_of[atom + 1] = static_cast<int64_t>(entries.size() - before);
        });
    });
    int64_t total = 0;
    work.tiles.clear();
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
        const int64_t begin = total;
        for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
            const int64_t count = work.chunk_offsets[chunk * n_tiles + tile];
            work.chunk_offsets[chunk * n_tiles + tile] = total;
            total += count;
        }
        if (total > begin)
            work.tiles.push_back({static_cast<int>(work.tiles.size()), static_cast<int>(tile / tiles_y) * TILE_Z,
                                  static_cast<int>(tile % tiles_y) * TILE_Y, begin, total});
    }
    if (total >= (int64_t(1) << 31))
        throw std::length_error("the atoms reach tiles of the grid " + std::to_string(total) +
                                " times, images included, and 2147483647 are the most: use fewer atoms or a smaller cutoff");
    // The longest list of each thread's share first, so that threads end together.
    const int64_t tiles = static_cast<int64_t>(work.tiles.size()), shares = threads_for(tiles);
    for (int64_t i = 0; i < shares; ++i)
        std::stable_sort(work.tiles.begin() + tiles * i / shares, work.tiles.begin() + tiles * (i + 1) / shares,
                         [](const Tile& a, const Tile& b) { return a.end - a.begin > b.end - b.begin; });
    for (int64_t atom = 0; atom < n; ++atom) work.first_image_of[atom + 1] += work.first_image_of[atom];
    work.images.resize(total);
    work.image_of_atom.resize(total);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        int64_t* next = work.chunk_offsets.data() + chunk * n_tiles;
        int64_t own = work.first_image_of[chunk * ATOMS_PER_CHUNK];
        for (const TileEntry& entry : work.entries[chunk]) {
            work.image_of_atom[own++] = static_cast<int>(next[entry.tile]);
            work.images[next[entry.tile]++] = entry.image;
        }
    });
    plan.rows_y = all_y.end;
    plan.planes = all_z.end;
    return plan;
}

}  // namespace
}  // namespace openmm_density
