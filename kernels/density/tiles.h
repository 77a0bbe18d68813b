// Where atoms are on the grid, and which of them reach which part of it.
//
// The part of the grid that atoms reach is cut into tiles of TILE_Z x TILE_Y bricks across x. A tile lists the atoms that reach
// it, in input order, and each periodic image of one on its own, so that nothing that works on a tile knows of periodicity.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <vector>

#include "../grid.h"
#include "../parallel.h"
#include "bricks.h"

namespace openmm_density {
namespace {

constexpr int MAX_CHANNELS = 3;
// In bricks.
constexpr int TILE_Z = 16 / BZ;
constexpr int TILE_Y = 32 / BY;
// Atoms are placed by one thread unless they are many: waking another takes as long as a thousand of them.
constexpr int ATOMS_PER_CHUNK = 2048;

struct Atoms {
    int64_t count;
    int gaussians;
    const float* amplitudes;  // (count, gaussians)
    const float* exponents;   // (count, gaussians)
    double cutoff;
};

struct Interval {
    int begin, end;  // half open
};

// Where an atom is, in voxels along each axis: `beyond` the voxel nearest to it. Apart, since a float that held both would lose
// digits of the distances to the voxels close by, from which most of the density comes.
struct Place {
    int nearest[3];
    float beyond[3];
    Interval range[3];  // of the voxels that it may reach, not yet wrapped nor clipped
    bool near() const { return range[0].begin != INT_MIN; }
};

// One image of an atom in a tile: how many cells away it is, which is 0 on a finite grid.
struct Image {
    int atom;
    std::array<int, 3> cell;
};

// An image in a tile, by the tile's number in the box.
struct Listing {
    int tile;
    Image image;
};

struct Tile {
    int number;          // in the grid's order, whoever works on it when
    int bz, by;          // its first brick in the box
    int64_t begin, end;  // its images
};

// The bricks of a tile that one image reaches, [by, by + n_y) x [bz, bz + n_z) in the box, from brick bx of the grid on along x.
struct Part {
    int atom;
    int bx, by, bz;
    int n_y, n_z;
    int x, y, z;         // the first voxel of the first of these, as seen from the one nearest to the atom
    float beyond[3];     // of the atom's Place
    // The columns of bricks along x that the sphere may touch, as seen from the first.
    int n_columns;
    // They are written a whole plane at a time: TILE_Y more than there can be.
    unsigned char column_y[TILE_Y * TILE_Z + TILE_Y], column_z[TILE_Y * TILE_Z + TILE_Y];
    static_assert(TILE_Y <= 256 && TILE_Z <= 256, "columns are numbered in a byte");

    // From the atom to the middle of a row, or a plane, of its bricks, in voxels.
    float middle_y(int row) const { return (static_cast<float>(y + row * BY) + 0.5f * (BY - 1)) - beyond[1]; }
    float middle_z(int plane) const { return (static_cast<float>(z + plane * BZ) + 0.5f * (BZ - 1)) - beyond[2]; }
};

struct ThreadScratch {
    std::vector<vec> channels[MAX_CHANNELS];
    std::vector<vec> tables;
    std::vector<Part> parts;
};

// Reused between calls; belongs to the calling thread, so that several Contexts never share one.
struct Workspace {
    std::vector<float> edges;             // (atoms, gaussians)
    std::vector<Place> places;            // (atoms)
    std::vector<std::vector<Listing>> listings;  // (chunks): in the order of the atoms
    std::vector<int64_t> chunk_offsets;   // (chunks, tiles)
    std::vector<int64_t> first_image_of;  // (atoms + 1): index into image_of_atom
    std::vector<int> image_of_atom;
    std::vector<Image> images;
    std::vector<Tile> tiles;              // those with atoms
    std::vector<float> partials;          // (images, channels, 3)
    std::vector<std::array<double, 3>> sums;
    std::vector<ThreadScratch> threads;
};

inline Workspace& workspace() {
    static thread_local Workspace instance;
    return instance;
}

typedef unsigned char bytes __attribute__((vector_size(TILE_Y)));
inline bytes row_numbers() {
    bytes x;
    for (int i = 0; i < TILE_Y; ++i) x[i] = static_cast<unsigned char>(i);
    return x;
}

inline int64_t floor_of_quotient(int64_t i, int n) { return (i >= 0 ? i : i - n + 1) / n; }

struct Plan {
    const Grid& grid;
    const Atoms& atoms;
    const float* edges;  // (atoms, gaussians): A exp(-alpha s_c)
    double reach[3];
    int bricks;          // along x that hold any row of an atom
    int first_y, first_z;  // voxels of the grid at which the box of bricks begins
    int rows_y = 0, planes = 0;  // of bricks, in the box
    // Columns of bricks along x: the squared distance of one from an atom is yy y^2 + 2 yz y z + zz z^2, with y and z from the
    // atom to its middle, and a column that is not nearer than this holds no voxel of the sphere; that is, one with
    // |y - tilt z| not below sqrt(farthest_square - flattening z^2).
    float yy, yz, zz, farthest_column;
    float tilt, flattening, farthest_square;

