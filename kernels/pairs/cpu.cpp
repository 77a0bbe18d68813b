// Energies of pairs on the CPU: the operator, from checked arguments to results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in steps, beside the threads of OpenMM
#include "../dtypes.h"
#include "../scale.h"
#include "mates.h"
#include "sweep.h"

namespace openmm_density {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check_table(const char* op, const at::Tensor& table, at::ScalarType type, at::IntArrayRef shape, const char* name) {
    TORCH_CHECK_VALUE(table.sizes() == shape && table.scalar_type() == type && table.is_contiguous(), op, ": ", name,
                      " must be a contiguous tensor of ", dtype_name(type), " of shape ", shape, ", not ", dtype_name(table), " of shape ",
                      table.sizes());
}

void check_offsets(const at::Tensor& offsets, int64_t room, const char* name) {
    const int32_t* const values = offsets.const_data_ptr<int32_t>();
    const int64_t n = offsets.numel();
    bool rises = values[0] == 0 && values[n - 1] <= room;
    for (int64_t i = 1; i < n; ++i) rises &= values[i] >= values[i - 1];
    TORCH_CHECK_VALUE(rises, "pairs: ", name, " must rise from 0 to ", room, " at most");
}

// A number in the middle of an axis, whatever a few atoms that are far away or nowhere do: the median of some coordinates.
template <typename Real>
Real middle(const Real* positions, int64_t n, int axis) {
    constexpr int64_t MOST = 63;
    Real found[MOST];
    int64_t count = 0;
    for (int64_t k = 0; k < std::min(n, MOST); ++k) {
        const Real x = positions[3 * (k * n / std::min(n, MOST)) + axis];
        if (std::isfinite(x)) found[count++] = x;
    }
    if (count == 0) return Real(0);
    std::nth_element(found, found + count / 2, found + count);
    return found[count / 2];
}

// What a pair needs of an atom, side by side; positions as seen from the middle of all, so that fewer digits are lost.
template <typename Real>
std::unique_ptr<float[]> records_of(const Real* positions, const float* parameters, int64_t n) {
    std::unique_ptr<float[]> records(new float[RECORD * std::max<int64_t>(1, n)]);
    const Real origin[3] = {middle(positions, n, 0), middle(positions, n, 1), middle(positions, n, 2)};
    parallel_for((n + ATOMS_PER_TASK - 1) / ATOMS_PER_TASK, [&](int64_t task, int) {
        for (int64_t i = task * ATOMS_PER_TASK; i < std::min(n, (task + 1) * ATOMS_PER_TASK); ++i) {
            float* const record = records.get() + RECORD * i;
            for (int axis = 0; axis < 3; ++axis) {
                record[axis] = static_cast<float>(positions[3 * i + axis] - origin[axis]);
                record[4 + axis] = parameters[3 * i + axis];
            }
            record[3] = record[7] = 0;
        }
    });
    return records;
}

template <typename Real>
void halve(Real* numbers, int64_t n) {
    for (int64_t k = 0; k < n; ++k) numbers[k] *= Real(0.5);
}

using SweepFunction = bool (*)(const List&, const float*, const float*, const Setting&, float*, Totals&);

template <int... form>
constexpr std::array<SweepFunction, sizeof...(form)> sweeps(std::integer_sequence<int, form...>) {
    return {sweep<form>...};
}

template <typename Real>
bool evaluate(const List& list, const at::Tensor& positions, const at::Tensor& parameters, const float* box, int64_t form,
              const Setting& setting, const at::Tensor& gradient, Totals& totals) {
    const auto records = records_of(positions.const_data_ptr<Real>(), parameters.const_data_ptr<float>(), list.n_atoms);
    constexpr auto functions = sweeps(std::make_integer_sequence<int, FORMS>());
    const std::unique_ptr<float[]> parts(new float[4 * list.n_atoms * blocks_of(list.n_atoms)]);
    const bool sound = functions[form](list, records.get(), box, setting, parts.get(), totals);
    add_blocks(parts.get(), list.n_atoms, gradient.mutable_data_ptr<Real>());
    return sound;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> pairs(const at::Tensor& positions_, const OptionalTensor& box, const at::Tensor& offsets,
                                                     const at::Tensor& neighbors, const at::Tensor& shifts, const at::Tensor& parameters,
                                                     int64_t form, double cutoff, at::ArrayRef<double> settings,
                                                     const OptionalTensor& excluded_offsets, const OptionalTensor& excluded,
                                                     bool both_ways) {
    const at::ScalarType type = positions_.scalar_type();
    TORCH_CHECK_VALUE(positions_.dim() == 2 && positions_.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "pairs: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ", positions_.sizes(),
                      " and type ", dtype_name(type));
    const int64_t n = positions_.size(0), room = neighbors.numel();
    check_table("pairs", offsets, at::kInt, {n + 1}, "offsets");
    check_table("pairs", neighbors, at::kInt, {room}, "neighbors");
    check_table("pairs", shifts, at::kInt, {room}, "shifts");
    check_table("pairs", parameters, at::kFloat, {n, 3}, "parameters");
    check_offsets(offsets, room, "offsets");
    TORCH_CHECK_VALUE(excluded_offsets.has_value() == excluded.has_value(),
                      "pairs: give excluded_offsets and excluded, or neither: take both from pack_exclusions");
    List list{n, offsets.const_data_ptr<int32_t>(), neighbors.const_data_ptr<int32_t>(), shifts.const_data_ptr<int32_t>(), nullptr, nullptr};
    if (excluded) {
        check_table("pairs", *excluded_offsets, at::kInt, {n + 1}, "excluded_offsets");
        check_table("pairs", *excluded, at::kInt, {excluded->numel()}, "excluded");
    }
    if (excluded && excluded->numel()) {
        check_offsets(*excluded_offsets, excluded->numel(), "excluded_offsets");
        list.excluded_offsets = excluded_offsets->const_data_ptr<int32_t>();
        list.excluded = excluded->const_data_ptr<int32_t>();
    }
    float vectors[9];
    if (box) {
        TORCH_CHECK_VALUE(box->dim() == 2 && box->size(0) == 3 && box->size(1) == 3 &&
                              (box->scalar_type() == at::kFloat || box->scalar_type() == at::kDouble),
                          "pairs: box must be a float32 or float64 tensor of shape (3, 3), not ", dtype_name(*box), " of shape ",
                          box->sizes());
        const at::Tensor rows = box->to(at::kFloat).contiguous();
        std::memcpy(vectors, rows.const_data_ptr<float>(), sizeof(vectors));
    }
    TORCH_CHECK_VALUE(form >= 0 && form < FORMS, "pairs: form must be from 0 to ", FORMS - 1, ", not ", form);
    TORCH_CHECK_VALUE(std::isfinite(cutoff) && cutoff > 0, "pairs: cutoff must be a positive length, not ", cutoff);
    TORCH_CHECK_VALUE(settings.size() <= SETTINGS, "pairs: there may be ", SETTINGS, " settings, not ", settings.size());
    TORCH_CHECK_VALUE(static_cast<int>(settings.size()) >= NEEDED[form], "pairs: form ", form, " needs ", NEEDED[form], " settings, not ",
                      settings.size());
    double all_settings[SETTINGS] = {};
    std::copy(settings.begin(), settings.end(), all_settings);

    const at::Tensor positions = positions_.contiguous();
    at::Tensor gradient = at::empty({n, 3}, positions.options()), energy = at::empty({}, positions.options().dtype(at::kDouble)),
               virial = at::empty({3, 3}, positions.options().dtype(at::kDouble));
    Totals totals;
    const auto run = type == at::kDouble ? evaluate<double> : evaluate<float>;
    TORCH_CHECK_VALUE(run(list, positions, parameters, box ? vectors : nullptr, form, setting_of(form, cutoff, all_settings), gradient, totals),
                      "pairs: neighbors holds an index that is none of the ", n, " atoms'");
    // Each pair was added up as often as it is listed.
    const double share = both_ways ? 0.5 : 1.0;
    if (both_ways) type == at::kDouble ? halve(gradient.mutable_data_ptr<double>(), 3 * n) : halve(gradient.mutable_data_ptr<float>(), 3 * n);
    *energy.mutable_data_ptr<double>() = share * totals.energy;
    double* const to = virial.mutable_data_ptr<double>();
    for (int row = 0, at = 0; row < 3; ++row)
        for (int column = row; column < 3; ++column, ++at) to[3 * row + column] = to[3 * column + row] = share * totals.virial[at];
    return {energy, gradient, virial};
}

std::tuple<at::Tensor, at::Tensor> mate_contacts_operator(const at::Tensor& positions_, const at::Tensor& parameters,
                                                          const at::Tensor& images, const at::Tensor& excluded,
                                                          double cutoff, at::ArrayRef<double> settings, const OptionalTensor& scale) {
    const at::ScalarType type = positions_.scalar_type();
    TORCH_CHECK_VALUE(positions_.dim() == 2 && positions_.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "mate_contacts: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ",
                      positions_.sizes(), " and type ", dtype_name(type));
    const int64_t n = positions_.size(0), n_images = images.size(0), n_excluded = excluded.size(0);
    check_table("mate_contacts", parameters, at::kFloat, {n, 3}, "parameters");
    check_table("mate_contacts", images, at::kDouble, {n_images, 3, 4}, "images");
    check_table("mate_contacts", excluded, at::kInt, {n_excluded, 3}, "excluded");
    TORCH_CHECK_VALUE(std::isfinite(cutoff) && cutoff > 0, "mate_contacts: cutoff must be a positive length, not ", cutoff);
    TORCH_CHECK_VALUE(settings.size() == 3, "mate_contacts: there must be 3 settings, not ", settings.size());
    const at::Tensor positions = positions_.contiguous();
    at::Tensor gradient = at::empty({n, 3}, positions.options()), energy = at::empty({}, positions.options().dtype(at::kDouble));
    const Contacts given{n, parameters.const_data_ptr<float>(), n_images, images.const_data_ptr<double>(), n_excluded,
                         excluded.const_data_ptr<int32_t>(), cutoff, settings.data()};
    const double factor = value_of(scale);
    *energy.mutable_data_ptr<double>() =
        type == at::kFloat ? mate_contacts(given, positions.const_data_ptr<float>(), factor, gradient.mutable_data_ptr<float>())
                           : mate_contacts(given, positions.const_data_ptr<double>(), factor, gradient.mutable_data_ptr<double>());
    return {energy, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("pairs", pairs);
    m.impl("mate_contacts", mate_contacts_operator);
}

}  // namespace openmm_density
