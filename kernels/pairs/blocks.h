// All pairs of a System without a box that interact: W atoms beside each other against one after another.
//
// Atoms that lie close together share a block, a leaf of a k-d tree. A block's list holds every atom within the cut-off and a skin of
// one of its own, those with excluded pairs first. A pair is in the lists of both its atoms, so that forces are added up in registers,
// in an order that does not depend on threads: this takes less time than to write to the second atoms.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../masks.h"
#include "../parallel.h"
#include "forms.h"
#include "interface.h"

namespace openmm_density {
namespace {

constexpr double SKIN = 0.2;         // nm
constexpr float NEAREST = 1e-4f;     // nm^2: nearer pairs have the energy of this distance
constexpr float NOWHERE = 1e15f;     // nm: where the lanes are to which no atom belongs
constexpr int64_t BLOCKS_PER_TASK = 4;

// What a pair needs of an atom: half of sigma, twice the root of epsilon, and the charge times the root of Coulomb's constant.
struct PairRecord {
    float x[3], half_sigma, depth, charge;
};

// An atom of a list, by its place in the order of blocks, and the lanes that do not interact with it.
struct ListEntry {
    int32_t place;
    uint32_t excluded;
};

class BlockList : public PairMemory {
   public:
    // Energy of all pairs; forces are added.
    double evaluate(const NonbondedPairs& given, const double* positions, double* forces) {
        if (!serves(given, positions)) {
            const bool finite = std::all_of(positions, positions + 3 * given.n_atoms, [](double x) { return std::isfinite(x); });
            if (!finite) return std::numeric_limits<double>::quiet_NaN();
            build(given, positions);
        }
        update(positions);
        const Setting setting = setting_of(NONBONDED, given.cutoff, given.settings);
        const int64_t n_tasks = (n_blocks() + BLOCKS_PER_TASK - 1) / BLOCKS_PER_TASK;
        std::vector<double> energies(n_tasks + 1, 0.0), of_exceptions(3 * given.n_atoms, 0.0);
        parallel_for(n_tasks + 1, [&](int64_t task, int) {
            if (task == 0) {
                energies[0] = exceptions(given, positions, of_exceptions.data());
                return;
            }
            for (int64_t block = (task - 1) * BLOCKS_PER_TASK; block < std::min(n_blocks(), task * BLOCKS_PER_TASK); ++block)
                energies[task] += 0.5 * evaluate_block(block, setting, forces);
        });
        for (int64_t i = 0; i < 3 * given.n_atoms; ++i) forces[i] += of_exceptions[i];
        double energy = 0;
        for (const double each : energies) energy += each;
        return energy;
    }

   private:
    struct Node {
        float low[3], high[3];
        int32_t begin, end, left, right;  // left: -1 for a leaf
    };

    int64_t n_blocks() const { return static_cast<int64_t>(order_.size()) / W; }

    // Whether no atom has moved farther than half of the skin since the list was built.
    bool serves(const NonbondedPairs& given, const double* positions) const {
        if (built_at_.size() != static_cast<size_t>(3 * given.n_atoms)) return false;
        bool near = true;
        for (int64_t i = 0; i < given.n_atoms; ++i) {
            double squared = 0;
            for (int axis = 0; axis < 3; ++axis) {
                const double moved = positions[3 * i + axis] - built_at_[3 * i + axis];
                squared += moved * moved;
            }
            near &= squared <= SKIN * SKIN / 4;  // false for NaN
        }
        return near;
    }

    void build(const NonbondedPairs& given, const double* positions) {
        const int32_t n = static_cast<int32_t>(given.n_atoms);
        built_at_.clear();  // until all is there
        for (int axis = 0; axis < 3; ++axis) centre_[axis] = median(positions + axis, n);
        order_.resize(n);
        for (int32_t i = 0; i < n; ++i) order_[i] = i;
        nodes_.clear();
        if (n) split(positions, 0, n);
        order_.resize((n + W - 1) / W * W, -1);
        records_.resize(order_.size());
        std::vector<int32_t> place_of(n);
        for (size_t place = 0; place < order_.size(); ++place) {
            const int32_t atom = order_[place];
            PairRecord& record = records_[place];
            record = {{NOWHERE, NOWHERE, NOWHERE}, 0, 0, 0};
            if (atom < 0) continue;
            place_of[atom] = static_cast<int32_t>(place);
            const float* const sphere = given.spheres + 3 * atom;
            record.half_sigma = 0.5f * sphere[0];
            record.depth = 2.0f * std::sqrt(sphere[1]);
            record.charge = sphere[2] * static_cast<float>(std::sqrt(given.settings[1]));
        }
        update(positions);
        lists_.resize(n_blocks());
        n_with_excluded_.resize(n_blocks());
        const float reach = static_cast<float>(given.cutoff + SKIN);
        std::vector<std::vector<uint32_t>> excluded(threads_for(n_blocks()), std::vector<uint32_t>(order_.size(), 0));
        parallel_for(n_blocks(), [&](int64_t block, int thread) { list(given, block, reach, place_of, excluded[thread]); });
        built_at_.assign(positions, positions + 3 * given.n_atoms);
    }

