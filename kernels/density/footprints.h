// Where an atom is on the grid, and its footprint: the bricks that its sphere touches in one tile.
//
// Bricks are counted within a box: the part of the grid that any atom reaches, in whole bricks (bricks.h). Along x a footprint
// holds as many bricks as any row of any sphere needs; along y and z only the columns of bricks near enough to the atom.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <stdexcept>
#include <string>

#include "../grid.h"
#include "bricks.h"

namespace openmm_density {

// The size of a tile, in bricks; along x it is as wide as its atoms reach.
constexpr int TILE_Z = 16 / BZ;
constexpr int TILE_Y = 32 / BY;

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
inline Interval hull(Interval a, Interval b) { return {std::min(a.begin, b.begin), std::max(a.end, b.end)}; }

// Where an atom is, in voxels along each axis: `offset` from the voxel nearest to it. Apart, since a float that held both would
// lose digits of the distances to the voxels close by, from which most of the density comes.
struct GridPosition {
    int nearest[3];
    float offset[3];
    Interval range[3];  // of the voxels that it may reach, not yet wrapped nor clipped
    bool near() const { return range[0].begin != INT_MIN; }
};

// One image of an atom in a tile: how many cells away it is, which is 0 on a finite grid.
struct Image {
    int atom;
    std::array<int, 3> cell;
};

// The bricks of a tile that one image reaches, [by, by + n_y) x [bz, bz + n_z) in the box, from brick bx of the grid on along x.
struct TileFootprint {
    int atom;
    int bx, by, bz;
    int n_y, n_z;
    int first[3];        // along x, y, z the first voxel of the first of these, counted from the one nearest to the atom
    float offset[3];     // of the atom's GridPosition
    // The columns of bricks along x that the sphere may touch, counted from the first.
    int n_columns;
    // They are written a whole plane at a time: TILE_Y more than there can be.
    unsigned char column_y[TILE_Y * TILE_Z + TILE_Y], column_z[TILE_Y * TILE_Z + TILE_Y];
    static_assert(TILE_Y <= 256 && TILE_Z <= 256, "columns are numbered in a byte");

    // From the atom to the middle of a row, or a plane, of its bricks, in voxels.
    float middle_y(int row) const { return (static_cast<float>(first[1] + row * BY) + 0.5f * (BY - 1)) - offset[1]; }
    float middle_z(int plane) const { return (static_cast<float>(first[2] + plane * BZ) + 0.5f * (BZ - 1)) - offset[2]; }
};

typedef unsigned char bytes __attribute__((vector_size(TILE_Y)));
inline bytes row_numbers() {
    bytes x;
    for (int i = 0; i < TILE_Y; ++i) x[i] = static_cast<unsigned char>(i);
    return x;
}

inline int64_t floor_of_quotient(int64_t i, int n) { return (i >= 0 ? i : i - n + 1) / n; }

// What one call's grid and cut-off mean for spheres and bricks.
struct Plan {
    const Grid& grid;
    const Atoms& atoms;
    const float* edges;  // (atoms, gaussians): A exp(-alpha s_c)
    double reach[3];     // of the sphere along each axis, in voxels
    int bricks;          // along x that hold any row of an atom
    int first_y, first_z;  // voxels of the grid at which the box of bricks begins
    int rows_y = 0, planes = 0;  // of bricks, in the box
    // Columns of bricks along x: the squared distance of one from an atom is yy y^2 + 2 yz y z + zz z^2, with y and z from the
    // atom to its middle, and a column that is not nearer than this holds no voxel of the sphere; that is, one with
    // |y - tilt z| not below sqrt(farthest_square - flattening z^2).
    float yy, yz, zz, farthest_column;
    float tilt, flattening, farthest_square;

    Plan(const Grid& grid, const Atoms& atoms, const float* edges) : grid(grid), atoms(atoms), edges(edges) {
        for (int axis = 0; axis < 3; ++axis) {
            reach[axis] = grid.reach(axis, atoms.cutoff);
            if (!(reach[axis] < (1 << 24)))
                throw std::runtime_error("the cutoff reaches over " + std::to_string(reach[axis]) + " voxels: make it smaller");
        }
        // Beyond a whole number of voxels by rounding alone there would be one more, whose density is nothing but rounding.
        const int voxels = std::max(1, static_cast<int>(std::ceil(2 * reach[0] * (1 - 1e-6))));
        bricks = (voxels + BX - 2) / BX + 1;
        const auto& m = grid.matrix;
        const auto dot = [&](int a, int b) { return m[0][a] * m[0][b] + m[1][a] * m[1][b] + m[2][a] * m[2][b]; };
        const double xx = dot(0, 0);
        const double exact_yy = dot(1, 1) - dot(0, 1) * dot(0, 1) / xx, exact_zz = dot(2, 2) - dot(0, 2) * dot(0, 2) / xx;
        const double exact_yz = dot(1, 2) - dot(0, 1) * dot(0, 2) / xx;
        const double half_y = 0.5 * (BY - 1), half_z = 0.5 * (BZ - 1);
        const double corner =
            std::sqrt(exact_yy * half_y * half_y + 2 * std::abs(exact_yz) * half_y * half_z + exact_zz * half_z * half_z);
        yy = static_cast<float>(exact_yy);
        yz = static_cast<float>(exact_yz);
        zz = static_cast<float>(exact_zz);
        farthest_column = static_cast<float>((atoms.cutoff + corner) * (atoms.cutoff + corner) * (1 + 1e-5));
        tilt = -yz / yy;
        flattening = (zz - yz * yz / yy) / yy;
        farthest_square = farthest_column / yy;
    }

