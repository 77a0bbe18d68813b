// The energy of atoms that move among fixed ones, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../simd.h"
#include "../torsion_terms.h"
#include "interface.h"

namespace openmm_density {
namespace {

// nm beyond the cut-off up to which pairs are listed; the list is made anew when an atom moved by half of it.
constexpr double SKIN = 0.12;
// nm; where the atom is that fills up rows.
constexpr float NOWHERE = 1e6f;
// The Gaussian of a pair is the POWERth power of a polynomial: powers and products only are done in vectors.
constexpr float POWER = 16.0f;
// nm below which two atoms are as far apart as this, in what is divided by their distance.
constexpr float NEAREST = 1e-5f;

inline Vector at(const double* positions, int32_t atom) {
    return {positions[3 * atom], positions[3 * atom + 1], positions[3 * atom + 2]};
}

// The energy as a function of positions. It keeps a list of pairs from one call to the next.
class LocalEnergy {
   public:
    LocalEnergy(const LocalTerms& terms, const double* positions)
        : terms_(terms), n_(terms.n_moving), gradient_(3 * terms.n_atoms), x_(terms.n_atoms + 1), y_(x_), z_(x_), half_(x_.size(), 1.0f),
          radii_(terms.radii, terms.radii + terms.n_atoms), polar_(terms.polar, terms.polar + terms.n_atoms),
          weights_(terms.weights, terms.weights + terms.n_atoms) {
        radii_.push_back(0.0f), polar_.push_back(0.0f), weights_.push_back(0.0f);
        std::fill(half_.begin(), half_.begin() + n_, 0.5f);  // both atoms have such a pair in their rows
        // Floats hold more digits near the middle of all atoms.
        for (int axis = 0; axis < 3; ++axis) {
            double sum = 0.0;
            for (int64_t i = 0; i < terms.n_atoms; ++i) sum += positions[3 * i + axis];
            origin_[axis] = sum / std::max<int64_t>(terms.n_atoms, 1);
        }
        for (int64_t i = 0; i < terms.n_atoms; ++i) place(positions, i);
        x_.back() = y_.back() = z_.back() = NOWHERE;
    }

    // Return the energy at positions of all atoms, and store the gradient of those that move.
    double operator()(const double* positions, double hardness, double* gradient) {
        std::fill(gradient_.begin(), gradient_.end(), 0.0);
        for (int64_t i = 0; i < n_; ++i) place(positions, i);
        double energy = pairs(positions, hardness) + in_map(positions);
        energy += bonds(positions) + angles(positions) + torsions(positions) + held(positions);
        energy += maps(positions, terms_.ramachandran) + maps(positions, terms_.cmap);
        std::copy(gradient_.begin(), gradient_.begin() + 3 * n_, gradient);
        return energy;
    }

   private:
    void place(const double* positions, int64_t i) {
        x_[i] = static_cast<float>(positions[3 * i] - origin_[0]);
        y_[i] = static_cast<float>(positions[3 * i + 1] - origin_[1]);
        z_[i] = static_cast<float>(positions[3 * i + 2] - origin_[2]);
    }

    void add(int32_t atom, const Vector& v, double scale) {
        double* const to = gradient_.data() + 3 * atom;
        to[0] += scale * v.x, to[1] += scale * v.y, to[2] += scale * v.z;
    }

    double bonds(const double* positions) {
        double energy = 0.0;
        for (int64_t k = 0; k < terms_.n_bonds; ++k) {
            const int32_t *const pair = terms_.bonds + 2 * k;
            const double length = terms_.bond_parameters[2 * k], stiffness = terms_.bond_parameters[2 * k + 1];
            const Vector d = at(positions, pair[1]) - at(positions, pair[0]);
            const double r = std::max(std::sqrt(dot(d, d)), 1e-9), off = r - length;
            energy += 0.5 * stiffness * off * off;
            add(pair[0], d, -stiffness * off / r);
            add(pair[1], d, stiffness * off / r);
        }
        return energy;
    }