    Plan(const Grid& grid_, const Atoms& atoms_, const float* edges_) : grid(grid_), atoms(atoms_), edges(edges_) {
        for (int axis = 0; axis < 3; ++axis) {
            reach[axis] = grid.reach(axis, atoms.cutoff);
            TORCH_CHECK(reach[axis] < (1 << 24), "the cutoff reaches over ", reach[axis], " voxels: make it smaller");
        }
        // Beyond a whole number of voxels by rounding alone there would be one more, whose density is nothing but rounding.
        const int voxels = std::max(1, static_cast<int>(std::ceil(2 * reach[0] * (1 - 1e-6))));
        bricks = (voxels + BX - 2) / BX + 1;
        const auto& m = grid.matrix;
        const auto dot = [&](int a, int b) { return m[0][a] * m[0][b] + m[1][a] * m[1][b] + m[2][a] * m[2][b]; };
        const double xx = dot(0, 0);
        const double yy_ = dot(1, 1) - dot(0, 1) * dot(0, 1) / xx, zz_ = dot(2, 2) - dot(0, 2) * dot(0, 2) / xx;
        const double yz_ = dot(1, 2) - dot(0, 1) * dot(0, 2) / xx;
        const double half_y = 0.5 * (BY - 1), half_z = 0.5 * (BZ - 1);
        const double corner =
            std::sqrt(yy_ * half_y * half_y + 2 * std::abs(yz_) * half_y * half_z + zz_ * half_z * half_z);
        yy = static_cast<float>(yy_);
        yz = static_cast<float>(yz_);
        zz = static_cast<float>(zz_);
        farthest_column = static_cast<float>((atoms.cutoff + corner) * (atoms.cutoff + corner) * (1 + 1e-5));
        tilt = -yz / yy;
        flattening = (zz - yz * yz / yy) / yy;
        farthest_square = farthest_column / yy;
    }

    // The part of an image that lies in the grid, along one axis.
    Interval inside(int axis, const Place& place, int64_t cell) const {
        const Interval whole = place.range[axis];
        const int64_t shift = cell * grid.n[axis];
        return {static_cast<int>(std::max<int64_t>(whole.begin - shift, 0)),
                static_cast<int>(std::min<int64_t>(whole.end - shift, grid.n[axis]))};
    }

    // f(cell, part inside) for every image that has one, along one axis.
    template <typename F>
    void each_image_along(int axis, const Place& place, const F& f) const {
        const Interval whole = place.range[axis];
        const int n = grid.n[axis];
        int64_t first = 0, last = 0;
        if (grid.periodic) {
            first = floor_of_quotient(whole.begin, n);
            last = floor_of_quotient(int64_t(whole.end) - 1, n);
        }
        for (int64_t cell = first; cell <= last; ++cell) {
            const Interval part = inside(axis, place, cell);
            if (part.begin < part.end) f(static_cast<int>(cell), part);
        }
    }

    // f(cells, rows, planes) for every image of an atom that reaches the grid.
    template <typename F>
    void each_image(const Place& place, const F& f) const {
        if (!grid.periodic) {
            const Interval x = inside(0, place, 0), y = inside(1, place, 0), z = inside(2, place, 0);
            if (x.begin < x.end && y.begin < y.end && z.begin < z.end) f(std::array<int, 3>{}, y, z);
            return;
        }
        each_image_along(2, place, [&](int cell_z, Interval z) {
            each_image_along(1, place, [&](int cell_y, Interval y) {
                each_image_along(0, place, [&](int cell_x, Interval) {
                    f(std::array<int, 3>{cell_x, cell_y, cell_z}, y, z);
                });
            });
        });
    }

