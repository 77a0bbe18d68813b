// All rows of a list: an atom against W of its neighbours at once.
//
// Rows are dealt to a number of blocks that depends on the number of atoms alone. Each adds the gradients of its pairs' second atoms up
// in memory of its own, and these are added in the order of blocks: no order depends on threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "../masks.h"
#include "../parallel.h"
#include "forms.h"

namespace openmm_density {
namespace {

constexpr int64_t ATOMS_PER_BLOCK = 512, MOST_BLOCKS = 8;
constexpr int64_t ATOMS_PER_TASK = 1024;
constexpr int ROWS_PER_SUM = 16;  // as many may be added up in float32
constexpr int RECORD = 8;         // x, y, z, -, and three parameters
constexpr int VIRIAL = 6;
constexpr float MOST_FORCE = 1e9f, MOST_ENERGY = 1e30f;  // of a pair; many may be added
constexpr float IN_ONE_PLACE = 3.4e38f;  // the energy beyond which a pair adds nothing

struct List {
    int64_t n_atoms;
    const int32_t *offsets, *neighbors, *shifts;
    const int32_t *excluded_offsets, *excluded;  // or null
};

struct Totals {
    double energy = 0, virial[VIRIAL] = {};  // xx, xy, xz, yy, yz, zz
};

struct Sums {
    vec energy{}, virial[VIRIAL] = {};

    void add_to(Totals& totals) {
        totals.energy += sum(energy);
        for (int k = 0; k < VIRIAL; ++k) totals.virial[k] += sum(virial[k]);
        *this = Sums();
    }
};

inline ivec load_indices(const int32_t* from, int n) {
    ivec values{};
    std::memcpy(&values, from, std::min(n, W) * sizeof(int32_t));
    return values;
}

// Numbers of W atoms' records.
inline vec gather(const float* records, ivec atoms, int slot) {
#if defined(__AVX512F__)
    __m512i index;
    std::memcpy(&index, &atoms, sizeof(index));
    const __m512 values = _mm512_i32gather_ps(_mm512_slli_epi32(index, 3), records + slot, 4);
    vec found;
    std::memcpy(&found, &values, sizeof(found));
    return found;
#else
    vec found;
    for (int lane = 0; lane < W; ++lane) found[lane] = records[int64_t(atoms[lane]) * RECORD + slot];
    return found;
#endif
}

inline bool any(ivec mask) { return bits(mask) != 0; }

inline vec step(ivec code) { return __builtin_convertvector(((code + 512) & 1023) - 512, vec); }
inline ivec rest(ivec code) { return (code - (((code + 512) & 1023) - 512)) >> 10; }

template <int FORM>
class Sweep {
   public:
    Sweep(const List& list, const float* records, const float* box, const Setting& setting)
        : list_(list), records_(records), box_(box), setting_(setting) {}

    // The rows [begin, end). False if a neighbour is no atom.
    bool rows(int64_t begin, int64_t end, float* gradient, Totals& totals) const {
        Sums sums;
        bool sound = true;
        for (int64_t i = begin; i < end; ++i) {
            if ((i - begin) % ROWS_PER_SUM == 0) sums.add_to(totals);
            sound &= row(i, gradient, sums);
        }
        sums.add_to(totals);
        return sound;
    }

