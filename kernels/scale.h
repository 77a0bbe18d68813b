// `scale`: the factor that turns a gradient into forces, which an operator takes as an option.
//
// The operators of a time step apply it themselves: torch would share such a product of many particles among threads of its own,
// which spin for milliseconds afterwards and take the cores from everything else in the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace openmm_density {

inline double value_of(const std::optional<at::Tensor>& scale) {
    if (!scale) return 1.0;
    TORCH_CHECK(scale->numel() == 1 && scale->scalar_type() == at::kDouble, "scale must be one number in float64, not ",
                scale->numel(), " in ", scale->scalar_type());
    return *scale->const_data_ptr<double>();
}

}  // namespace openmm_density