    Interval bricks_y(Interval y) const { return {(y.begin - first_y) / BY, (y.end - 1 - first_y) / BY + 1}; }
    Interval bricks_z(Interval z) const { return {(z.begin - first_z) / BZ, (z.end - 1 - first_z) / BZ + 1}; }

    // The part of an image within these bricks of the box. touch(plane, first row, last row + 1) for its bricks in the box.
    template <typename F>
    void set_part(Part& part, const Place& place, const Image& image, Interval by, Interval bz, const F& touch) const {
        const auto seen = [&](int axis, int64_t voxel) {
            return static_cast<int>(voxel + int64_t(image.cell[axis]) * grid.n[axis] - place.nearest[axis]);
        };
        part.atom = image.atom;
        std::copy_n(place.beyond, 3, part.beyond);
        part.bx = static_cast<int>(floor_of_quotient(place.range[0].begin - int64_t(image.cell[0]) * grid.n[0], BX));
        part.by = by.begin;
        part.bz = bz.begin;
        part.n_y = by.end - by.begin;
        part.n_z = bz.end - bz.begin;
        part.x = seen(0, int64_t(part.bx) * BX);
        part.y = seen(1, first_y + by.begin * BY);
        part.z = seen(2, first_z + bz.begin * BZ);
        // Columns of a plane that are near enough are neighbours. How many there are is as good as random, so a branch would be
        // mispredicted: a whole plane is written, and the next one begins where it ends. First and last are rounded so that a
        // column on the limit is kept.
        const float rows = static_cast<float>(part.n_y);
        const float first = part.middle_y(0), plane = part.middle_z(0);
        int begin[TILE_Z], end[TILE_Z];
        for (int z = 0; z < TILE_Z; ++z) {
            const float dz = plane + static_cast<float>(z * BZ);
            const float half = std::sqrt(std::max(farthest_square - flattening * dz * dz, 0.0f)), middle = tilt * dz - first;
            begin[z] = static_cast<int>(std::min(std::max((middle - half) * (1.0f / BY) + 0.9999f, 0.0f), rows));
            end[z] = static_cast<int>(std::min(std::max((middle + half) * (1.0f / BY) + 1.0001f, 0.0f), rows));
        }
        int n = 0;
        for (int z = 0; z < part.n_z; ++z) {
            const bytes ys = row_numbers() + static_cast<unsigned char>(begin[z]), zs = bytes{} + static_cast<unsigned char>(z);
            std::memcpy(part.column_y + n, &ys, sizeof(bytes));
            std::memcpy(part.column_z + n, &zs, sizeof(bytes));
            n += std::max(end[z] - begin[z], 0);
            touch(bz.begin + z, by.begin + begin[z], by.begin + end[z]);
        }
        part.n_columns = n;
    }
};

inline void fill_edges(const Atoms& atoms, int64_t first, int64_t last, float* edges) {
    const float s_c = static_cast<float>(atoms.cutoff * atoms.cutoff);
    for (int64_t i = first * atoms.gaussians; i < last * atoms.gaussians; i += W) {
        const int width = static_cast<int>(std::min<int64_t>(W, last * atoms.gaussians - i));
        const vec edge = load_first(atoms.amplitudes + i, width) *
                         exp_of_negative(load_first(atoms.exponents + i, width) * -s_c);
        std::memcpy(edges + i, &edge, width * sizeof(float));
    }
}

inline Interval hull(Interval a, Interval b) { return {std::min(a.begin, b.begin), std::max(a.end, b.end)}; }

// Fill the workspace but for partials and sums: what is known before any density.
template <typename T>
Plan make_plan(Workspace& work, const Grid& grid, const Atoms& atoms, const T* positions, const int64_t* selection) {
    const int64_t n = atoms.count;
    work.edges.resize(n * atoms.gaussians);
    work.places.resize(n);
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
            Place& place = work.places[atom];
            double u[3];
            bool near = grid.locate(positions + 3 * (selection ? selection[atom] : atom), u);
            for (int axis = 0; near && axis < 3; ++axis) {
                const double begin = std::ceil(u[axis] - plan.reach[axis]);
                near = grid.periodic || (begin < grid.n[axis] && u[axis] + plan.reach[axis] >= 0);
                const double nearest = std::floor(u[axis] + 0.5);
                place.nearest[axis] = static_cast<int>(nearest);
                place.beyond[axis] = static_cast<float>(u[axis] - nearest);
                place.range[axis] = {static_cast<int>(begin), static_cast<int>(std::floor(u[axis] + plan.reach[axis])) + 1};
            }
            if (!near) {
                place.range[0].begin = INT_MIN;
                return;
            }
            plan.each_image(place, [&](const std::array<int, 3>&, Interval y, Interval z) {
                box.y = hull(box.y, y);
                box.z = hull(box.z, z);
            });
        });
        boxes[chunk] = box;
    });
    Box box = nothing;
    for (const Box& part : boxes) box = {hull(box.y, part.y), hull(box.z, part.z)};
    plan.first_y = box.y.begin;
    plan.first_z = box.z.begin;
    const Interval all_y = box.y.end > box.y.begin ? plan.bricks_y(box.y) : Interval{0, 0};
    const Interval all_z = box.z.end > box.z.begin ? plan.bricks_z(box.z) : Interval{0, 0};
    const int tiles_y = (all_y.end + TILE_Y - 1) / TILE_Y, tiles_z = (all_z.end + TILE_Z - 1) / TILE_Z;
    const int64_t n_tiles = int64_t(tiles_z) * tiles_y;
    const auto each_tile_of = [&](int atom, const auto& f) {
        if (!work.places[atom].near()) return;
        plan.each_image(work.places[atom], [&](const std::array<int, 3>& cell, Interval y, Interval z) {
            const Interval by = plan.bricks_y(y), bz = plan.bricks_z(z);
            for (int tz = bz.begin / TILE_Z; tz * TILE_Z < bz.end; ++tz)
                for (int ty = by.begin / TILE_Y; ty * TILE_Y < by.end; ++ty) f(int64_t(tz) * tiles_y + ty, cell);
        });
    };

    // Counted per chunk and tile, so that chunks can fill the lists side by side and still in the order of the atoms.
    work.chunk_offsets.assign(n_chunks * n_tiles, 0);
    work.first_image_of.resize(n + 1);
    work.first_image_of[0] = 0;
    if (static_cast<int64_t>(work.listings.size()) < n_chunks) work.listings.resize(n_chunks);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        int64_t* counts = work.chunk_offsets.data() + chunk * n_tiles;
        std::vector<Listing>& listings = work.listings[chunk];
        listings.clear();
        each_atom(chunk, [&](int atom) {
            const size_t before = listings.size();
            each_tile_of(atom, [&](int64_t tile, const std::array<int, 3>& cell) {
                ++counts[tile];
                listings.push_back({static_cast<int>(tile), {atom, cell}});
            });
            work.first_image_of[atom + 1] = static_cast<int64_t>(listings.size() - before);
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
    TORCH_CHECK(total < (int64_t(1) << 31), "too many atoms and images");
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
        for (const Listing& listing : work.listings[chunk]) {
            work.image_of_atom[own++] = static_cast<int>(next[listing.tile]);
            work.images[next[listing.tile]++] = listing.image;
        }
    });
    plan.rows_y = all_y.end;
    plan.planes = all_z.end;
    return plan;
}