    double angles(const double* positions) {
        double energy = 0.0;
        for (int64_t k = 0; k < terms_.n_angles; ++k) {
            const int32_t* const triple = terms_.angles + 3 * k;
            const Vector a = at(positions, triple[0]) - at(positions, triple[1]), b = at(positions, triple[2]) - at(positions, triple[1]);
            const double aa = std::max(dot(a, a), 1e-18), bb = std::max(dot(b, b), 1e-18), lengths = std::sqrt(aa * bb);
            const double cosine = std::min(std::max(dot(a, b) / lengths, -1.0), 1.0);
            const double off = std::acos(cosine) - terms_.angle_parameters[2 * k], stiffness = terms_.angle_parameters[2 * k + 1];
            energy += 0.5 * stiffness * off * off;
            const double slope = -stiffness * off / std::sqrt(std::max(1.0 - cosine * cosine, 1e-8));
            const Vector first = {b.x / lengths - cosine * a.x / aa, b.y / lengths - cosine * a.y / aa, b.z / lengths - cosine * a.z / aa};
            const Vector last = {a.x / lengths - cosine * b.x / bb, a.y / lengths - cosine * b.y / bb, a.z / lengths - cosine * b.z / bb};
            add(triple[0], first, slope);
            add(triple[2], last, slope);
            add(triple[1], first, -slope);
            add(triple[1], last, -slope);
        }
        return energy;
    }

    // Call slope_at(term, angle) -> (energy, derivative) for each torsion.
    template <typename Function>
    double each_torsion(const double* positions, int64_t count, const int32_t* members, const Function& slope_at) {
        double energy = 0.0;
        for (int64_t k = 0; k < count;) {
            // Terms of the same four atoms follow each other: the torsion is worked out once.
            const int32_t* const quadruple = members + 4 * k;
            const Vector p = at(positions, quadruple[0]), q = at(positions, quadruple[1]), r = at(positions, quadruple[2]),
                         s = at(positions, quadruple[3]);
            const Torsion found = torsion(q - p, r - q, s - r);
            double slope = 0.0;
            int64_t end = k;
            do {
                if (found.usable) energy += slope_at(end, found.angle, slope);
                ++end;
            } while (end < count && std::equal(quadruple, quadruple + 4, members + 4 * end));
            if (found.usable && slope != 0.0)
                for (int atom = 0; atom < 4; ++atom) add(quadruple[atom], found.slope[atom], slope);
            k = end;
        }
        return energy;
    }

    double torsions(const double* positions) {
        const double* const parameters = terms_.torsion_parameters;
        return each_torsion(positions, terms_.n_torsions, terms_.torsions, [&](int64_t k, double angle, double& slope) {
            const double periodicity = parameters[3 * k], k_torsion = parameters[3 * k + 2];
            const double turned = periodicity * angle - parameters[3 * k + 1];
            slope -= k_torsion * periodicity * std::sin(turned);
            return k_torsion * (1.0 + std::cos(turned));
        });
    }

    double held(const double* positions) {
        const double* const parameters = terms_.held_parameters;
        return each_torsion(positions, terms_.n_held, terms_.held, [&](int64_t k, double angle, double& slope) {
            double off = angle - parameters[3 * k];
            off -= 2.0 * PI * std::round(off / (2.0 * PI));
            const double beyond = std::max(0.0, std::abs(off) - parameters[3 * k + 1]), stiffness = parameters[3 * k + 2];
            slope += std::copysign(stiffness * beyond, off);
            return 0.5 * stiffness * beyond * beyond;
        });
    }

    double maps(const double* positions, const LocalMaps& given) {
        const Terms terms{given.members, given.map_of_term, given.handedness, given.count, given.nodes, given.n};
        double energy = 0.0;
        float gradient[3 * ATOMS_PER_TERM];
        for (int64_t k = 0; k < given.count; ++k) {
            energy += evaluate(positions, terms, k, gradient);
            for (int atom = 0; atom < ATOMS_PER_TERM; ++atom)
                add(given.members[ATOMS_PER_TERM * k + atom], {gradient[3 * atom], gradient[3 * atom + 1], gradient[3 * atom + 2]}, given.scale);
        }
        return given.scale * energy;
    }

