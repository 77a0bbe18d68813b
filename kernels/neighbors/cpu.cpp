// Neighbour lists on the CPU: the operators, from checked arguments to results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in steps, beside the threads of OpenMM
#include "../dtypes.h"
#include "rows.h"

namespace openmm_density {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check_call(const at::Tensor& positions, double cutoff, double skin) {
    const at::ScalarType type = positions.scalar_type();
    TORCH_CHECK_VALUE(positions.dim() == 2 && positions.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "neighbors: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ",
                      positions.sizes(), " and type ", dtype_name(type));
    TORCH_CHECK_VALUE(positions.size(0) < INT32_MAX, "neighbors: there may be 2^31 - 2 atoms, not ", positions.size(0));
    TORCH_CHECK_VALUE(std::isfinite(cutoff) && cutoff > 0, "neighbors: cutoff must be a positive length, not ", cutoff);
    TORCH_CHECK_VALUE(std::isfinite(skin) && skin >= 0, "neighbors: skin must be 0 or a positive length, not ", skin);
}

Brick brick_of(const OptionalTensor& box, double cutoff) {
    if (!box) return Brick();
    TORCH_CHECK_VALUE(box->dim() == 2 && box->size(0) == 3 && box->size(1) == 3 &&
                          (box->scalar_type() == at::kFloat || box->scalar_type() == at::kDouble),
                      "neighbors: box must be a float32 or float64 tensor of shape (3, 3), not ", dtype_name(*box), " of shape ",
                      box->sizes());
    const Brick brick(box->to(at::kDouble).contiguous().const_data_ptr<double>());
    TORCH_CHECK_VALUE(brick.smallest_height > 0, "neighbors: box must be three vectors that are not in a plane");
    TORCH_CHECK_VALUE(cutoff <= MOST_HEIGHTS * brick.smallest_height, "neighbors: the cut-off may be ", MOST_HEIGHTS,
                      " times the smallest height of the box, not ", cutoff / brick.smallest_height, " times");
    return brick;
}

void check_table(const at::Tensor& table, at::ScalarType type, at::IntArrayRef shape, const char* name) {
    TORCH_CHECK_VALUE(table.sizes() == shape && table.scalar_type() == type && table.is_contiguous(), "neighbors: ", name,
                      " must be a contiguous tensor of ", dtype_name(type), " of shape ", shape, ", not ", dtype_name(table), " of shape ",
                      table.sizes());
}

// A search between its two passes: rows are counted, and filled once it is known where they begin.
template <typename Real>
class Search {
   public:
    Search(const at::Tensor& positions, Brick brick, double cutoff, bool both_ways, int32_t* offsets)
        : positions_(positions.const_data_ptr<Real>()),
          n_atoms_(positions.size(0)),
          brick_(enclosed(brick)),
          cells_(sort_atoms(positions_, n_atoms_, brick_, cutoff)),
          scope_(cells_, cutoff, both_ways),
          offsets_(offsets) {
        std::fill(offsets_, offsets_ + n_atoms_ + 1, 0);
        for_each_atom([&](int32_t p) { offsets_[cells_.atom[p] + 1] = count_row(brick_, cells_, scope_, positions_, p); });
        for (int64_t i = 1; i <= n_atoms_; ++i) n_pairs_ += offsets_[i];
    }

    int64_t n_pairs() const { return n_pairs_; }
    int64_t n_lost() const { return n_atoms_ - cells_.n_sorted; }

    void fill(int64_t capacity, int32_t* neighbors, int32_t* shifts) {
        int64_t end = 0;
        for (int64_t i = 1; i <= n_atoms_; ++i) {
            end = std::min(capacity, end + offsets_[i]);
            offsets_[i] = static_cast<int32_t>(end);
        }
        for_each_atom([&](int32_t p) {
            const int32_t atom = cells_.atom[p];
            if (offsets_[atom] < offsets_[atom + 1])
                fill_row(brick_, cells_, scope_, positions_, p, offsets_[atom], offsets_[atom + 1], neighbors, shifts);
        });
    }

   private:
    Brick enclosed(Brick brick) const {
        if (!brick.periodic) enclose(positions_, n_atoms_, brick);
        return brick;
    }

    template <typename Function>
    void for_each_atom(const Function& f) const {
        const int64_t n = cells_.n_sorted;
        parallel_for(tasks_of(n), [&](int64_t task, int) {
            const int64_t end = std::min(n, (task + 1) * ATOMS_PER_TASK);
            for (int64_t p = task * ATOMS_PER_TASK; p < end; ++p) f(static_cast<int32_t>(p));
        });
    }

