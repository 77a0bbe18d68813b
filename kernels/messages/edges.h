// Pairs within the cut-off, with what a filter needs of their distances.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "../parallel.h"

namespace openmm_density {
namespace {

struct List {
    int64_t n_atoms;
    const int32_t *offsets, *neighbors, *shifts;
};

// Seen from the atom of a row.
struct Edge {
    int32_t other;
    int32_t pair;
    float direction[3];  // of unit length, from the row's atom to the other
    int32_t first;       // whether the pair's numbers are those of this direction
};

// Uninitialised memory that is kept for the next call: what is new to the process costs more than what is computed into it.
class KeptMemory {
   public:
    float* get() const { return memory_.get(); }
    void reserve(int64_t size) {
        if (size <= room_) return;
        memory_.reset(new float[size]);
        room_ = size;
    }

   private:
    std::unique_ptr<float[]> memory_;
    int64_t room_ = 0;
};

struct Edges {
    int64_t n_atoms = 0, n_pairs = 0;
    int n_basis = 0;  // n_radial and a constant
    std::vector<int64_t> rows;
    std::vector<Edge> edges;
    std::vector<double> distance;  // of a pair
    KeptMemory basis, slopes;      // pairs x n_basis: times the cut-off's factor, and their derivatives

    const Edge* begin(int64_t atom) const { return edges.data() + rows[atom]; }
    const Edge* end(int64_t atom) const { return edges.data() + rows[atom + 1]; }
};

constexpr double PI = 3.14159265358979323846;
// Nearer atoms have no direction of a length of 1.
constexpr double NEAREST_SQUARED = 1e-24;
constexpr int64_t PAIRS_PER_TASK = 48;

constexpr int TOGETHER = 8;

// b_n(r) c(r) and their derivatives of some pairs: sin(n x), cos(n x) by the sums of angles from those of x.
inline void radial_functions(const double* r, int count, double cutoff, int n_radial, float* basis, float* slopes) {
    double sine[TOGETHER], cosine[TOGETHER], envelope[TOGETHER], envelope_slope[TOGETHER], per_r[TOGETHER], s[TOGETHER], c[TOGETHER];
    float wave_of[TOGETHER], slope_of[TOGETHER];
    const int n_basis = n_radial + 1;
    for (int k = 0; k < TOGETHER; ++k) {
        const double x = PI / cutoff * r[std::min(k, count - 1)];
        sine[k] = std::sin(x);
        cosine[k] = std::cos(x);
        per_r[k] = PI / (cutoff * x);
        envelope[k] = 0.5 * (cosine[k] + 1);
        envelope_slope[k] = -0.5 * PI / cutoff * sine[k];
        s[k] = 0;
        c[k] = 1;
    }
    for (int n = 1; n <= n_radial; ++n) {
        const double wave_number = n * PI / cutoff;
        for (int k = 0; k < TOGETHER; ++k) {
            const double next = s[k] * cosine[k] + c[k] * sine[k];
            c[k] = c[k] * cosine[k] - s[k] * sine[k];
            s[k] = next;
            const double wave = s[k] * per_r[k];
            wave_of[k] = static_cast<float>(wave * envelope[k]);
            slope_of[k] = static_cast<float>((wave_number * c[k] - wave) * per_r[k] * envelope[k] + wave * envelope_slope[k]);
        }
        for (int k = 0; k < count; ++k) {
            basis[k * n_basis + n - 1] = wave_of[k];
            slopes[k * n_basis + n - 1] = slope_of[k];
        }
    }
    for (int k = 0; k < count; ++k) {
        basis[k * n_basis + n_radial] = static_cast<float>(envelope[k]);
        slopes[k * n_basis + n_radial] = static_cast<float>(envelope_slope[k]);
    }
}

// The entry of row j that is an entry of row i seen from there; -1 if there is none. Rows in ascending order are read once.
inline int64_t find_reverse(const Edges& found, const std::vector<int32_t>& shifts, std::vector<int64_t>& cursor, int64_t i, int64_t entry) {
    const int64_t j = found.edges[entry].other;
    const auto is_it = [&](int64_t at) { return at != entry && found.edges[at].other == i && shifts[at] == -shifts[entry] && found.edges[at].pair < 0; };
    const int64_t end = found.rows[j + 1];
    if (cursor[j] < end && is_it(cursor[j])) return cursor[j]++;
    for (int64_t at = found.rows[j]; at < end; ++at)
        if (is_it(at)) return at;
    return -1;
}

inline void reserve_radial(Edges& found) {
    found.n_pairs = static_cast<int64_t>(found.distance.size());
    found.basis.reserve(found.n_pairs * found.n_basis);
    found.slopes.reserve(found.n_pairs * found.n_basis);
}

inline int64_t radial_tasks(const Edges& found) { return (found.n_pairs + PAIRS_PER_TASK - 1) / PAIRS_PER_TASK; }

// The radial functions of a task's pairs.
inline void fill_radial(Edges& found, double cutoff, int64_t task) {
    const int64_t end = std::min(found.n_pairs, (task + 1) * PAIRS_PER_TASK);
    for (int64_t pair = task * PAIRS_PER_TASK; pair < end; pair += TOGETHER)
        radial_functions(found.distance.data() + pair, static_cast<int>(std::min<int64_t>(TOGETHER, end - pair)), cutoff, found.n_basis - 1,
                         found.basis.get() + pair * found.n_basis, found.slopes.get() + pair * found.n_basis);
}

enum class Fault { NONE, INDEX, ONE_WAY };

// All edges of a list that has every pair both ways.
template <typename Real>
Fault find_edges(const List& list, const Real* positions, const double* box, double cutoff, int n_radial, Edges& found) {
    const int64_t n = found.n_atoms = list.n_atoms;
    found.n_basis = n_radial + 1;
    found.rows.assign(n + 1, 0);
    found.edges.clear();
    std::vector<int32_t> shifts;
    std::vector<double> squares;
    const size_t most = static_cast<size_t>(list.offsets[n]);
    found.edges.reserve(most);
    shifts.reserve(most);
    squares.reserve(most);
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t entry = list.offsets[i]; entry < list.offsets[i + 1]; ++entry) {
            const int64_t j = list.neighbors[entry];
            if (j < 0 || j >= n) return Fault::INDEX;
            double d[3];
            for (int k = 0; k < 3; ++k) d[k] = static_cast<double>(positions[3 * j + k]) - static_cast<double>(positions[3 * i + k]);
            if (box) {
                int32_t code = list.shifts[entry];
                for (int axis = 0; axis < 3; ++axis) {
                    const int32_t step = axis < 2 ? ((code + 512) & 1023) - 512 : code;
                    code = (code - step) >> 10;
                    for (int k = 0; k < 3; ++k) d[k] += step * box[3 * axis + k];
                }
            }
            const double squared = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
            if (!(squared < cutoff * cutoff)) continue;
            const double per_r = 1 / std::sqrt(std::max(squared, NEAREST_SQUARED));
            Edge edge{static_cast<int32_t>(j), -1, {}, 0};
            for (int k = 0; k < 3; ++k) edge.direction[k] = static_cast<float>(d[k] * per_r);
            found.edges.push_back(edge);
            shifts.push_back(box ? list.shifts[entry] : 0);
            squares.push_back(squared);
        }
        found.rows[i + 1] = static_cast<int64_t>(found.edges.size());
    }
    found.distance.clear();
    std::vector<int64_t> cursor(found.rows.begin(), found.rows.end() - 1);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t entry = found.rows[i]; entry < found.rows[i + 1]; ++entry) {
            Edge& edge = found.edges[entry];
            if (edge.pair >= 0) continue;
            const int64_t reverse = find_reverse(found, shifts, cursor, i, entry);
            if (reverse < 0) return Fault::ONE_WAY;
            edge.pair = found.edges[reverse].pair = static_cast<int32_t>(found.distance.size());
            edge.first = 1;
            found.distance.push_back(std::sqrt(std::max(squares[entry], NEAREST_SQUARED)));
        }
    reserve_radial(found);
    return Fault::NONE;
}

