// Molecules put back whole, copies by symmetry operators, and forces of both among those of all particles, on the CPU. __init__.py and
// copies.py say how.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../dtypes.h"
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
                      "whole_molecules: positions must be a float32 or float64 tensor of shape (N, 3), not ", dtype_name(positions_),
                      " of shape ", positions_.sizes());
    TORCH_CHECK_VALUE(particles_.dim() == 1 && particles_.scalar_type() == at::kLong,
                      "whole_molecules: particles must be int64 of shape (M,), not ", dtype_name(particles_),
                      " of shape ", particles_.sizes());
    TORCH_CHECK_VALUE(order_.sizes() == particles_.sizes() && order_.scalar_type() == at::kLong,
                      "whole_molecules: order must be int64 of the shape of particles, not ", dtype_name(order_),
                      " of shape ", order_.sizes());
    TORCH_CHECK_VALUE(offsets_.dim() == 1 && offsets_.scalar_type() == at::kLong && offsets_.numel() > 0,
                      "whole_molecules: offsets must be int64 of shape (molecules + 1,), not ", dtype_name(offsets_),
                      " of shape ", offsets_.sizes());
    const int64_t n_molecules = offsets_.numel() - 1;
    TORCH_CHECK_VALUE(references_.sizes() == at::IntArrayRef({n_molecules, 3}) && references_.scalar_type() == at::kDouble,
                      "whole_molecules: references must be float64 of shape (molecules, 3), not ", dtype_name(references_),
                      " of shape ", references_.sizes());
    TORCH_CHECK_VALUE(box_.sizes() == at::IntArrayRef({3, 3}) && floats(box_),
                      "whole_molecules: box must be a float32 or float64 tensor of shape (3, 3), not ", dtype_name(box_),
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
                      "among_all: values must be a float32 or float64 tensor of shape (M, 3), not ", dtype_name(values_),
                      " of shape ", values_.sizes());
    TORCH_CHECK_VALUE(particles_.dim() == 1 && particles_.size(0) == values_.size(0) && particles_.scalar_type() == at::kLong,
                      "among_all: particles must be int64 of shape (M,), not ", dtype_name(particles_),
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

void check_copies(const char* name, const char* given, const at::Tensor& values, int64_t n_rows, const at::Tensor& atoms, int64_t count,
                  const at::Tensor& rotations) {
    const at::ScalarType type = values.scalar_type();
    TORCH_CHECK_VALUE(values.sizes() == at::IntArrayRef({n_rows, 3}) && (type == at::kFloat || type == at::kDouble), name, ": ", given,
                      " must be a tensor of ", dtype_name(type == at::kDouble ? type : at::kFloat), " of shape [", n_rows,
                      ", 3], but has shape ", values.sizes(), " and type ", dtype_name(type));
    TORCH_CHECK_VALUE(atoms.dim() == 1 && atoms.scalar_type() == at::kLong, name, ": atoms must be a tensor of torch.int64 of shape [",
                      atoms.numel(), "], but has shape ", atoms.sizes(), " and type ", dtype_name(atoms));
    TORCH_CHECK_VALUE(rotations.sizes() == at::IntArrayRef({rotations.size(0), 3, 3}) && rotations.scalar_type() == at::kDouble, name,
                      ": rotations must be a tensor of torch.float64 of shape [", rotations.size(0), ", 3, 3], but has shape ",
                      rotations.sizes(), " and type ", dtype_name(rotations));
    const int64_t* const atom = atoms.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < atoms.numel(); ++i)
        TORCH_CHECK_VALUE(atom[i] >= 0 && atom[i] < count, name, ": atoms holds index ", atom[i], ", but there are ", count,
                          " particles: they are counted from 0");
    std::vector<bool> named(std::max<int64_t>(count, 0), false);
    for (int64_t i = 0; i < atoms.numel(); ++i) {
        TORCH_CHECK_VALUE(!named[atom[i]], name, ": atoms holds index ", atom[i], " twice: an atom has one row of copies");
        named[atom[i]] = true;
    }
}

