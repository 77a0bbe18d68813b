// Harmonic angles of W triplets of atoms.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../masks.h"
#include "blocks.h"

namespace openmm_density {
namespace {

// nm^2: of bonds on a line the angle has no direction, and OpenMM takes this for the length of their cross product, too.
constexpr float SHORTEST_CROSS = 1e-6f;
constexpr float TINY = 1e-12f;

struct Angle {
    static constexpr int ATOMS = 3;
    int32_t atoms[ATOMS], low = 0, high = 0;
    double ideal = 0.0, force_constant = 0.0;

    Angle() = default;
    Angle(const int32_t* of, double ideal, double force_constant) : ideal(ideal), force_constant(force_constant) {
        std::copy(of, of + ATOMS, atoms);
    }

    double constant() const { return 0.0; }
    int rank() const { return 0; }

    struct Packed : Lanes<Angle> {
        int64_t begin;

        Packed(const Angle* terms, int n, std::vector<float>& numbers) : begin(static_cast<int64_t>(numbers.size())) {
            numbers.resize(numbers.size() + 3 * W, 0.0f);
            for (int lane = 0; lane < n; ++lane) {
                float* const of = numbers.data() + begin + lane;
                of[0] = static_cast<float>(std::cos(terms[lane].ideal));
                of[W] = static_cast<float>(std::sin(terms[lane].ideal));
                of[2 * W] = static_cast<float>(terms[lane].force_constant);
            }
        }

        vec evaluate(const float* numbers, const Vectors* bonds, Vectors* gradient) const {
            const Vectors u = -bonds[0], v = bonds[1], c = cross(u, v);
            const vec cc = dot(c, c), across = square_root(cc), along = dot(u, v);
            const vec per_both = 1.0f / square_root(cc + along * along);
            const vec cosine = along * per_both, sine = across * per_both;
            const float* const of = numbers + begin;
            const vec ideal_cosine = load(of), ideal_sine = load(of + W), force_constant = load(of + 2 * W);
            const vec off = difference(cosine * ideal_cosine + sine * ideal_sine, sine * ideal_cosine - cosine * ideal_sine);
            const vec pull = force_constant * off / (across > SHORTEST_CROSS ? across : broadcast(SHORTEST_CROSS));
            gradient[0] = (pull / dot(u, u)) * cross(u, c);
            gradient[2] = (pull / dot(v, v)) * cross(c, v);
            gradient[1] = -(gradient[0] + gradient[2]);
            return 0.5f * force_constant * off * off;
        }

        // The angle of a cosine and a sine: eight times that of an eighth, whose tangent is at most 0.42 and which is its Taylor series.
        static vec difference(vec cosine, vec sine) {
            const vec beside = 1.0f + cosine;
            // Near half a turn the sine is less than its rounding.
            const vec above = beside > TINY ? sine : sine + (sine < 0.0f ? broadcast(-1.0f) : broadcast(1.0f));
            vec t = above / (beside > TINY ? beside : broadcast(TINY));
            for (int halving = 0; halving < 2; ++halving) t = t / (1.0f + square_root(1.0f + t * t));
            const vec t2 = t * t;
            vec series = broadcast(-1.0f / 15);
            for (int k = 13; k > 0; k -= 2) series = series * t2 + (k % 4 == 1 ? 1.0f : -1.0f) / static_cast<float>(k);
            return 8.0f * t * series;
        }
    };
};

}  // namespace
}  // namespace openmm_density