    const Real* positions_;
    int64_t n_atoms_;
    Brick brick_;
    Cells cells_;
    Scope scope_;
    int32_t* offsets_;
    int64_t n_pairs_ = 0;
};

using List = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

template <typename Real>
List listed(const at::Tensor& positions, const Brick& brick, double cutoff, bool both_ways, std::optional<int64_t> capacity) {
    const auto integers = positions.options().dtype(at::kInt);
    at::Tensor offsets = at::empty({positions.size(0) + 1}, integers), status = at::empty({3}, positions.options().dtype(at::kLong));
    Search<Real> search(positions, brick, cutoff, both_ways, offsets.mutable_data_ptr<int32_t>());
    TORCH_CHECK_VALUE(capacity || search.n_pairs() < INT32_MAX, "neighbors: there are ", search.n_pairs(),
                      " pairs, but a list can hold 2^31 - 1");
    const int64_t room = capacity.value_or(search.n_pairs());
    at::Tensor neighbors = at::empty({room}, integers), shifts = at::empty({room}, integers);
    search.fill(room, neighbors.mutable_data_ptr<int32_t>(), shifts.mutable_data_ptr<int32_t>());
    int64_t* const found = status.mutable_data_ptr<int64_t>();
    found[0] = search.n_pairs(), found[1] = search.n_lost(), found[2] = 1;
    return {offsets, neighbors, shifts, status};
}

List neighbors(const at::Tensor& positions_, const OptionalTensor& box, double cutoff, bool both_ways, std::optional<int64_t> capacity) {
    check_call(positions_, cutoff, 0);
    TORCH_CHECK_VALUE(!capacity || (*capacity >= 0 && *capacity <= INT32_MAX), "neighbors: capacity must be from 0 to 2^31 - 1, not ",
                      *capacity);
    const Brick brick = brick_of(box, cutoff);
    const at::Tensor positions = positions_.contiguous();
    return positions.scalar_type() == at::kDouble ? listed<double>(positions, brick, cutoff, both_ways, capacity)
                                                  : listed<float>(positions, brick, cutoff, both_ways, capacity);
}

// Whether every atom is within so much of where it was; false where one is not finite.
template <typename Real>
bool all_near(const Real* positions, const Real* before, int64_t n_atoms, double limit) {
    for (int64_t i = 0; i < n_atoms; ++i) {
        double squared = 0;
        for (int axis = 0; axis < 3; ++axis) {
            const double moved = double(positions[3 * i + axis]) - double(before[3 * i + axis]);
            squared += moved * moved;
        }
        if (!(squared < limit * limit)) return false;
    }
    return true;
}

template <typename Real>
void update(const at::Tensor& positions, const Brick& brick, double cutoff, double skin, bool both_ways, const at::Tensor& offsets,
            const at::Tensor& neighbors, const at::Tensor& shifts, const at::Tensor& status, const at::Tensor& built_positions,
            const at::Tensor& built_box) {
    int64_t* const found = status.mutable_data_ptr<int64_t>();
    const Real* const now = positions.const_data_ptr<Real>();
    Real* const before = built_positions.mutable_data_ptr<Real>();
    double* const box = built_box.mutable_data_ptr<double>();
    const bool same_box = std::memcmp(box, brick.box, sizeof(brick.box)) == 0;
    if (skin > 0 && found[2] > 0 && same_box && all_near(now, before, positions.size(0), skin / 2)) return;
    Search<Real> search(positions, brick, cutoff + skin, both_ways, offsets.mutable_data_ptr<int32_t>());
    search.fill(neighbors.numel(), neighbors.mutable_data_ptr<int32_t>(), shifts.mutable_data_ptr<int32_t>());
    found[0] = search.n_pairs(), found[1] = search.n_lost(), found[2] += 1;
    std::copy(now, now + positions.numel(), before);
    std::memcpy(box, brick.box, sizeof(brick.box));
}

void update_neighbors(const at::Tensor& positions_, const OptionalTensor& box, double cutoff, double skin, bool both_ways,
                      const at::Tensor& offsets, const at::Tensor& neighbors, const at::Tensor& shifts, const at::Tensor& status,
                      const at::Tensor& built_positions, const at::Tensor& built_box) {
    check_call(positions_, cutoff, skin);
    const int64_t n = positions_.size(0), room = neighbors.numel();
    check_table(offsets, at::kInt, {n + 1}, "offsets");
    check_table(neighbors, at::kInt, {room}, "neighbors");
    check_table(shifts, at::kInt, {room}, "shifts");
    check_table(status, at::kLong, {3}, "status");
    check_table(built_positions, positions_.scalar_type(), {n, 3}, "built_positions");
    check_table(built_box, at::kDouble, {3, 3}, "built_box");
    const Brick brick = brick_of(box, cutoff + skin);
    const at::Tensor positions = positions_.contiguous();
    const auto run = positions.scalar_type() == at::kDouble ? update<double> : update<float>;
    run(positions, brick, cutoff, skin, both_ways, offsets, neighbors, shifts, status, built_positions, built_box);
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("neighbors", neighbors);
    m.impl("update_neighbors", update_neighbors);
}

}  // namespace openmm_density
