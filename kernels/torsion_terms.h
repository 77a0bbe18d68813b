// A torsion and its derivatives, and the energy of a term of two torsions, on plain memory. torsion_maps/__init__.py has the formulas.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace openmm_density {
namespace {

constexpr int64_t ATOMS_PER_TERM = 5;
// The squared sine of the angle between two bonds up to which they are on a line.
constexpr double COLLINEARITY_LIMIT = 1e-12;
constexpr double PI = 3.14159265358979323846;

struct Vector {
    double x, y, z;
};

inline Vector operator-(const Vector& a, const Vector& b) {
    return {a.x - b.x, a.y - b.y, a.z - b.z};
}
inline double dot(const Vector& a, const Vector& b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}
inline Vector cross(const Vector& a, const Vector& b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// The terms of one call, as pack_torsions lays them out, and their maps.
struct Terms {
    const int32_t* members;
    const int32_t* map;
    const float* handedness;
    int64_t count;
    const float* nodes;
    int64_t n;
};

// A torsion of the points p, q, r and s, and its derivatives with respect to them.
struct Torsion {
    double angle;
    Vector slope[4];
    bool usable;
};

// With bonds a = q - p, b = r - q, c = s - r: the normals of its two planes are a x b and b x c.
inline Torsion torsion(const Vector& a, const Vector& b, const Vector& c) {
    Torsion result;
    const Vector m = cross(a, b), n = cross(b, c);
    const double mm = dot(m, m), nn = dot(n, n), bb = dot(b, b);
    // False for NaN too.
    result.usable = mm > COLLINEARITY_LIMIT * dot(a, a) * bb && nn > COLLINEARITY_LIMIT * dot(c, c) * bb &&
                    std::isfinite(mm) && std::isfinite(nn);
    if (!result.usable) return result;
    const double length = std::sqrt(bb);
    result.angle = std::atan2(length * dot(a, n), dot(m, n));
    const double first = -length / mm, last = length / nn;
    const double along_a = dot(a, b) / (length * mm), along_c = dot(c, b) / (length * nn);
    const Vector end = {first * m.x, first * m.y, first * m.z}, other = {last * n.x, last * n.y, last * n.z};
    const Vector inner = {along_a * m.x + along_c * n.x, along_a * m.y + along_c * n.y, along_a * m.z + along_c * n.z};
    result.slope[0] = end;
    result.slope[1] = {inner.x - end.x, inner.y - end.y, inner.z - end.z};
    result.slope[2] = {-inner.x - other.x, -inner.y - other.y, -inner.z - other.z};
    result.slope[3] = other;
    return result;
}

// Where an angle lies on a map's axis: the nodes below and above, and the polynomials of these, with their derivatives.
struct AxisPosition {
    int64_t node[2];
    double value[2][2], slope[2][2];

    AxisPosition(double angle, int64_t n) {
        const double cells = (angle + PI) * (static_cast<double>(n) / (2.0 * PI));
        const double below = std::floor(cells), u = cells - below;
        node[0] = (static_cast<int64_t>(below) % n + n) % n;
        node[1] = node[0] + 1 == n ? 0 : node[0] + 1;
        const double upper = u * u * (3.0 - 2.0 * u), steep = 6.0 * u * (1.0 - u);
        value[0][0] = 1.0 - upper, slope[0][0] = -steep;
        value[1][0] = upper, slope[1][0] = steep;
        value[0][1] = u * (1.0 - u) * (1.0 - u), slope[0][1] = (1.0 - u) * (1.0 - 3.0 * u);
        value[1][1] = u * u * (u - 1.0), slope[1][1] = u * (3.0 * u - 2.0);
    }
};

// A map's value at two angles, and its derivatives with respect to them.
inline double interpolate(const float* nodes, int64_t n, double phi, double psi, double& by_phi, double& by_psi) {
    const AxisPosition row(phi, n), column(psi, n);
    double value = 0.0;
    by_phi = by_psi = 0.0;
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            const float* const node = nodes + 4 * (row.node[i] * n + column.node[j]);
            for (int k = 0; k < 4; ++k) {
                const double f = node[k], r = row.value[i][k % 2], c = column.value[j][k / 2];
                value += f * r * c;
                by_phi += f * row.slope[i][k % 2] * c;
                by_psi += f * r * column.slope[j][k / 2];
            }
        }
    const double per_cell = static_cast<double>(n) / (2.0 * PI);
    by_phi *= per_cell, by_psi *= per_cell;
    return value;
}

// The energy of a term, and the gradient of each of its atoms.
template <typename Real>
double evaluate(const Real* positions, const Terms& terms, int64_t term, float* gradient) {
    Vector corner[ATOMS_PER_TERM], bond[ATOMS_PER_TERM - 1];
    for (int k = 0; k < ATOMS_PER_TERM; ++k) {
        const Real* const position = positions + 3 * int64_t{terms.members[ATOMS_PER_TERM * term + k]};
        corner[k] = {position[0], position[1], position[2]};
    }
    for (int k = 0; k + 1 < ATOMS_PER_TERM; ++k) bond[k] = corner[k + 1] - corner[k];
    const Torsion phi = torsion(bond[0], bond[1], bond[2]), psi = torsion(bond[1], bond[2], bond[3]);
    std::fill(gradient, gradient + 3 * ATOMS_PER_TERM, 0.0f);
    if (!phi.usable || !psi.usable) return 0.0;
    const double sign = terms.handedness[term];
    double by_phi, by_psi;
    const double energy = interpolate(terms.nodes + terms.map[term] * 4 * terms.n * terms.n, terms.n, sign * phi.angle,
                                      sign * psi.angle, by_phi, by_psi);
    for (int k = 0; k < ATOMS_PER_TERM; ++k) {
        const double of_phi = k < 4 ? sign * by_phi : 0.0, of_psi = k > 0 ? sign * by_psi : 0.0;
        const Vector& p = phi.slope[k < 4 ? k : 0];
        const Vector& q = psi.slope[k > 0 ? k - 1 : 0];
        gradient[3 * k] = static_cast<float>(of_phi * p.x + of_psi * q.x);
        gradient[3 * k + 1] = static_cast<float>(of_phi * p.y + of_psi * q.y);
        gradient[3 * k + 2] = static_cast<float>(of_phi * p.z + of_psi * q.z);
    }
    return energy;
}

}  // namespace
}  // namespace openmm_density