// In the order of openmm_density/energies/native_force/symmetry_mates.h, and rounded as there: no product is fused with a sum.
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
template <class Real>
void copy_atoms(const Real* positions, const int64_t* atoms, int64_t n_atoms, const double* rotations, const double* translations,
                int64_t n_copies, Real* copies) {
    for (int64_t copy = 0; copy < n_copies; ++copy) {
        const double* const R = rotations + 9 * copy;
        const double* const t = translations + 3 * copy;
        for (int64_t i = 0; i < n_atoms; ++i, copies += 3) {
            const Real* const x = positions + 3 * atoms[i];
            const double own[3] = {double(x[0]), double(x[1]), double(x[2])};
            for (int row = 0; row < 3; ++row)
                copies[row] = Real(own[0] * R[3 * row] + own[1] * R[3 * row + 1] + own[2] * R[3 * row + 2] + t[row]);
        }
    }
}

template <class Real>
void fold_copies(const Real* gradient, const int64_t* atoms, int64_t n_atoms, const double* rotations, int64_t n_copies, Real* folded) {
    for (int64_t i = 0; i < n_atoms; ++i) {
        double sum[3] = {0, 0, 0};
        for (int64_t copy = 0; copy < n_copies; ++copy) {
            const double* const R = rotations + 9 * copy;
            const Real* const f = gradient + 3 * (copy * n_atoms + i);
            for (int column = 0; column < 3; ++column)
                sum[column] += double(f[0]) * R[column] + double(f[1]) * R[3 + column] + double(f[2]) * R[6 + column];
        }
        for (int column = 0; column < 3; ++column) folded[3 * atoms[i] + column] = Real(sum[column]);
    }
}
#pragma GCC pop_options

at::Tensor symmetry_copies(const at::Tensor& positions_, const at::Tensor& atoms_, const at::Tensor& rotations_,
                           const at::Tensor& translations_) {
    const at::Tensor positions = positions_.contiguous(), atoms = atoms_.contiguous(), rotations = rotations_.contiguous();
    const int64_t n_rows = positions.dim() > 0 ? positions.size(0) : 0, n_copies = rotations.dim() > 0 ? rotations.size(0) : 0;
    check_copies("symmetry_copies", "positions", positions, n_rows, atoms, n_rows, rotations);
    TORCH_CHECK_VALUE(translations_.sizes() == at::IntArrayRef({n_copies, 3}) && translations_.scalar_type() == at::kDouble,
                      "symmetry_copies: translations must be a tensor of torch.float64 of shape [", n_copies, ", 3], but has shape ",
                      translations_.sizes(), " and type ", dtype_name(translations_));
    const at::Tensor translations = translations_.contiguous();
    at::Tensor copies = at::empty({n_copies * atoms.numel(), 3}, positions.options());
    const auto run = [&](auto* out) {
        using Real = std::remove_pointer_t<decltype(out)>;
        copy_atoms<Real>(positions.const_data_ptr<Real>(), atoms.const_data_ptr<int64_t>(), atoms.numel(),
                         rotations.const_data_ptr<double>(), translations.const_data_ptr<double>(), n_copies, out);
    };
    if (positions.scalar_type() == at::kDouble) {
        run(copies.mutable_data_ptr<double>());
    } else {
        run(copies.mutable_data_ptr<float>());
    }
    return copies;
}

at::Tensor folded_copies(const at::Tensor& gradient_, const at::Tensor& atoms_, const at::Tensor& rotations_, int64_t count) {
    const at::Tensor gradient = gradient_.contiguous(), atoms = atoms_.contiguous(), rotations = rotations_.contiguous();
    const int64_t n_copies = rotations.dim() > 0 ? rotations.size(0) : 0;
    check_copies("folded_copies", "gradient", gradient, n_copies * atoms.numel(), atoms, count, rotations);
    at::Tensor folded = at::empty({count, 3}, gradient.options());
    std::memset(folded.mutable_data_ptr(), 0, folded.nbytes());
    const auto run = [&](auto* out) {
        using Real = std::remove_pointer_t<decltype(out)>;
        fold_copies<Real>(gradient.const_data_ptr<Real>(), atoms.const_data_ptr<int64_t>(), atoms.numel(),
                          rotations.const_data_ptr<double>(), n_copies, out);
    };
    if (gradient.scalar_type() == at::kDouble) {
        run(folded.mutable_data_ptr<double>());
    } else {
        run(folded.mutable_data_ptr<float>());
    }
    return folded;
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("whole_molecules", whole_molecules);
    m.impl("among_all", among_all);
    m.impl("symmetry_copies", symmetry_copies);
    m.impl("folded_copies", folded_copies);
}

}  // namespace openmm_density
