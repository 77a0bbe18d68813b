// Molecules put back whole, and their forces among those of all particles, on the CPU. __init__.py says how.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "whole.h"

namespace openmm_density {
namespace {

void check_entries(int64_t n_particles, const at::Tensor& particles, const at::Tensor& order, const at::Tensor& offsets) {
    const int64_t n = order.numel(), n_offsets = offsets.numel();
    const int64_t* const particle = particles.const_data_ptr<int64_t>();
    const int64_t* const row = order.const_data_ptr<int64_t>();
    const int64_t* const offset = offsets.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < n; ++i)
        TORCH_CHECK_VALUE(particle[i] >= 0 && particle[i] < n_particles, "whole_molecules: particle ", particle[i],
                          " is not among the ", n_particles, " positions: particles are counted from 0");
    std::vector<bool> named(n, false);
    for (int64_t i = 0; i < n; ++i) {
        TORCH_CHECK_VALUE(row[i] >= 0 && row[i] < n && !named[row[i]],
                          "whole_molecules: order must name each row of particles, 0 to ", n - 1, ", once");
        named[row[i]] = true;
    }
    bool rises = offset[0] == 0 && offset[n_offsets - 1] == n;
    for (int64_t i = 1; i < n_offsets; ++i) rises &= offset[i] > offset[i - 1];
    TORCH_CHECK_VALUE(rises, "whole_molecules: offsets must rise from 0 to ", n, " in steps of at least 1");
}

at::Tensor whole_molecules(const at::Tensor& positions_, const at::Tensor& particles_, const at::Tensor& order_,
                           const at::Tensor& offsets_, const at::Tensor& references_, const at::Tensor& box_) {
    const at::ScalarType type = positions_.scalar_type();
    const auto floats = [](const at::Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble; };
    TORCH_CHECK_VALUE(positions_.dim() == 2 && positions_.size(1) == 3 && floats(positions_),
                      "whole_molecules: positions must be a float32 or float64 tensor of shape (N, 3), not ", positions_.scalar_type(),
                      " of shape ", positions_.sizes());
    TORCH_CHECK_VALUE(particles_.dim() == 1 && particles_.scalar_type() == at::kLong,
                      "whole_molecules: particles must be int64 of shape (M,), not ", particles_.scalar_type(),
                      " of shape ", particles_.sizes());
    TORCH_CHECK_VALUE(order_.sizes() == particles_.sizes() && order_.scalar_type() == at::kLong,
                      "whole_molecules: order must be int64 of the shape of particles, not ", order_.scalar_type(),
                      " of shape ", order_.sizes());
    TORCH_CHECK_VALUE(offsets_.dim() == 1 && offsets_.scalar_type() == at::kLong && offsets_.numel() > 0,
                      "whole_molecules: offsets must be int64 of shape (molecules + 1,), not ", offsets_.scalar_type(),
                      " of shape ", offsets_.sizes());
    const int64_t n_molecules = offsets_.numel() - 1;
    TORCH_CHECK_VALUE(references_.sizes() == at::IntArrayRef({n_molecules, 3}) && references_.scalar_type() == at::kDouble,
                      "whole_molecules: references must be float64 of shape (molecules, 3), not ", references_.scalar_type(),
                      " of shape ", references_.sizes());
    TORCH_CHECK_VALUE(box_.sizes() == at::IntArrayRef({3, 3}) && floats(box_),
                      "whole_molecules: box must be a float32 or float64 tensor of shape (3, 3), not ", box_.scalar_type(),
                      " of shape ", box_.sizes());
    const at::Tensor positions = positions_.contiguous(), particles = particles_.contiguous(), order = order_.contiguous();
    const at::Tensor offsets = offsets_.contiguous(), references = references_.contiguous();
    check_entries(positions.size(0), particles, order, offsets);
    const at::Tensor box = box_.to(at::kDouble).contiguous();
    const Lattice lattice(box.const_data_ptr<double>());
    at::Tensor whole = at::empty({particles.numel(), 3}, positions.options());
    const auto run = [&](auto* out) {
        using Real = std::remove_pointer_t<decltype(out)>;
        shift_molecules<Real>(positions.const_data_ptr<Real>(), particles.const_data_ptr<int64_t>(),
                              order.const_data_ptr<int64_t>(), offsets.const_data_ptr<int64_t>(), n_molecules,
                              references.const_data_ptr<double>(), lattice, out);
    };
    if (type == at::kDouble) {
        run(whole.mutable_data_ptr<double>());
    } else {
        run(whole.mutable_data_ptr<float>());
    }
    return whole;
}

// Not at::zeros and index_copy, whose threads spin on: see scale.h.
at::Tensor among_all(const at::Tensor& values_, const at::Tensor& particles_, int64_t count) {
    const at::ScalarType type = values_.scalar_type();
    TORCH_CHECK_VALUE(values_.dim() == 2 && values_.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "among_all: values must be a float32 or float64 tensor of shape (M, 3), not ", values_.scalar_type(),
                      " of shape ", values_.sizes());
    TORCH_CHECK_VALUE(particles_.dim() == 1 && particles_.size(0) == values_.size(0) && particles_.scalar_type() == at::kLong,
                      "among_all: particles must be int64 of shape (M,), not ", particles_.scalar_type(),
                      " of shape ", particles_.sizes());
    const at::Tensor values = values_.contiguous(), particles = particles_.contiguous();
    const int64_t* const particle = particles.const_data_ptr<int64_t>();
    at::Tensor all = at::empty({count, 3}, values.options());
    std::memset(all.mutable_data_ptr(), 0, all.nbytes());
    const int64_t row_bytes = 3 * values.element_size();
    const char* const from = static_cast<const char*>(values.const_data_ptr());
    char* const to = static_cast<char*>(all.mutable_data_ptr());
    for (int64_t i = 0; i < particles.numel(); ++i) {
        TORCH_CHECK_VALUE(particle[i] >= 0 && particle[i] < count, "among_all: particle ", particle[i], " is not among the ",
                          count, ": particles are counted from 0");
        std::memcpy(to + particle[i] * row_bytes, from + i * row_bytes, row_bytes);
    }
    return all;
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("whole_molecules", whole_molecules);
    m.impl("among_all", among_all);
}

}  // namespace openmm_density
