// The energy of a pair as a function of its distance: forms.py has the same in float64, __init__.py the formulas.
#pragma once

#include "../masks.h"

namespace openmm_density {
namespace {

enum Form { LENNARD_JONES, REACTION_FIELD, NONBONDED, SOFT_REPULSION, MORSE, FLAT_BOTTOM, FORMS };

constexpr int SETTINGS = 3;
// How many of them each form uses.
constexpr int NEEDED[FORMS] = {1, 2, 3, 0, 1, 0};

// What is the same for all pairs.
struct Setting {
    float cutoff, cutoff_squared, switch_begin, per_switch;  // per_switch: 0 without a switch
    float coulomb, k, c;
};

inline Setting setting_of(int64_t form, double cutoff, const double* settings) {
    Setting made{};
    made.cutoff = static_cast<float>(cutoff);
    made.cutoff_squared = static_cast<float>(cutoff * cutoff);
    made.switch_begin = made.cutoff;
    if (form == LENNARD_JONES || form == NONBONDED || form == MORSE)
        if (settings[0] < cutoff) {
            made.switch_begin = static_cast<float>(settings[0]);
            made.per_switch = static_cast<float>(1 / (cutoff - settings[0]));
        }
    if (form == REACTION_FIELD || form == NONBONDED) {
        const double* const of = settings + (form == NONBONDED);
        made.coulomb = static_cast<float>(of[0]);
        made.k = static_cast<float>((of[1] - 1) / (2 * of[1] + 1) / (cutoff * cutoff * cutoff));
        made.c = static_cast<float>(3 * of[1] / (2 * of[1] + 1) / cutoff);
    }
    return made;
}

// Energies of W pairs, and their derivatives by the distance over the distance.
struct Found {
    vec energy, slope;
};

// Of both atoms: the row's, and the W others.
struct Atoms {
    vec own[3], other[3];
};

inline Found switched(Found found, vec r, vec per_r, const Setting& s) {
    if (s.per_switch == 0) return found;
    const vec raw = (r - s.switch_begin) * s.per_switch;
    const vec t = zero_unless(raw > 0.0f, raw);
    const vec value = 1.0f + t * t * t * (-10.0f + t * (15.0f - 6.0f * t));
    const vec by_r = t * t * (-30.0f + t * (60.0f - 30.0f * t)) * s.per_switch;
    return {found.energy * value, found.slope * value + found.energy * by_r * per_r};
}

inline Found lennard_jones(vec r, vec per_r, const Atoms& p, const Setting& s) {
    const vec q = (p.own[0] + p.other[0]) * 0.5f * per_r;
    const vec q2 = q * q, sixth = q2 * q2 * q2;
    const vec four = 4.0f * square_root(p.own[1] * p.other[1]);
    return switched({four * sixth * (sixth - 1.0f), four * sixth * (6.0f - 12.0f * sixth) * (per_r * per_r)}, r, per_r, s);
}

inline Found coulomb(vec r, vec per_r, vec charges, const Setting& s) {
    const vec product = charges * s.coulomb;
    return {product * (per_r + s.k * r * r - s.c), product * (2.0f * s.k - per_r * per_r * per_r)};
}

inline Found half_square(vec beyond, vec constant, vec per_r, vec sign) {
    const vec out = zero_unless(beyond > 0.0f, beyond);
    return {0.5f * constant * out * out, sign * constant * out * per_r};
}

template <int FORM>
inline Found pair_energy(vec r, vec per_r, const Atoms& p, const Setting& s) {
    if constexpr (FORM == LENNARD_JONES) {
        return lennard_jones(r, per_r, p, s);
    } else if constexpr (FORM == REACTION_FIELD) {
        return coulomb(r, per_r, p.own[0] * p.other[0], s);
    } else if constexpr (FORM == NONBONDED) {
        const Found one = lennard_jones(r, per_r, p, s), two = coulomb(r, per_r, p.own[2] * p.other[2], s);
        return {one.energy + two.energy, one.slope + two.slope};
    } else if constexpr (FORM == SOFT_REPULSION) {
        return half_square(p.own[0] + p.other[0] - r, square_root(p.own[1] * p.other[1]), per_r, broadcast(-1.0f));
    } else if constexpr (FORM == MORSE) {
        const vec steepness = 0.5f * (p.own[2] + p.other[2]), depth = square_root(p.own[1] * p.other[1]);
        const vec x = steepness * (r - p.own[0] - p.other[0]);
        const vec small = exp_of_negative(x > 0.0f ? -x : x);
        const vec decay = x > 0.0f ? small : 1.0f / small;
        return switched({depth * decay * (decay - 2.0f), 2.0f * depth * steepness * decay * (1.0f - decay) * per_r}, r, per_r, s);
    } else {
        static_assert(FORM == FLAT_BOTTOM, "the energy of this form is missing");
        const vec from = r - p.own[0] - p.other[0];
        const vec sign = from > 0.0f ? broadcast(1.0f) : broadcast(-1.0f);
        return half_square(sign * from - p.own[2] - p.other[2], square_root(p.own[1] * p.other[1]), per_r, sign);
    }
}

}  // namespace
}  // namespace openmm_density
