// Terms in blocks that can be evaluated side by side, and their forces: __init__.py says how.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "../parallel.h"
#include "../simd.h"
#include "interface.h"

namespace openmm_density {
namespace {

constexpr int64_t TERMS_PER_BLOCK = 256;
// Of a term in a block, the most by which its last atom comes after its first one.
constexpr int32_t FARTHEST = 256;

// W vectors, such as bonds.
struct Vectors {
    vec x, y, z;
};

inline Vectors operator+(const Vectors& a, const Vectors& b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
inline Vectors operator-(const Vectors& a, const Vectors& b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
inline Vectors operator-(const Vectors& a) { return {-a.x, -a.y, -a.z}; }
inline Vectors operator*(vec f, const Vectors& a) { return {f * a.x, f * a.y, f * a.z}; }
inline vec dot(const Vectors& a, const Vectors& b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
inline Vectors cross(const Vectors& a, const Vectors& b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// W terms beside each other; the last lanes of a block repeat a term, and count nothing.
template <typename Term>
struct Lanes {
    static constexpr int N = Term::ATOMS;
    int32_t atoms[N][W];
    int used;

    // From each atom to the next.
    void bonds(const double* positions, Vectors* found) const {
        float along[N - 1][3][W];
        for (int lane = 0; lane < W; ++lane)
            for (int k = 0; k + 1 < N; ++k) {
                const double *const from = positions + 3 * int64_t{atoms[k][lane]}, *const to = positions + 3 * int64_t{atoms[k + 1][lane]};
                for (int axis = 0; axis < 3; ++axis) along[k][axis][lane] = static_cast<float>(to[axis] - from[axis]);
            }
        for (int k = 0; k + 1 < N; ++k) found[k] = {load(along[k][0]), load(along[k][1]), load(along[k][2])};
    }

    void subtract(const Vectors* gradient, double* forces) const {
        float of[N][3][W];
        for (int k = 0; k < N; ++k) {
            store(of[k][0], gradient[k].x);
            store(of[k][1], gradient[k].y);
            store(of[k][2], gradient[k].z);
        }
        for (int lane = 0; lane < used; ++lane)
            for (int k = 0; k < N; ++k) {
                double* const force = forces + 3 * int64_t{atoms[k][lane]};
                for (int axis = 0; axis < 3; ++axis) force[axis] -= of[k][axis][lane];
            }
    }
};

// Term: its ATOMS; atoms, and the `low`est and `high`est of them; `Packed`, W of them; `constant`, their energy beside; `rank`: alike
// terms lie beside each other.
template <typename Term>
class Blocks : public BondedTerms {
   public:
    explicit Blocks(std::vector<Term> terms) {
        for (Term& term : terms) {
            const auto [low, high] = std::minmax_element(term.atoms, term.atoms + Term::ATOMS);
            term.low = *low, term.high = *high;
        }
        const auto near = std::stable_partition(terms.begin(), terms.end(), [](const Term& term) { return term.high - term.low <= FARTHEST; });
        const std::vector<Term> far(near, terms.end());
        terms.erase(near, terms.end());
        std::stable_sort(terms.begin(), terms.end(), [](const Term& one, const Term& other) { return one.low < other.low; });
        // A block begins behind all atoms of the last one but one.
        int32_t before = -1, now = -1;
        size_t begin = 0;
        for (size_t i = 0; i < terms.size(); ++i) {
            if (i - begin >= TERMS_PER_BLOCK && terms[i].low > before) {
                add(terms.data() + begin, terms.data() + i);
                begin = i;
                before = std::exchange(now, -1);
            }
            now = std::max(now, terms[i].high);
        }
        add(terms.data() + begin, terms.data() + terms.size());
        n_near_ = n_blocks();
        add(far.data(), far.data() + far.size());
    }

    double evaluate(const double* positions, int n_threads, double* forces) const override {
        const ThreadLimit limit(n_threads);
        std::vector<double> energies(n_blocks(), 0.0);
        for (int64_t first = 0; first < 2; ++first)
            parallel_for((n_near_ + 1 - first) / 2, [&](int64_t task, int) {
                const int64_t block = 2 * task + first;
                energies[block] = evaluate_block(block, positions, forces);
            });
        for (int64_t block = n_near_; block < n_blocks(); ++block) energies[block] = evaluate_block(block, positions, forces);
        double energy = constant_;
        for (const double each : energies) energy += each;
        return energy;
    }

   private:
    int64_t n_blocks() const { return static_cast<int64_t>(ends_.size()); }

    void add(const Term* begin, const Term* end) {
        if (begin == end) return;
        std::vector<Term> terms(begin, end);
        std::stable_sort(terms.begin(), terms.end(), [](const Term& one, const Term& other) { return one.rank() < other.rank(); });
        for (const Term& term : terms) constant_ += term.constant();
        for (size_t i = 0; i < terms.size(); i += W) {
            const int used = static_cast<int>(std::min<size_t>(W, terms.size() - i));
            lanes_.emplace_back(terms.data() + i, used, numbers_);
            for (int lane = 0; lane < W; ++lane)
                for (int k = 0; k < Term::ATOMS; ++k) lanes_.back().atoms[k][lane] = terms[i + std::min(lane, used - 1)].atoms[k];
            lanes_.back().used = used;
        }
        ends_.push_back(static_cast<int64_t>(lanes_.size()));
    }

    double evaluate_block(int64_t block, const double* positions, double* forces) const {
        double energy = 0.0;
        for (int64_t i = block ? ends_[block - 1] : 0; i < ends_[block]; ++i) {
            Vectors bonds[Term::ATOMS - 1], gradient[Term::ATOMS];
            lanes_[i].bonds(positions, bonds);
            energy += sum(lanes_[i].evaluate(numbers_.data(), bonds, gradient));
            lanes_[i].subtract(gradient, forces);
        }
        return energy;
    }

    std::vector<typename Term::Packed> lanes_;
    std::vector<float> numbers_;  // of all lanes: what their terms have beside atoms
    std::vector<int64_t> ends_;   // of each block, in lanes_
    int64_t n_near_ = 0;
    double constant_ = 0.0;
};

}  // namespace
}  // namespace openmm_density
