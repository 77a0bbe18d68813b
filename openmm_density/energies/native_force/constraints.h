// Constraints of OpenMM's CPU platform in a time that grows with their number: the platform inverts the matrix of all of them for each
// Context, column by column, in half a minute for 80 000.
//
// Bonds to hydrogens form stars, of one atom and those that are bonded to no other by a constraint. No star knows of another, so that
// each is solved by itself, by Newton's method. What forms no stars, as water, stays the platform's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "openmm/Context.h"
#include "openmm/System.h"
#include "openmm/internal/ContextImpl.h"
#include "openmm/internal/ThreadPool.h"
#include "openmm/reference/ReferencePlatform.h"

namespace openmm_density {

constexpr int LARGEST_STAR = 6;  // Constraints of one atom
constexpr int MOST_ITERATIONS = 150;  // As OpenMM's; stars take two or three
constexpr int64_t STARS_OF_A_THREAD = 1000;  // Fewer are solved sooner than a thread is awake

struct Constraint {
    int first, second;
    double length;  // nm
};

inline std::vector<Constraint> constraints_of(const OpenMM::System& system) {
    std::vector<Constraint> found(system.getNumConstraints());
    for (size_t i = 0; i < found.size(); i++)
        system.getConstraintParameters((int) i, found[i].first, found[i].second, found[i].length);
    return found;
}

inline void set_constraints(OpenMM::System& system, const std::vector<Constraint>& constraints) {
    for (int i = system.getNumConstraints() - 1; i >= 0; i--)
        system.removeConstraint(i);
    for (const Constraint& each : constraints)
        system.addConstraint(each.first, each.second, each.length);
}

// Stars, one after another: leaves and lengths of star s are those from offsets[s] to offsets[s + 1].
struct Stars {
    std::vector<int> centres, leaves;
    std::vector<double> lengths;
    std::vector<int64_t> offsets{0};
};

// Take from constraints those that form stars.
inline Stars taken_stars(const OpenMM::System& system, std::vector<Constraint>& constraints) {
    std::vector<std::vector<std::pair<int, double>>> around(system.getNumParticles());
    for (const Constraint& each : constraints) {
        if (std::min(each.first, each.second) < 0 || std::max(each.first, each.second) >= system.getNumParticles())
            return {};  // OpenMM says so
        around[each.first].push_back({each.second, each.length});
        around[each.second].push_back({each.first, each.length});
    }
    const auto is_centre = [&](int atom) {
        return !around[atom].empty() && around[atom].size() <= LARGEST_STAR && system.getParticleMass(atom) > 0 &&
               std::all_of(around[atom].begin(), around[atom].end(), [&](const auto& leaf) {
                   return around[leaf.first].size() == 1 && system.getParticleMass(leaf.first) > 0;
               });
    };
    Stars stars;
    std::vector<bool> taken(around.size(), false);
    for (int atom = 0; atom < (int) around.size(); atom++) {
        // Of two atoms that have one another alone the first is the centre.
        if (!is_centre(atom) || taken[around[atom][0].first])
            continue;
        taken[atom] = true;
        stars.centres.push_back(atom);
        for (const auto& [leaf, length] : around[atom]) {
            taken[leaf] = true;
            stars.leaves.push_back(leaf);
            stars.lengths.push_back(length);
        }
        stars.offsets.push_back((int64_t) stars.leaves.size());
    }
    constraints.erase(std::remove_if(constraints.begin(), constraints.end(), [&](const Constraint& each) { return taken[each.first]; }),
                      constraints.end());
    return stars;
}

class StarConstraints : public OpenMM::ReferenceConstraintAlgorithm {
public:
    // `others`: of the constraints that form no stars; may be null, and so may `threads`.
    StarConstraints(Stars stars, OpenMM::ReferenceConstraintAlgorithm* others, OpenMM::ThreadPool* threads)
        : stars(std::move(stars)), others(others), threads(threads) {}

    void apply(std::vector<OpenMM::Vec3>& before, std::vector<OpenMM::Vec3>& after, std::vector<double>& inverse_masses,
               double tolerance) override {
        if (others != nullptr)
            others->apply(before, after, inverse_masses, tolerance);
        for_each_star([&](int64_t star) { move(star, before, after, inverse_masses, tolerance); });
    }
    void applyToVelocities(std::vector<OpenMM::Vec3>& positions, std::vector<OpenMM::Vec3>& velocities, std::vector<double>& inverse_masses,
                           double tolerance) override {
        if (others != nullptr)
            others->applyToVelocities(positions, velocities, inverse_masses, tolerance);
        for_each_star([&](int64_t star) { slow(star, positions, velocities, inverse_masses); });
    }

private:
    template <class Solve>
    void for_each_star(const Solve& solve) {
        const int64_t n = (int64_t) stars.centres.size();
        const int64_t n_parts = std::min<int64_t>(threads == nullptr ? 1 : threads->getNumThreads(), n / STARS_OF_A_THREAD);
        const auto solve_part = [&](int64_t part, int64_t parts) {
            for (int64_t star = n * part / parts; star < n * (part + 1) / parts; star++)
                solve(star);
        };
        if (n_parts < 2) {
            solve_part(0, 1);
            return;
        }
        threads->execute([&](OpenMM::ThreadPool&, int thread) {
            if (thread < n_parts)
                solve_part(thread, n_parts);
        });
        threads->waitForThreads();
    }

