// The bricks of a tile: where each is in a thread's scratch, and their voxels in a map.
#pragma once

#include "tiles.h"

namespace openmm_density {

// The scratch of a tile: the bricks that its atoms reach, in rows of `pitch` bricks along x, the first of them brick bx of the grid.
struct TileView {
    Interval planes, rows;  // of bricks in the box
    int bx, pitch;
    // Of each row of bricks, the first that atoms reach and the one past the last: the model fills a third of its box.
    ivec first[TILE_Z][TILE_Y / W], past_last[TILE_Z][TILE_Y / W];
    static_assert(TILE_Y % W == 0, "a plane of a tile has whole vectors of rows");

    // Fills the footprints of the tile's images.
    TileView(const Workspace& work, const Plan& plan, const Tile& tile, std::vector<TileFootprint>& footprints)
        : planes{tile.bz, std::min(tile.bz + TILE_Z, plan.planes)}, rows{tile.by, std::min(tile.by + TILE_Y, plan.rows_y)} {
        if (static_cast<int64_t>(footprints.size()) < tile.end - tile.begin) footprints.resize(tile.end - tile.begin);
        std::fill_n(first[0], TILE_Z * TILE_Y / W, ivec{} + INT_MAX);
        std::fill_n(past_last[0], TILE_Z * TILE_Y / W, ivec{} + INT_MIN);
        Interval x{INT_MAX, INT_MIN};
        for (int64_t i = tile.begin; i < tile.end; ++i) {
            const Image& image = work.images[i];
            const GridPosition& position = work.positions[image.atom];
            // Atoms of a tile may be anywhere in the list of all.
            __builtin_prefetch(&work.positions[work.images[std::min(i + 8, tile.end - 1)].atom]);
            const auto within = [&](int axis, Interval bounds) {
                const Interval inside = plan.inside(axis, position, image.cell[axis]);
                const Interval bricks = axis == 1 ? plan.bricks_y(inside) : plan.bricks_z(inside);
                return Interval{std::max(bricks.begin, bounds.begin), std::min(bricks.end, bounds.end)};
            };
            TileFootprint& footprint = footprints[i - tile.begin];
            const Interval by = within(1, rows), bz = within(2, planes);
            plan.set_footprint(footprint, position, image, by, bz, [&](int plane, int y_begin, int y_end) {
                const int begin = footprint.bx, end = footprint.bx + plan.bricks;
                for (int v = 0; v < TILE_Y / W; ++v) {
                    const ivec row = lane_numbers() + (rows.begin + v * W);
                    const ivec in = (row >= y_begin) & (row < y_end);
                    ivec& from = first[plane - planes.begin][v];
                    ivec& to = past_last[plane - planes.begin][v];
                    from = (in & (from > begin)) ? ivec{} + begin : from;
                    to = (in & (to < end)) ? ivec{} + end : to;
                }
            });
            x = hull(x, {footprint.bx, footprint.bx + plan.bricks});
        }
        bx = x.begin;
        // Rows of voxels come in whole vectors.
        pitch = (x.end - x.begin + BRICK_ROWS - 1) / BRICK_ROWS * BRICK_ROWS;
    }

    // What atoms reach of a row of bricks, from bx on, in whole vectors of voxels.
    Interval reached(int bz, int by) const {
        const int y = by - rows.begin;
        const int begin = first[bz - planes.begin][y / W][y % W], end = past_last[bz - planes.begin][y / W][y % W];
        if (begin > end) return {0, 0};
        return {(begin - bx) / BRICK_ROWS * BRICK_ROWS, (end - bx + BRICK_ROWS - 1) / BRICK_ROWS * BRICK_ROWS};
    }
    int64_t size() const { return int64_t(planes.end - planes.begin) * (rows.end - rows.begin) * pitch; }
    int64_t offset(int bz, int by) const {
        return (int64_t(bz - planes.begin) * (rows.end - rows.begin) + (by - rows.begin)) * pitch;
    }
};

namespace {

// BRICK_ROWS rows of W voxels in a map: the voxels of BRICK_ROWS bricks along x, from brick bx of the grid on.
struct MapRows {
    int x, y, z;  // the first voxel

