// Where the voxels of a map are: r = origin + matrix (i, j, k), on a finite grid or a periodic one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

namespace openmm_density {

struct Grid {
    int n[3];             // voxels along x, y, z
    double matrix[3][3];  // columns: the steps from voxel to voxel
    double inverse[3][3];
    double origin[3];
    bool periodic;

    Grid(const at::Tensor& matrix_, const at::Tensor& origin_, at::IntArrayRef shape_zyx, bool periodic_)
        : periodic(periodic_) {
        TORCH_CHECK(shape_zyx.size() == 3, "a grid has three dimensions (nz, ny, nx), not ", shape_zyx.size());
        for (int axis = 0; axis < 3; ++axis) {
            const int64_t size = shape_zyx[2 - axis];
            TORCH_CHECK(size > 0 && size < (int64_t(1) << 30), "a grid has from 1 to ",
                        (int64_t(1) << 30) - 1, " voxels along an axis, not ", size);
            n[axis] = static_cast<int>(size);
        }
        TORCH_CHECK(matrix_.sizes() == at::IntArrayRef({3, 3}) && matrix_.scalar_type() == at::kDouble,
                    "matrix must be a float64 tensor of shape (3, 3), not ", matrix_.scalar_type(), " of shape ", matrix_.sizes());
        TORCH_CHECK(origin_.sizes() == at::IntArrayRef({3}) && origin_.scalar_type() == at::kDouble,
                    "origin must be a float64 tensor of shape (3,), not ", origin_.scalar_type(), " of shape ", origin_.sizes());
        const auto m = matrix_.contiguous(), o = origin_.contiguous();
        for (int row = 0; row < 3; ++row) {
            origin[row] = o.const_data_ptr<double>()[row];
            for (int column = 0; column < 3; ++column)
                matrix[row][column] = m.const_data_ptr<double>()[3 * row + column];
        }
        const auto minor = [&](int r, int c) {
            const int r1 = (r + 1) % 3, r2 = (r + 2) % 3, c1 = (c + 1) % 3, c2 = (c + 2) % 3;
            return matrix[r1][c1] * matrix[r2][c2] - matrix[r1][c2] * matrix[r2][c1];
        };
        const double determinant = matrix[0][0] * minor(0, 0) + matrix[0][1] * minor(0, 1) + matrix[0][2] * minor(0, 2);
        TORCH_CHECK(determinant != 0 && std::isfinite(determinant), "the steps of the grid span no volume: the determinant of matrix is ",
                    determinant, ", and must be finite and not 0");
        for (int row = 0; row < 3; ++row)
            for (int column = 0; column < 3; ++column) inverse[column][row] = minor(row, column) / determinant;
    }

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
