// Where the voxels of a map are: r = origin + matrix (i, j, k), on a finite grid or a periodic one.
#pragma once

#include <cmath>
#include <cstdint>

namespace openmm_density {

struct Grid {
    int n[3];             // voxels along x, y, z
    double matrix[3][3];  // columns: the steps from voxel to voxel
    double inverse[3][3];
    double origin[3];
    double determinant;
    bool periodic;

    // Of a matrix in rows and a shape (nz, ny, nx). A grid `spans_volume` or is of no use.
    Grid(const double* matrix_, const double* origin_, const int64_t* shape_zyx, bool periodic_) : periodic(periodic_) {
        for (int row = 0; row < 3; ++row) {
            n[row] = static_cast<int>(shape_zyx[2 - row]);
            origin[row] = origin_[row];
            for (int column = 0; column < 3; ++column) matrix[row][column] = matrix_[3 * row + column];
        }
        const auto minor = [&](int r, int c) {
            const int r1 = (r + 1) % 3, r2 = (r + 2) % 3, c1 = (c + 1) % 3, c2 = (c + 2) % 3;
            return matrix[r1][c1] * matrix[r2][c2] - matrix[r1][c2] * matrix[r2][c1];
        };
        determinant = matrix[0][0] * minor(0, 0) + matrix[0][1] * minor(0, 1) + matrix[0][2] * minor(0, 2);
        for (int row = 0; row < 3; ++row)
            for (int column = 0; column < 3; ++column) inverse[column][row] = minor(row, column) / determinant;
    }

    bool spans_volume() const { return determinant != 0 && std::isfinite(determinant); }

    bool orthogonal() const {
        return matrix[0][1] == 0 && matrix[0][2] == 0 && matrix[1][0] == 0 && matrix[1][2] == 0 && matrix[2][0] == 0 &&
               matrix[2][1] == 0;
    }

    // The index-space coordinates of a point, reduced into the cell of a periodic grid in double, so that a point a
    // thousand cells away loses nothing. False where they are not finite or beyond any grid.
    template <typename T>
    bool locate(const T* position, double u[3]) const {
        const double d[3] = {position[0] - origin[0], position[1] - origin[1], position[2] - origin[2]};
        for (int axis = 0; axis < 3; ++axis) {
            u[axis] = inverse[axis][0] * d[0] + inverse[axis][1] * d[1] + inverse[axis][2] * d[2];
            if (!(std::abs(u[axis]) < 1e9)) return false;
            if (periodic) u[axis] -= n[axis] * std::floor(u[axis] / n[axis]);
        }
        return true;
    }

    // How far a sphere reaches along an axis, in voxels.
    double reach(int axis, double radius) const {
        const double* row = inverse[axis];
        return radius * std::sqrt(row[0] * row[0] + row[1] * row[1] + row[2] * row[2]);
    }
};

}  // namespace openmm_density