    MapRows(const Plan& plan, int bz, int by, int bx) : x(bx * BX), y(plan.first_y + by * BY), z(plan.first_z + bz * BZ) {}

    bool inside(const Grid& grid) const {
        return x >= 0 && x + W <= grid.n[0] && y + BY <= grid.n[1] && z + BZ <= grid.n[2];
    }
    bool has(const Grid& grid, int row) const { return y + row % BY < grid.n[1] && z + row / BY < grid.n[2]; }
    int64_t in_grid(const Grid& grid, int row) const {
        return (int64_t(z + row / BY) * grid.n[1] + (y + row % BY)) * grid.n[0] + x;
    }
    // f(row, lane, index in the map) for those voxels that the grid has.
    template <typename F>
    void each_voxel(const Grid& grid, const F& f) const {
        for (int row = 0; row < BRICK_ROWS; ++row) {
            if (!has(grid, row)) continue;
            for (int lane = std::max(0, -x); lane < std::min(W, grid.n[0] - x); ++lane)
                f(row, lane, in_grid(grid, row) + lane);
        }
    }
};

// BRICK_ROWS bricks of a map; `outside` where the grid has no voxel.
inline void load_bricks(const Plan& plan, int bz, int by, int bx, const float* map, float outside,
                        vec (&bricks)[BRICK_ROWS]) {
    const MapRows rows(plan, bz, by, bx);
    if (rows.inside(plan.grid)) {
        for (int row = 0; row < BRICK_ROWS; ++row) bricks[row] = load(map + rows.in_grid(plan.grid, row));
    } else if (plan.grid.n[0] >= W) {
        // Read at a shift from W voxels that the row does have, between others that stand for those outside of it.
        const int begin = std::min(std::max(rows.x, 0), plan.grid.n[0] - W);
        const int shift = std::min(std::max(rows.x - begin, -W), W);
        float around[3 * W];
        store(around, broadcast(outside));
        store(around + 2 * W, broadcast(outside));
        for (int row = 0; row < BRICK_ROWS; ++row) {
            store(around + W, rows.has(plan.grid, row) ? load(map + (rows.in_grid(plan.grid, row) + begin - rows.x))
                                                       : broadcast(outside));
            bricks[row] = load(around + W + shift);
        }
    } else {
        float values[BRICK_ROWS][W];
        std::fill_n(values[0], BRICK_ROWS * W, outside);
        rows.each_voxel(plan.grid, [&](int row, int lane, int64_t at) { values[row][lane] = map[at]; });
        for (int row = 0; row < BRICK_ROWS; ++row) bricks[row] = load(values[row]);
    }
    transpose(bricks);
}

inline void store_bricks(const Plan& plan, int bz, int by, int bx, const vec* bricks, float* map) {
    vec transposed[BRICK_ROWS];
    std::copy_n(bricks, BRICK_ROWS, transposed);
    transpose(transposed);
    const MapRows rows(plan, bz, by, bx);
    if (rows.inside(plan.grid)) {
        for (int row = 0; row < BRICK_ROWS; ++row) store(map + rows.in_grid(plan.grid, row), transposed[row]);
    } else {
        float values[BRICK_ROWS][W];
        for (int row = 0; row < BRICK_ROWS; ++row) store(values[row], transposed[row]);
        rows.each_voxel(plan.grid, [&](int row, int lane, int64_t at) { map[at] = values[row][lane]; });
    }
}

// f(plane, row, brick of the grid, index in the scratch) for every BRICK_ROWS bricks that atoms reach; after each row, after().
template <typename F, typename After>
void each_bricks(const TileView& view, const F& f, const After& after) {
    for (int bz = view.planes.begin; bz < view.planes.end; ++bz)
        for (int by = view.rows.begin; by < view.rows.end; ++by) {
            const int64_t row = view.offset(bz, by);
            const Interval reached = view.reached(bz, by);
            for (int b = reached.begin; b < reached.end; b += BRICK_ROWS) f(bz, by, view.bx + b, row + b);
            after();
        }
}

}  // namespace
}  // namespace openmm_density