// The scratch of a tile: the bricks that its atoms reach, in rows of `pitch` bricks along x, the first of them brick bx of the grid.
struct TileView {
    Interval planes, rows;  // of bricks in the box
    int bx, pitch;
    // Of each row of bricks, the first that atoms reach and the one past the last: the model fills a third of its box.
    ivec first[TILE_Z][TILE_Y / W], past_last[TILE_Z][TILE_Y / W];
    static_assert(TILE_Y % W == 0, "a plane of a tile has whole vectors of rows");

    // Fills parts with those of the tile's images.
    TileView(const Workspace& work, const Plan& plan, const Tile& tile, std::vector<Part>& parts)
        : planes{tile.bz, std::min(tile.bz + TILE_Z, plan.planes)}, rows{tile.by, std::min(tile.by + TILE_Y, plan.rows_y)} {
        if (static_cast<int64_t>(parts.size()) < tile.end - tile.begin) parts.resize(tile.end - tile.begin);
        std::fill_n(first[0], TILE_Z * TILE_Y / W, ivec{} + INT_MAX);
        std::fill_n(past_last[0], TILE_Z * TILE_Y / W, ivec{} + INT_MIN);
        Interval x{INT_MAX, INT_MIN};
        for (int64_t i = tile.begin; i < tile.end; ++i) {
            const Image& image = work.images[i];
            const Place& place = work.places[image.atom];
            // Atoms of a tile may be anywhere in the list of all.
            __builtin_prefetch(&work.places[work.images[std::min(i + 8, tile.end - 1)].atom]);
            const auto within = [&](int axis, Interval bounds) {
                const Interval inside = plan.inside(axis, place, image.cell[axis]);
                const Interval bricks = axis == 1 ? plan.bricks_y(inside) : plan.bricks_z(inside);
                return Interval{std::max(bricks.begin, bounds.begin), std::min(bricks.end, bounds.end)};
            };
            Part& part = parts[i - tile.begin];
            plan.set_part(part, place, image, within(1, rows), within(2, planes), [&](int bz, int y_begin, int y_end) {
                const int begin = part.bx, end = part.bx + plan.bricks;
                for (int v = 0; v < TILE_Y / W; ++v) {
                    const ivec row = lane_numbers() + (rows.begin + v * W);
                    const ivec in = (row >= y_begin) & (row < y_end);
                    ivec& from = first[bz - planes.begin][v];
                    ivec& to = past_last[bz - planes.begin][v];
                    from = (in & (from > begin)) ? ivec{} + begin : from;
                    to = (in & (to < end)) ? ivec{} + end : to;
                }
            });
            x = hull(x, {part.bx, part.bx + plan.bricks});
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

// BRICK_ROWS rows of W voxels, from brick bx of the grid on in a row of bricks.
struct Rows {
    int x, y, z;  // the first voxel

    Rows(const Plan& plan, int bz, int by, int bx) : x(bx * BX), y(plan.first_y + by * BY), z(plan.first_z + bz * BZ) {}

    bool inside(const Grid& grid) const {
        return x >= 0 && x + W <= grid.n[0] && y + BY <= grid.n[1] && z + BZ <= grid.n[2];
    }
    bool has(const Grid& grid, int row) const { return y + row % BY < grid.n[1] && z + row / BY < grid.n[2]; }
    int64_t in_grid(const Grid& grid, int row) const {
        return (int64_t(z + row / BY) * grid.n[1] + (y + row % BY)) * grid.n[0] + x;
    }
    // f(row, lane, place in the grid's array) for those voxels that the grid has.
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
    const Rows rows(plan, bz, by, bx);
    if (rows.inside(plan.grid)) {
        for (int row = 0; row < BRICK_ROWS; ++row) bricks[row] = load(map + rows.in_grid(plan.grid, row));
    } else if (plan.grid.n[0] >= W) {
        // Read at a shift from W voxels that the row does have, between others that stand for those outside of it.
        const int begin = std::min(std::max(rows.x, 0), plan.grid.n[0] - W);
        const int shift = std::min(std::max(rows.x - begin, -W), W);
        float around[3 * W];
        store(around, splat(outside));
        store(around + 2 * W, splat(outside));
        for (int row = 0; row < BRICK_ROWS; ++row) {
            store(around + W, rows.has(plan.grid, row) ? load(map + (rows.in_grid(plan.grid, row) + begin - rows.x))
                                                       : splat(outside));
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
    vec turned[BRICK_ROWS];
    std::copy_n(bricks, BRICK_ROWS, turned);
    transpose(turned);
    const Rows rows(plan, bz, by, bx);
    if (rows.inside(plan.grid)) {
        for (int row = 0; row < BRICK_ROWS; ++row) store(map + rows.in_grid(plan.grid, row), turned[row]);
    } else {
        float values[BRICK_ROWS][W];
        for (int row = 0; row < BRICK_ROWS; ++row) store(values[row], turned[row]);
        rows.each_voxel(plan.grid, [&](int row, int lane, int64_t at) { map[at] = values[row][lane]; });
    }
}

// f(plane, row, brick of the grid, place in the scratch) for every BRICK_ROWS bricks that atoms reach; after each row, after().
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