    // The integral of the map with the Gaussians of the atoms that move.
    double in_map(const double* positions) {
        double energy = 0.0;
        const int64_t row = terms_.shape[2], plane = row * terms_.shape[1];
        for (int32_t i = 0; i < n_; ++i) {
            const double factor = -terms_.slope * terms_.weights[i];
            if (factor == 0.0) continue;
            double value[3][4], steep[3][4];
            int64_t first[3];
            bool within = true;
            for (int axis = 0; axis < 3; ++axis) {
                const double* const to = terms_.to_index + 3 * axis;
                const double* const p = positions + 3 * i;
                const double index = to[0] * p[0] + to[1] * p[1] + to[2] * p[2] + terms_.shift[axis];
                within &= index >= terms_.low[axis] && index <= terms_.high[axis];  // false for NaN too
                if (!within) break;
                first[axis] = std::min(std::max<int64_t>(static_cast<int64_t>(std::floor(index)) - 1, 0), terms_.shape[axis] - 4);
                const double u = index - static_cast<double>(first[axis] + 1), v = 1.0 - u;
                value[axis][0] = v * v * v / 6.0, steep[axis][0] = -0.5 * v * v;
                value[axis][1] = 2.0 / 3.0 - u * u * (2.0 - u) / 2.0, steep[axis][1] = u * (1.5 * u - 2.0);
                value[axis][2] = 2.0 / 3.0 - v * v * (2.0 - v) / 2.0, steep[axis][2] = v * (2.0 - 1.5 * v);
                value[axis][3] = u * u * u / 6.0, steep[axis][3] = 0.5 * u * u;
            }
            if (!within) continue;
            double sum = 0.0, by[3] = {0.0, 0.0, 0.0};
            for (int z = 0; z < 4; ++z)
                for (int y = 0; y < 4; ++y) {
                    const float* const c = terms_.coefficients + (first[0] + z) * plane + (first[1] + y) * row + first[2];
                    double along = 0.0, slope = 0.0;
                    for (int x = 0; x < 4; ++x) along += value[2][x] * c[x], slope += steep[2][x] * c[x];
                    sum += value[0][z] * value[1][y] * along;
                    by[0] += steep[0][z] * value[1][y] * along;
                    by[1] += value[0][z] * steep[1][y] * along;
                    by[2] += value[0][z] * value[1][y] * slope;
                }
            energy += factor * sum;
            for (int axis = 0; axis < 3; ++axis)
                for (int component = 0; component < 3; ++component)
                    gradient_[3 * i + component] += factor * by[axis] * terms_.to_index[3 * axis + component];
        }
        return energy;
    }

