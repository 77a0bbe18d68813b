// The types of tensors by the names that Python has for them: a message is the same sentence whichever implementation refuses something.
#pragma once

#include <ATen/core/Tensor.h>

namespace openmm_density {

inline const char* dtype_name(at::ScalarType type) {
    switch (type) {
        case at::kFloat: return "torch.float32";
        case at::kDouble: return "torch.float64";
        case at::kHalf: return "torch.float16";
        case at::kBFloat16: return "torch.bfloat16";
        case at::kLong: return "torch.int64";
        case at::kInt: return "torch.int32";
        case at::kShort: return "torch.int16";
        case at::kChar: return "torch.int8";
        case at::kByte: return "torch.uint8";
        case at::kBool: return "torch.bool";
        default: return at::toString(type);
    }
}

inline const char* dtype_name(const at::Tensor& tensor) { return dtype_name(tensor.scalar_type()); }

}  // namespace openmm_density
