// The grid of an operator's tensors, which are checked.
#pragma once

#include <ATen/core/Tensor.h>

#include "grid.h"

namespace openmm_density {

inline Grid grid_of(const at::Tensor& matrix, const at::Tensor& origin, at::IntArrayRef shape_zyx, bool periodic) {
    TORCH_CHECK(shape_zyx.size() == 3, "a grid has three dimensions (nz, ny, nx), not ", shape_zyx.size());
    for (const int64_t size : shape_zyx)
        TORCH_CHECK(size > 0 && size < (int64_t(1) << 30), "a grid has from 1 to ", (int64_t(1) << 30) - 1,
                    " voxels along an axis, not ", size);
    TORCH_CHECK(matrix.sizes() == at::IntArrayRef({3, 3}) && matrix.scalar_type() == at::kDouble,
                "matrix must be a float64 tensor of shape (3, 3), not ", matrix.scalar_type(), " of shape ", matrix.sizes());
    TORCH_CHECK(origin.sizes() == at::IntArrayRef({3}) && origin.scalar_type() == at::kDouble,
                "origin must be a float64 tensor of shape (3,), not ", origin.scalar_type(), " of shape ", origin.sizes());
    const Grid grid(matrix.contiguous().const_data_ptr<double>(), origin.contiguous().const_data_ptr<double>(), shape_zyx.data(),
                    periodic);
    TORCH_CHECK(grid.spans_volume(), "the steps of the grid span no volume: the determinant of matrix is ", grid.determinant,
                ", and must be finite and not 0");
    return grid;
}

}  // namespace openmm_density