    // The voxels of an image that lie in the grid, along one axis.
    Interval inside(int axis, const GridPosition& position, int64_t cell) const {
        const Interval whole = position.range[axis];
        const int64_t shift = cell * grid.n[axis];
        return {static_cast<int>(std::max<int64_t>(whole.begin - shift, 0)),
                static_cast<int>(std::min<int64_t>(whole.end - shift, grid.n[axis]))};
    }

    // f(cell, voxels inside) for every image that has some, along one axis.
    template <typename F>
    void each_image_along(int axis, const GridPosition& position, const F& f) const {
        const Interval whole = position.range[axis];
        const int n = grid.n[axis];
        int64_t first = 0, last = 0;
        if (grid.periodic) {
            first = floor_of_quotient(whole.begin, n);
            last = floor_of_quotient(int64_t(whole.end) - 1, n);
        }
        for (int64_t cell = first; cell <= last; ++cell) {
            const Interval voxels = inside(axis, position, cell);
            if (voxels.begin < voxels.end) f(static_cast<int>(cell), voxels);
        }
    }

    // f(cells, rows, planes) for every image of an atom that reaches the grid.
    template <typename F>
    void each_image(const GridPosition& position, const F& f) const {
        if (!grid.periodic) {
            const Interval x = inside(0, position, 0), y = inside(1, position, 0), z = inside(2, position, 0);
            if (x.begin < x.end && y.begin < y.end && z.begin < z.end) f(std::array<int, 3>{}, y, z);
            return;
        }
        each_image_along(2, position, [&](int cell_z, Interval z) {
            each_image_along(1, position, [&](int cell_y, Interval y) {
                each_image_along(0, position, [&](int cell_x, Interval) {
                    f(std::array<int, 3>{cell_x, cell_y, cell_z}, y, z);
                });
            });
        });
    }

    Interval bricks_y(Interval y) const { return {(y.begin - first_y) / BY, (y.end - 1 - first_y) / BY + 1}; }
    Interval bricks_z(Interval z) const { return {(z.begin - first_z) / BZ, (z.end - 1 - first_z) / BZ + 1}; }

    // Fill the footprint of an image within these bricks of the box. touch(plane, first row, last row + 1) for its bricks in the box.
    template <typename F>
    void set_footprint(TileFootprint& footprint, const GridPosition& position, const Image& image, Interval by, Interval bz,
                       const F& touch) const {
        const auto from_nearest = [&](int axis, int64_t voxel) {
            return static_cast<int>(voxel + int64_t(image.cell[axis]) * grid.n[axis] - position.nearest[axis]);
        };
        footprint.atom = image.atom;
        std::copy_n(position.offset, 3, footprint.offset);
        footprint.bx =
            static_cast<int>(floor_of_quotient(position.range[0].begin - int64_t(image.cell[0]) * grid.n[0], BX));
        footprint.by = by.begin;
        footprint.bz = bz.begin;
        footprint.n_y = by.end - by.begin;
        footprint.n_z = bz.end - bz.begin;
        footprint.first[0] = from_nearest(0, int64_t(footprint.bx) * BX);
        footprint.first[1] = from_nearest(1, first_y + by.begin * BY);
        footprint.first[2] = from_nearest(2, first_z + bz.begin * BZ);
        // Columns of a plane that are near enough are neighbours. How many there are is as good as random, so a branch would be
        // mispredicted: a whole plane is written, and the next one begins where it ends. First and last are rounded so that a
        // column on the limit is kept.
        const float rows = static_cast<float>(footprint.n_y);
        const float first = footprint.middle_y(0), plane = footprint.middle_z(0);
        int begin[TILE_Z], end[TILE_Z];
        for (int z = 0; z < TILE_Z; ++z) {
            const float dz = plane + static_cast<float>(z * BZ);
            const float half = std::sqrt(std::max(farthest_square - flattening * dz * dz, 0.0f)), middle = tilt * dz - first;
            begin[z] = static_cast<int>(std::min(std::max((middle - half) * (1.0f / BY) + 0.9999f, 0.0f), rows));
            end[z] = static_cast<int>(std::min(std::max((middle + half) * (1.0f / BY) + 1.0001f, 0.0f), rows));
        }
        int n = 0;
        for (int z = 0; z < footprint.n_z; ++z) {
            const bytes ys = row_numbers() + static_cast<unsigned char>(begin[z]), zs = bytes{} + static_cast<unsigned char>(z);
            std::memcpy(footprint.column_y + n, &ys, sizeof(bytes));
            std::memcpy(footprint.column_z + n, &zs, sizeof(bytes));
            n += std::max(end[z] - begin[z], 0);
            touch(bz.begin + z, by.begin + begin[z], by.begin + end[z]);
        }
        footprint.n_columns = n;
    }
};

}  // namespace openmm_density