   private:
    bool row(int64_t i, float* gradient, Sums& sums) const {
        Atoms p;
        vec own[3], total[3] = {};
        for (int k = 0; k < 3; ++k) {
            own[k] = broadcast(records_[i * RECORD + k]);
            p.own[k] = broadcast(records_[i * RECORD + 4 + k]);
        }
        const int32_t end = list_.offsets[i + 1];
        const ivec limit = ivec{} + static_cast<int32_t>(list_.n_atoms), numbers = lane_numbers();
        for (int32_t k = list_.offsets[i]; k < end; k += W) {
            const ivec inside = numbers < (end - k);
            const ivec atoms = load_indices(list_.neighbors + k, end - k) & inside;
            if (any((atoms < 0) | (atoms >= limit))) return false;
            vec d[3];
            for (int axis = 0; axis < 3; ++axis) d[axis] = gather(records_, atoms, axis) - own[axis];
            if (box_) shift(load_indices(list_.shifts + k, end - k), d);
            vec squared = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
            ivec near = inside & (squared < setting_.cutoff_squared);
            if (list_.excluded)
                for (int32_t e = list_.excluded_offsets[i]; e < list_.excluded_offsets[i + 1]; ++e) near &= atoms != list_.excluded[e];
            if (!any(near)) continue;
            for (int slot = 0; slot < 3; ++slot) p.other[slot] = gather(records_, atoms, 4 + slot);
            squared = near ? (squared > 1e-24f ? squared : broadcast(1e-24f)) : broadcast(1.0f);
            const vec r = square_root(squared);
            const vec per_r = 1.0f / r, most = MOST_FORCE * per_r;
            const Found found = pair_energy<FORM>(r, per_r, p, setting_);
            near &= (found.energy < IN_ONE_PLACE) & (found.energy > -IN_ONE_PLACE);
            const vec slope = zero_unless(near, found.slope < most ? (found.slope > -most ? found.slope : -most) : most);
            sums.energy += zero_unless(near, found.energy < MOST_ENERGY ? found.energy : broadcast(MOST_ENERGY));
            vec force[3];
            for (int axis = 0; axis < 3; ++axis) {
                force[axis] = slope * zero_unless(near, d[axis]);
                total[axis] += force[axis];
            }
            for (int row = 0, at = 0; row < 3; ++row)
                for (int column = row; column < 3; ++column, ++at) sums.virial[at] -= zero_unless(near, d[row]) * force[column];
            add_to_others(gradient, atoms, force);
        }
        for (int axis = 0; axis < 3; ++axis) gradient[4 * i + axis] -= sum(total[axis]);
        return true;
    }

    void shift(ivec codes, vec d[3]) const {
        if (!any(codes != 0)) return;
        const ivec second = rest(codes);
        const vec steps[3] = {step(codes), step(second), __builtin_convertvector(rest(second), vec)};
        for (int axis = 0; axis < 3; ++axis)
            d[axis] += steps[0] * box_[axis] + steps[1] * box_[3 + axis] + steps[2] * box_[6 + axis];
    }

    // One after another: where a box is small an atom may be there twice. Those that are not near get nothing, without a branch.
    static void add_to_others(float* gradient, const ivec& atoms, const vec force[3]) {
        for (int lane = 0; lane < W; ++lane) {
            float* const to = gradient + 4 * int64_t(atoms[lane]);
            const vec4 each = {force[0][lane], force[1][lane], force[2][lane], 0};
            vec4 before;
            std::memcpy(&before, to, sizeof(before));
            before += each;
            std::memcpy(to, &before, sizeof(before));
        }
    }

    const List& list_;
    const float *records_, *box_;
    const Setting setting_;
};

inline int64_t blocks_of(int64_t n_atoms) { return std::clamp<int64_t>(n_atoms / ATOMS_PER_BLOCK, 1, MOST_BLOCKS); }

// Add the pairs of each block of rows up in its own part of the gradients, four numbers to an atom; false if a neighbour is no atom.
template <int FORM>
bool sweep(const List& list, const float* records, const float* box, const Setting& setting, float* parts, Totals& totals) {
    const int64_t n = list.n_atoms, n_blocks = blocks_of(n);
    std::vector<Totals> totals_of(n_blocks);
    std::atomic<bool> sound{true};
    const Sweep<FORM> all(list, records, box, setting);
    parallel_for(n_blocks, [&](int64_t block, int) {
        float* const part = parts + 4 * n * block;
        std::fill(part, part + 4 * n, 0.0f);
        Totals own;
        if (!all.rows(n * block / n_blocks, n * (block + 1) / n_blocks, part, own)) sound = false;
        totals_of[block] = own;
    });
    for (const Totals& each : totals_of) {
        totals.energy += each.energy;
        for (int k = 0; k < VIRIAL; ++k) totals.virial[k] += each.virial[k];
    }
    return sound;
}

// Add the blocks' parts of the gradients up, in their order.
template <typename Real>
void add_blocks(const float* parts, int64_t n, Real* gradient) {
    const int64_t n_blocks = blocks_of(n);
    parallel_for((n + ATOMS_PER_TASK - 1) / ATOMS_PER_TASK, [&](int64_t task, int) {
        for (int64_t i = task * ATOMS_PER_TASK; i < std::min(n, (task + 1) * ATOMS_PER_TASK); ++i)
            for (int axis = 0; axis < 3; ++axis) {
                float total = 0;
                for (int64_t block = 0; block < n_blocks; ++block) total += parts[4 * (n * block + i) + axis];
                gradient[3 * i + axis] = total;
            }
    });
}

}  // namespace
}  // namespace openmm_density