    // Of every third of 3 n numbers: no atom that has flown off moves it, nor takes digits from the others.
    static double median(const double* numbers, int32_t n) {
        if (n == 0) return 0;
        std::vector<double> sorted(n);
        for (int32_t i = 0; i < n; ++i) sorted[i] = numbers[3 * int64_t(i)];
        std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.end());
        return sorted[n / 2];
    }

    // Put the atoms [begin, end) in order, blocks of W that lie close together; return the node.
    int32_t split(const double* positions, int32_t begin, int32_t end) {
        const int32_t number = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({{}, {}, begin, end, -1, -1});
        int widest = 0;
        float widths[3];
        for (int axis = 0; axis < 3; ++axis) {
            double low = std::numeric_limits<double>::infinity(), high = -low;
            for (int32_t k = begin; k < end; ++k) {
                low = std::min(low, positions[3 * int64_t(order_[k]) + axis]);
                high = std::max(high, positions[3 * int64_t(order_[k]) + axis]);
            }
            nodes_[number].low[axis] = static_cast<float>(low - centre_[axis]);
            nodes_[number].high[axis] = static_cast<float>(high - centre_[axis]);
            widths[axis] = static_cast<float>(high - low);
            if (widths[axis] > widths[widest]) widest = axis;
        }
        const int32_t n_blocks = (end - begin + W - 1) / W;
        if (n_blocks == 1) return number;
        const int32_t middle = begin + (n_blocks + 1) / 2 * W;
        std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end, [&](int32_t a, int32_t b) {
            const double x = positions[3 * int64_t(a) + widest], y = positions[3 * int64_t(b) + widest];
            return x < y || (x == y && a < b);
        });
        const int32_t left = split(positions, begin, middle), right = split(positions, middle, end);
        nodes_[number].left = left;
        nodes_[number].right = right;
        return number;
    }

    void update(const double* positions) {
        for (size_t place = 0; place < order_.size(); ++place)
            if (order_[place] >= 0)
                for (int axis = 0; axis < 3; ++axis)
                    records_[place].x[axis] = static_cast<float>(positions[3 * int64_t(order_[place]) + axis] - centre_[axis]);
    }

    // The own atoms' numbers of a block, side by side.
    struct Lanes {
        vec x[3], half_sigma, depth, charge;
    };

    Lanes lanes_of(int64_t block) const {
        Lanes own;
        for (int lane = 0; lane < W; ++lane) {
            const PairRecord& record = records_[block * W + lane];
            for (int axis = 0; axis < 3; ++axis) own.x[axis][lane] = record.x[axis];
            own.half_sigma[lane] = record.half_sigma;
            own.depth[lane] = record.depth;
            own.charge[lane] = record.charge;
        }
        return own;
    }

    // `excluded`: scratch of zeros, by place.
    void list(const NonbondedPairs& given, int64_t block, float reach, const std::vector<int32_t>& place_of, std::vector<uint32_t>& excluded) {
        const Lanes own = lanes_of(block);
        Node bounds{};
        for (int axis = 0; axis < 3; ++axis) bounds.low[axis] = INFINITY, bounds.high[axis] = -INFINITY;
        const auto mark = [&](bool on) {
            for (int lane = 0; lane < W; ++lane) {
                const int32_t atom = order_[block * W + lane];
                if (atom < 0) continue;
                excluded[block * W + lane] = on ? excluded[block * W + lane] | 1u << lane : 0;
                for (int32_t e = given.excluded_offsets[atom]; e < given.excluded_offsets[atom + 1]; ++e) {
                    uint32_t& lanes = excluded[place_of[given.excluded[e]]];
                    lanes = on ? lanes | 1u << lane : 0;
                }
                for (int axis = 0; axis < 3; ++axis) {
                    bounds.low[axis] = std::min(bounds.low[axis], own.x[axis][lane]);
                    bounds.high[axis] = std::max(bounds.high[axis], own.x[axis][lane]);
                }
            }
        };
        mark(true);
        std::vector<ListEntry> plain;
        std::vector<ListEntry>& found = lists_[block];
        found.clear();
        std::vector<int32_t> waiting(1, 0);
        while (!waiting.empty()) {
            const Node& node = nodes_[waiting.back()];
            waiting.pop_back();
            float apart = 0;
            for (int axis = 0; axis < 3; ++axis) {
                const float gap = std::max({0.0f, node.low[axis] - bounds.high[axis], bounds.low[axis] - node.high[axis]});
                apart += gap * gap;
            }
            if (!(apart < reach * reach)) continue;
            if (node.left >= 0) {
                waiting.push_back(node.right);
                waiting.push_back(node.left);
                continue;
            }
            for (int32_t place = node.begin; place < node.end; ++place) {
                const PairRecord& other = records_[place];
                vec squared{};
                for (int axis = 0; axis < 3; ++axis) {
                    const vec d = own.x[axis] - other.x[axis];
                    squared += d * d;
                }
                if (!bits(squared < reach * reach)) continue;
                (excluded[place] ? found : plain).push_back({place, excluded[place]});
            }
        }
        n_with_excluded_[block] = static_cast<int32_t>(found.size());
        found.insert(found.end(), plain.begin(), plain.end());
        mark(false);
    }