    // Move atoms along the bonds as they were until these have their lengths. The centre c and leaf i move by -Σ_k λ_k r_k / m_c and
    // λ_i r_i / m_i; Newton's method finds λ where all |s_i|² = d_i², r and s being the bonds before and after.
    void move(int64_t star, const std::vector<OpenMM::Vec3>& before, std::vector<OpenMM::Vec3>& after,
              const std::vector<double>& inverse_masses, double tolerance) const {
        const int64_t first = stars.offsets[star];
        const int n = (int) (stars.offsets[star + 1] - first), centre = stars.centres[star];
        const int* leaves = &stars.leaves[first];
        const double* lengths = &stars.lengths[first];
        const double least = (1 - tolerance) * (1 - tolerance), most = (1 + tolerance) * (1 + tolerance);
        OpenMM::Vec3 bonds[LARGEST_STAR], moved[LARGEST_STAR];
        for (int i = 0; i < n; i++)
            bonds[i] = before[leaves[i]] - before[centre];
        for (int iteration = 0; iteration < MOST_ITERATIONS; iteration++) {
            double multipliers[LARGEST_STAR];
            bool holds = true;
            for (int i = 0; i < n; i++) {
                moved[i] = after[leaves[i]] - after[centre];
                const double squared = moved[i].dot(moved[i]), wanted = lengths[i] * lengths[i];
                holds = holds && squared >= least * wanted && squared <= most * wanted;
                multipliers[i] = 0.5 * (wanted - squared);
            }
            if (holds)
                return;
            push(star, moved, bonds, multipliers, after, inverse_masses);
        }
    }

    // Take from velocities what would change the length of a bond.
    void slow(int64_t star, const std::vector<OpenMM::Vec3>& positions, std::vector<OpenMM::Vec3>& velocities,
              const std::vector<double>& inverse_masses) const {
        const int64_t first = stars.offsets[star];
        const int n = (int) (stars.offsets[star + 1] - first), centre = stars.centres[star];
        const int* leaves = &stars.leaves[first];
        OpenMM::Vec3 bonds[LARGEST_STAR];
        double multipliers[LARGEST_STAR];
        for (int i = 0; i < n; i++) {
            bonds[i] = positions[leaves[i]] - positions[centre];
            multipliers[i] = -bonds[i].dot(velocities[leaves[i]] - velocities[centre]);
        }
        push(star, bonds, bonds, multipliers, velocities, inverse_masses);
    }

    // Push atoms apart along bonds so that what is seen along others changes by so much, to first order.
    void push(int64_t star, const OpenMM::Vec3 (&along)[LARGEST_STAR], const OpenMM::Vec3 (&bonds)[LARGEST_STAR],
              double (&changes)[LARGEST_STAR], std::vector<OpenMM::Vec3>& pushed, const std::vector<double>& inverse_masses) const {
        const int64_t first = stars.offsets[star];
        const int n = (int) (stars.offsets[star + 1] - first), centre = stars.centres[star];
        const int* leaves = &stars.leaves[first];
        double matrix[LARGEST_STAR][LARGEST_STAR];
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                matrix[i][k] = along[i].dot(bonds[k]) * (inverse_masses[centre] + (i == k ? inverse_masses[leaves[i]] : 0.0));
        solve(matrix, changes, n);
        for (int i = 0; i < n; i++) {
            const OpenMM::Vec3 impulse = bonds[i] * changes[i];
            pushed[leaves[i]] += impulse * inverse_masses[leaves[i]];
            pushed[centre] -= impulse * inverse_masses[centre];
        }
    }

    // Gaussian elimination; the diagonal is the largest of its column, nearly, as hydrogens are light.
    static void solve(double (&matrix)[LARGEST_STAR][LARGEST_STAR], double (&values)[LARGEST_STAR], int n) {
        for (int k = 0; k < n; k++)
            for (int i = k + 1; i < n; i++) {
                const double factor = matrix[i][k] / matrix[k][k];
                for (int j = k + 1; j < n; j++)
                    matrix[i][j] -= factor * matrix[k][j];
                values[i] -= factor * values[k];
            }
        for (int i = n - 1; i >= 0; i--) {
            for (int j = i + 1; j < n; j++)
                values[i] -= matrix[i][j] * values[j];
            values[i] /= matrix[i][i];
        }
    }

    const Stars stars;
    const std::unique_ptr<OpenMM::ReferenceConstraintAlgorithm> others;
    OpenMM::ThreadPool* const threads;
};

// The threads of a platform's data, which do not have any before OpenMM 8.4.
template <class Data>
auto threads_in(Data& data, int) -> decltype(&data.threads) {
    return &data.threads;
}
template <class Data>
OpenMM::ThreadPool* threads_in(Data&, long) {
    return nullptr;
}

OpenMM::ContextImpl* implementation_of(const OpenMM::Context& context);
// A Context does not show it; an explicit instantiation may name what is private.
template <OpenMM::ContextImpl* OpenMM::Context::*member>
struct Implementation {
    friend OpenMM::ContextImpl* implementation_of(const OpenMM::Context& context) {
        return context.*member;
    }
};
template struct Implementation<&OpenMM::Context::impl>;

// Constraints that a System is without while a Context of it is made.
class ReleasedConstraints {
public:
    explicit ReleasedConstraints(OpenMM::System& system) : system(system), all(constraints_of(system)) {
        std::vector<Constraint> others = all;
        stars = taken_stars(system, others);
        if (!stars.centres.empty())
            set_constraints(system, others);
    }
    // Give them back to the System, and to the Context, if it could be made.
    void restore(const OpenMM::Context* context) {
        if (stars.centres.empty())
            return;
        set_constraints(system, all);
        if (context == nullptr)
            return;
        auto* data = reinterpret_cast<OpenMM::ReferencePlatform::PlatformData*>(implementation_of(*context)->getPlatformData());
        data->constraints->ccma = new StarConstraints(std::move(stars), data->constraints->ccma, threads_in(*data, 0));
    }

private:
    OpenMM::System& system;
    const std::vector<Constraint> all;
    Stars stars;
};

}  // namespace openmm_density
