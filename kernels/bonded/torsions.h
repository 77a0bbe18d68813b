// Torsions of W quartets of atoms, each with a Fourier series.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "../masks.h"
#include "blocks.h"

namespace openmm_density {
namespace {

// The squared sine of the angle between two bonds up to which they are on a line: the torsion has no direction then.
constexpr float COLLINEAR = 1e-10f;

struct Torsion {
    static constexpr int ATOMS = 4;
    int32_t atoms[ATOMS], low = 0, high = 0;
    std::array<double, MOST_PERIODS> cosines{}, sines{};
    double least = 0.0;

    Torsion() = default;
    Torsion(const int32_t* of, int periodicity, double phase, double force_constant) : least(force_constant) {
        // The same torsion from its other end, so that all of four atoms begin with the same one.
        for (int k = 0; k < ATOMS; ++k) atoms[k] = of[of[0] < of[3] ? k : ATOMS - 1 - k];
        cosines[periodicity - 1] = force_constant * std::cos(phase);
        sines[periodicity - 1] = force_constant * std::sin(phase);
    }

    auto key() const { return std::tie(atoms[0], atoms[1], atoms[2], atoms[3]); }
    double constant() const { return least; }
    int rank() const {
        int last = MOST_PERIODS;
        while (last > 0 && cosines[last - 1] == 0.0 && sines[last - 1] == 0.0) --last;
        return last;
    }

    struct Packed : Lanes<Torsion> {
        int64_t begin;
        int periods = 0;

        Packed(const Torsion* terms, int n, std::vector<float>& numbers) : begin(static_cast<int64_t>(numbers.size())) {
            for (int lane = 0; lane < n; ++lane) periods = std::max(periods, terms[lane].rank());
            for (int k = 0; k < periods; ++k)
                for (int lane = 0; lane < 2 * W; ++lane) {
                    const Torsion& term = terms[std::min(lane % W, n - 1)];
                    const double of_term = (lane < W ? term.cosines : term.sines)[k];
                    numbers.push_back(lane % W < n ? static_cast<float>(of_term) : 0.0f);
                }
        }

        vec evaluate(const float* numbers, const Vectors* bonds, Vectors* gradient) const {
            const Vectors &a = bonds[0], &b = bonds[1], &c = bonds[2];
            const Vectors m = cross(a, b), n = cross(b, c);
            const vec mm = dot(m, m), nn = dot(n, n), bb = dot(b, b), length = square_root(bb);
            // False for NaN, which goes on into the energy.
            const ivec straight = (mm <= COLLINEAR * dot(a, a) * bb) | (nn <= COLLINEAR * dot(c, c) * bb);
            const vec per_both = 1.0f / (square_root(mm) * square_root(nn));
            const vec cosine = straight ? broadcast(1.0f) : dot(m, n) * per_both;
            const vec sine = straight ? vec{} : length * dot(a, n) * per_both;
            vec energy{}, slope{}, cosines = cosine, sines = sine;
            for (int k = 0; k < periods; ++k) {
                const float* const of = numbers + begin + 2 * W * k;
                const vec along = load(of), across = load(of + W);
                energy += along * cosines + across * sines;
                slope += static_cast<float>(k + 1) * (across * cosines - along * sines);
                const vec next = cosines * cosine - sines * sine;
                sines = sines * cosine + cosines * sine;
                cosines = next;
            }
            slope = straight ? vec{} : slope;
            const vec per_mm = straight ? vec{} : slope / mm, per_nn = straight ? vec{} : slope / nn, per_length = 1.0f / length;
            const Vectors end = (-length * per_mm) * m, other = (length * per_nn) * n;
            const Vectors inner = (dot(a, b) * per_length * per_mm) * m + (dot(c, b) * per_length * per_nn) * n;
            gradient[0] = end, gradient[1] = inner - end, gradient[2] = -inner - other, gradient[3] = other;
            return energy;
        }
    };
};

// Those of the same four atoms are one.
inline std::vector<Torsion> merged(std::vector<Torsion> terms) {
    std::stable_sort(terms.begin(), terms.end(), [](const Torsion& one, const Torsion& other) { return one.key() < other.key(); });
    std::vector<Torsion> found;
    for (const Torsion& term : terms) {
        if (found.empty() || found.back().key() != term.key()) {
            found.push_back(term);
            continue;
        }
        found.back().least += term.least;
        for (int k = 0; k < MOST_PERIODS; ++k) {
            found.back().cosines[k] += term.cosines[k];
            found.back().sines[k] += term.sines[k];
        }
    }
    return found;
}

}  // namespace
}  // namespace openmm_density