// The same edges, in the order of a list with rows in ascending order, of all atoms that are near enough, without a box.
template <typename Real>
void find_all_edges(int64_t n, const Real* positions, double cutoff, int n_radial, Edges& found) {
    found.n_atoms = n;
    found.n_basis = n_radial + 1;
    thread_local std::vector<double> squares;
    thread_local std::vector<int32_t> firsts, seconds;
    squares.resize(n);
    firsts.clear();
    seconds.clear();
    found.distance.clear();
    found.rows.assign(n + 1, 0);
    for (int64_t i = 0; i < n; ++i) {
        const double x = positions[3 * i], y = positions[3 * i + 1], z = positions[3 * i + 2];
        for (int64_t j = i + 1; j < n; ++j) {
            const double dx = positions[3 * j] - x, dy = positions[3 * j + 1] - y, dz = positions[3 * j + 2] - z;
            squares[j] = dx * dx + dy * dy + dz * dz;
        }
        for (int64_t j = i + 1; j < n; ++j) {
            if (!(squares[j] < cutoff * cutoff)) continue;
            firsts.push_back(static_cast<int32_t>(i));
            seconds.push_back(static_cast<int32_t>(j));
            found.distance.push_back(std::sqrt(std::max(squares[j], NEAREST_SQUARED)));
            ++found.rows[i + 1];
            ++found.rows[j + 1];
        }
    }
    for (int64_t i = 0; i < n; ++i) found.rows[i + 1] += found.rows[i];
    found.n_pairs = static_cast<int64_t>(firsts.size());
    found.edges.resize(2 * found.n_pairs);
    thread_local std::vector<int64_t> next;
    next.assign(found.rows.begin(), found.rows.end() - 1);
    for (int64_t pair = 0; pair < found.n_pairs; ++pair) {
        const int32_t i = firsts[pair], j = seconds[pair];
        double d[3], squared = 0;
        for (int k = 0; k < 3; ++k) {
            d[k] = static_cast<double>(positions[3 * j + k]) - static_cast<double>(positions[3 * i + k]);
            squared += d[k] * d[k];
        }
        const double per_r = 1 / std::sqrt(std::max(squared, NEAREST_SQUARED));
        Edge there{j, static_cast<int32_t>(pair), {}, 1}, back{i, static_cast<int32_t>(pair), {}, 0};
        for (int k = 0; k < 3; ++k) {
            there.direction[k] = static_cast<float>(d[k] * per_r);
            back.direction[k] = -there.direction[k];
        }
        found.edges[next[i]++] = there;
        found.edges[next[j]++] = back;
    }
    reserve_radial(found);
}

// Each atom's gradient of those by the pairs' vectors: no order depends on threads.
template <typename Real>
void gather_gradient(const Edges& edges, const float* by_pair, Real* gradient) {
    for (int64_t i = 0; i < edges.n_atoms; ++i) {
        double total[3] = {};
        for (const Edge* edge = edges.begin(i); edge != edges.end(i); ++edge)
            for (int k = 0; k < 3; ++k) total[k] += edge->first ? -by_pair[3 * edge->pair + k] : by_pair[3 * edge->pair + k];
        for (int k = 0; k < 3; ++k) gradient[3 * i + k] = static_cast<Real>(total[k]);
    }
}

}  // namespace
}  // namespace openmm_density