    double evaluate_block(int64_t block, const Setting& setting, double* forces) const {
        const Lanes own = lanes_of(block);
        vec force[3] = {}, energy{};
        const ListEntry* const begin = lists_[block].data();
        const ListEntry* const plain = begin + n_with_excluded_[block];
        const ivec bit = lane_bits();
        for (const ListEntry* each = begin; each < plain; ++each)
            add<true>(own, records_[each->place], (ivec{} + static_cast<int32_t>(each->excluded)) & bit, setting, force, energy);
        for (const ListEntry* each = plain; each < begin + lists_[block].size(); ++each)
            add<false>(own, records_[each->place], ivec{}, setting, force, energy);
        double total = 0;
        for (int lane = 0; lane < W; ++lane) {
            const int32_t atom = order_[block * W + lane];
            if (atom < 0) continue;
            total += energy[lane];
            for (int axis = 0; axis < 3; ++axis) forces[3 * int64_t(atom) + axis] += force[axis][lane];
        }
        return total;
    }

    static ivec lane_bits() {
        ivec found;
        for (int lane = 0; lane < W; ++lane) found[lane] = static_cast<int32_t>(1u << lane);
        return found;
    }

    // `depth`: four times epsilon.
    [[gnu::always_inline]] static Found without_field(vec squared, vec sigma, vec depth, vec charges) {
        const vec per_r = reciprocal_root(squared > NEAREST ? squared : broadcast(NEAREST));
        const vec q = sigma * per_r, q2 = q * q, sixth = q2 * q2 * q2, bare = charges * per_r;
        return {depth * sixth * (sixth - 1.0f) + bare, (depth * sixth * (6.0f - 12.0f * sixth) - bare) * (per_r * per_r)};
    }

    template <bool EXCLUDES>
    [[gnu::always_inline]] static void add(const Lanes& own, const PairRecord& other, ivec excluded, const Setting& setting,
                                           vec (&force)[3], vec& energy) {
        vec d[3], squared{};
        for (int axis = 0; axis < 3; ++axis) {
            d[axis] = other.x[axis] - own.x[axis];
            squared += d[axis] * d[axis];
        }
        ivec near = squared < setting.cutoff_squared;
        if (EXCLUDES) near &= excluded == 0;
        const vec charges = own.charge * other.charge;
        const Found bare = without_field(squared, own.half_sigma + other.half_sigma, own.depth * other.depth, charges);
        const vec value = bare.energy + charges * (setting.k * squared - setting.c), slope = bare.slope + charges * (2.0f * setting.k);
        energy += zero_unless(near, value);
        const vec acting = zero_unless(near, slope);
        for (int axis = 0; axis < 3; ++axis) force[axis] += acting * d[axis];
    }

    // Pairs with parameters of their own, at any distance and without a reaction field; forces are added.
    static double exceptions(const NonbondedPairs& given, const double* positions, double* forces) {
        double energy = 0;
        for (int64_t first = 0; first < given.n_exceptions; first += W) {
            const int n = static_cast<int>(std::min<int64_t>(W, given.n_exceptions - first));
            vec d[3] = {}, sigma{}, depth{}, charges{};
            const int32_t* const atoms = given.exceptions + 2 * first;
            for (int lane = 0; lane < n; ++lane) {
                for (int axis = 0; axis < 3; ++axis)
                    d[axis][lane] = static_cast<float>(positions[3 * int64_t(atoms[2 * lane + 1]) + axis] - positions[3 * int64_t(atoms[2 * lane]) + axis]);
                const float* const p = given.exception_parameters + 3 * (first + lane);
                sigma[lane] = p[0], depth[lane] = 4.0f * p[1], charges[lane] = p[2] * static_cast<float>(given.settings[1]);
            }
            const Found found = without_field(d[0] * d[0] + d[1] * d[1] + d[2] * d[2], sigma, depth, charges);
            energy += sum(found.energy);
            for (int lane = 0; lane < n; ++lane)
                for (int axis = 0; axis < 3; ++axis) {
                    const double force = found.slope[lane] * d[axis][lane];
                    forces[3 * int64_t(atoms[2 * lane]) + axis] += force;
                    forces[3 * int64_t(atoms[2 * lane + 1]) + axis] -= force;
                }
        }
        return energy;
    }

    double centre_[3];
    std::vector<double> built_at_;
    std::vector<int32_t> order_, n_with_excluded_;
    std::vector<PairRecord> records_;
    std::vector<Node> nodes_;
    std::vector<std::vector<ListEntry>> lists_;
};

}  // namespace
}  // namespace openmm_density