    // Repulsion, and overlaps of the densities.
    double pairs(const double* positions, double hardness) {
        if (has_moved(positions)) list(positions);
        const float reach = static_cast<float>(terms_.cutoff * terms_.cutoff), allowance = static_cast<float>(terms_.allowance);
        const float per_power = static_cast<float>(1.0 / (POWER * terms_.width)), per_width = static_cast<float>(1.0 / terms_.width);
        const float stiff = static_cast<float>(hardness * terms_.repulsion), overlapping = static_cast<float>(terms_.overlapping);
        double energy = 0.0;
        for (int64_t i = 0; i < n_; ++i) {
            const int32_t* const row = neighbors_.data() + starts_[i];
            const float xi = x_[i], yi = y_[i], zi = z_[i], radius = radii_[i], polar = allowance * polar_[i];
            const float weight = weights_[i] * overlapping;
            double of_atom[4] = {0.0, 0.0, 0.0, 0.0};
            for (int64_t begin = 0; begin < starts_[i + 1] - starts_[i]; begin += W) {
                float dx[W], dy[W], dz[W], along[W], found[W];
                for (int lane = 0; lane < W; ++lane) {
                    const int32_t j = row[begin + lane];
                    dx[lane] = xi - x_[j], dy[lane] = yi - y_[j], dz[lane] = zi - z_[j];
                    const float rr = dx[lane] * dx[lane] + dy[lane] * dy[lane] + dz[lane] * dz[lane];
                    const float q = std::min(rr * per_power, 1.0f);
                    // exp(-q) up to 1e-6 where it matters.
                    float e = 1.0f - q * (1.0f - q * (0.5f - q * (1.0f / 6 - q * (1.0f / 24 - q * (1.0f / 120 - q * (1.0f / 720))))));
                    e *= e, e *= e, e *= e, e *= e;
                    const float overlap = weight * weights_[j] * e;
                    const float r = std::sqrt(rr), near = std::max(radius + radii_[j] - polar * polar_[j] - r, 0.0f);
                    const float inside = rr < reach ? 1.0f : 0.0f;
                    found[lane] = inside * half_[j] * (overlap + 0.5f * stiff * near * near);
                    along[lane] = inside * (-2.0f * per_width * overlap - stiff * near / std::max(r, NEAREST));
                }
                for (int lane = 0; lane < W; ++lane) {
                    of_atom[0] += along[lane] * dx[lane], of_atom[1] += along[lane] * dy[lane];
                    of_atom[2] += along[lane] * dz[lane], of_atom[3] += found[lane];
                }
            }
            for (int axis = 0; axis < 3; ++axis) gradient_[3 * i + axis] += of_atom[axis];
            energy += of_atom[3];
        }
        return energy;
    }

    bool has_moved(const double* positions) const {
        if (listed_.empty()) return true;
        double farthest = 0.0;
        for (int64_t i = 0; i < n_; ++i) {
            const double x = positions[3 * i] - listed_[3 * i], y = positions[3 * i + 1] - listed_[3 * i + 1],
                         z = positions[3 * i + 2] - listed_[3 * i + 2];
            farthest = std::max(farthest, x * x + y * y + z * z);
        }
        return farthest > 0.25 * SKIN * SKIN;
    }

    // List for each atom that moves all atoms that it may meet, in rows of whole vectors.
    void list(const double* positions) {
        listed_.assign(positions, positions + 3 * n_);
        const float reach = static_cast<float>((terms_.cutoff + SKIN) * (terms_.cutoff + SKIN));
        const int32_t n_atoms = static_cast<int32_t>(terms_.n_atoms);
        neighbors_.clear();
        starts_.assign(1, 0);
        squares_.resize(n_atoms);
        for (int32_t i = 0; i < n_; ++i) {
            const float xi = x_[i], yi = y_[i], zi = z_[i];
            for (int32_t j = 0; j < n_atoms; ++j) {
                const float dx = xi - x_[j], dy = yi - y_[j], dz = zi - z_[j];
                squares_[j] = dx * dx + dy * dy + dz * dz;
            }
            const int32_t *excluded = terms_.excluded + terms_.excluded_offsets[i], *const last = terms_.excluded + terms_.excluded_offsets[i + 1];
            for (int32_t j = 0; j < n_atoms; ++j) {
                if (!(squares_[j] < reach)) continue;
                while (excluded != last && *excluded < j) ++excluded;
                if (j != i && (excluded == last || *excluded != j)) neighbors_.push_back(j);
            }
            while (neighbors_.size() % W) neighbors_.push_back(n_atoms);
            starts_.push_back(neighbors_.size());
        }
    }

    const LocalTerms& terms_;
    const int64_t n_;
    double origin_[3];
    std::vector<double> gradient_, listed_;
    std::vector<float> x_, y_, z_, half_, radii_, polar_, weights_, squares_;
    std::vector<int32_t> neighbors_;
    std::vector<int64_t> starts_;
};

}  // namespace
}  // namespace openmm_density
