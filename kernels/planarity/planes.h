// The planes' energies, then the atoms' gradients, on plain memory. __init__.py has the formulas.
//
// Planes advance together, one per SIMD lane, so that the solver has no branches. Each plane's members get a gradient of their
// own in a buffer; an atom then adds its members' in the order of the table. Every sum thus has one order, whatever the threads.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../member_gradients.h"
#include "../parallel.h"

namespace openmm_density {
namespace {

// Two or more vectors of every width there is: the solver waits for its divisions, and another vector fills the gaps.
constexpr int LANES = 32;
constexpr int64_t PLANES_PER_TASK = 8 * LANES;
constexpr int64_t SMALLEST_PLANE = 4;
// Second over third eigenvalue: a plane a million times longer than wide is a line, whose normal is rounding.
constexpr float COLLINEARITY_LIMIT = 1e-12f;
constexpr double HALF_LOG_TWO_PI = 0.91893853320467274178;

using Lanes = float[LANES];

// The planes of one call, as pack_planes lays them out.
struct Planes {
    const int32_t* members;
    const int32_t* offsets;
    const float* inverse_sigmas;
    int64_t count;
};

// The members of LANES planes: rows of lanes, padded to the largest plane with members that weigh nothing.
struct Members {
    float* x[3];
    float* inverse_sigma;
    int32_t rows;
};

// Slots of a symmetric matrix.
enum Element { XX, YY, ZZ, XY, XZ, YZ, ELEMENTS };

// Symmetric matrices, one per lane.
struct alignas(64) Matrices {
    Lanes element[ELEMENTS];
};

struct alignas(64) Axes {
    Lanes component[3][3];
};

inline void rotate(float& pp, float& qq, float& pq, float& pr, float& qr, float (&p)[3], float (&q)[3]) {
    const float difference = qq - pp;
    const float root = std::sqrt(difference * difference + 4.0f * pq * pq);
    const float tangent = std::copysign(2.0f, difference) * pq / (std::abs(difference) + root + FLT_MIN);
    const float cosine = 1.0f / std::sqrt(1.0f + tangent * tangent);
    const float sine = tangent * cosine;
    pp -= tangent * pq;
    qq += tangent * pq;
    pq = 0.0f;
    const float old_pr = pr;
    pr = cosine * pr - sine * qr;
    qr = sine * old_pr + cosine * qr;
    for (int i = 0; i < 3; ++i) {
        const float old = p[i];
        p[i] = cosine * p[i] - sine * q[i];
        q[i] = sine * old + cosine * q[i];
    }
}

// Cyclic Jacobi: the eigenvalues are left in XX, YY, ZZ, and the axes are the eigenvectors in the same order.
inline void diagonalise(Matrices& matrices, Axes& axes, int sweeps) {
    auto& m = matrices.element;
    auto& v = axes.component;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            for (int lane = 0; lane < LANES; ++lane) v[i][j][lane] = i == j ? 1.0f : 0.0f;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            float xx = m[XX][lane], yy = m[YY][lane], zz = m[ZZ][lane];
            float xy = m[XY][lane], xz = m[XZ][lane], yz = m[YZ][lane];
            float a[3] = {v[0][0][lane], v[0][1][lane], v[0][2][lane]};
            float b[3] = {v[1][0][lane], v[1][1][lane], v[1][2][lane]};
            float c[3] = {v[2][0][lane], v[2][1][lane], v[2][2][lane]};
            rotate(xx, yy, xy, xz, yz, a, b);
            rotate(xx, zz, xz, xy, yz, a, c);
            rotate(yy, zz, yz, xy, xz, b, c);
            m[XX][lane] = xx, m[YY][lane] = yy, m[ZZ][lane] = zz;
            m[XY][lane] = xy, m[XZ][lane] = xz, m[YZ][lane] = yz;
            for (int j = 0; j < 3; ++j) v[0][j][lane] = a[j], v[1][j][lane] = b[j], v[2][j][lane] = c[j];
        }
    }
}

// Gather, subtract the first member in the positions' own precision, centre with the weights 1/sigma^2, divide by sigma.
template <typename Real>
void gather(const Real* positions, const Planes& planes, const int32_t* first, const int32_t* size, const Members& out,
            Lanes& total_weight) {
    float* const x = out.x[0];
    float* const y = out.x[1];
    float* const z = out.x[2];
    float* const s = out.inverse_sigma;
    for (int lane = 0; lane < LANES; ++lane) {
        const int32_t* const atoms = planes.members + first[lane];
        const Real* const origin = positions + 3 * int64_t{atoms[0]};
        const float* const inverse_sigmas = planes.inverse_sigmas + first[lane];
        int32_t at = lane;
        for (int32_t row = 0; row < size[lane]; ++row, at += LANES) {
            const Real* const position = positions + 3 * int64_t{atoms[row]};
            x[at] = static_cast<float>(position[0] - origin[0]);
            y[at] = static_cast<float>(position[1] - origin[1]);
            z[at] = static_cast<float>(position[2] - origin[2]);
            s[at] = inverse_sigmas[row];
        }
        for (int32_t row = size[lane]; row < out.rows; ++row, at += LANES) x[at] = y[at] = z[at] = s[at] = 0.0f;
    }

    alignas(64) Lanes mean[3] = {}, weight = {};
    for (int32_t row = 0; row < out.rows; ++row)
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            const int32_t at = row * LANES + lane;
            const float w = s[at] * s[at];
            weight[lane] += w;
            mean[0][lane] += w * x[at];
            mean[1][lane] += w * y[at];
            mean[2][lane] += w * z[at];
        }

#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
        total_weight[lane] = weight[lane];
        for (int i = 0; i < 3; ++i) mean[i][lane] /= weight[lane];
    }
    for (int32_t row = 0; row < out.rows; ++row)
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            const int32_t at = row * LANES + lane;
            x[at] = (x[at] - mean[0][lane]) * s[at];
            y[at] = (y[at] - mean[1][lane]) * s[at];
            z[at] = (z[at] - mean[2][lane]) * s[at];
        }
}

inline void covariance(const Members& members, Matrices& result) {
    Matrices sum{};
    auto& m = sum.element;
    for (int32_t row = 0; row < members.rows; ++row) {
        const float* const x = members.x[0] + row * LANES;
        const float* const y = members.x[1] + row * LANES;
        const float* const z = members.x[2] + row * LANES;
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            m[XX][lane] += x[lane] * x[lane];
            m[YY][lane] += y[lane] * y[lane];
            m[ZZ][lane] += z[lane] * z[lane];
            m[XY][lane] += x[lane] * y[lane];
            m[XZ][lane] += x[lane] * z[lane];
            m[YZ][lane] += y[lane] * z[lane];
        }
    }
    result = sum;
}

inline void scale(Matrices& matrices, const Lanes& factor) {
    for (auto& element : matrices.element)
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) element[lane] *= factor[lane];
}

// Rotate the members into the frame of the axes.
inline void rotate_into(const Members& members, const Axes& axes) {
    const auto& v = axes.component;
    for (int32_t row = 0; row < members.rows; ++row) {
        float* const x = members.x[0] + row * LANES;
        float* const y = members.x[1] + row * LANES;
        float* const z = members.x[2] + row * LANES;
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            const float a = v[0][0][lane] * x[lane] + v[0][1][lane] * y[lane] + v[0][2][lane] * z[lane];
            const float b = v[1][0][lane] * x[lane] + v[1][1][lane] * y[lane] + v[1][2][lane] * z[lane];
            const float c = v[2][0][lane] * x[lane] + v[2][1][lane] * y[lane] + v[2][2][lane] * z[lane];
            x[lane] = a, y[lane] = b, z[lane] = c;
        }
    }
}

// Energies of LANES planes, and the gradient of each of their members.
template <typename Real>
void evaluate(const Real* positions, const Planes& planes, int64_t begin, int64_t count, const Members& scratch,
              float* member_gradient, double& energy) {
    int32_t first[LANES], size[LANES];
    Members members = scratch;
    members.rows = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        const int64_t plane = begin + std::min<int64_t>(lane, count - 1);
        first[lane] = planes.offsets[plane];
        size[lane] = planes.offsets[plane + 1] - first[lane];
        members.rows = std::max(members.rows, size[lane]);
    }

    alignas(64) Lanes weight, trace, inverse_trace;
    Matrices matrices;
    Axes rough, exact;
    gather(positions, planes, first, size, members, weight);
    covariance(members, matrices);
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
        trace[lane] = matrices.element[XX][lane] + matrices.element[YY][lane] + matrices.element[ZZ][lane];
        inverse_trace[lane] = 1.0f / std::max(trace[lane], FLT_MIN);
    }
    scale(matrices, inverse_trace);
    diagonalise(matrices, rough, 3);
    // The covariance squares the members, which halves the digits of a narrow plane's small eigenvalues. In the
    // frame of its own axes they no longer are small differences of large numbers.
    rotate_into(members, rough);
    covariance(members, matrices);
    scale(matrices, inverse_trace);
    diagonalise(matrices, exact, 2);

    alignas(64) Lanes axis[3], normal[3], mean = {}, square = {}, usable;
    const auto& m = matrices.element;
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
        const float a = m[XX][lane], b = m[YY][lane], c = m[ZZ][lane];
        const float largest = std::max(std::max(a, b), c);
        const float middle = std::max(std::min(a, b), std::min(std::max(a, b), c));
        const bool third = c < a && c < b;
        const bool second = b < a && !third;
        float u[3];
        for (int j = 0; j < 3; ++j) {
            u[j] = third ? exact.component[2][j][lane] : second ? exact.component[1][j][lane] : exact.component[0][j][lane];
            axis[j][lane] = u[j];
        }
        for (int j = 0; j < 3; ++j)
            normal[j][lane] = u[0] * rough.component[0][j][lane] + u[1] * rough.component[1][j][lane] +
                              u[2] * rough.component[2][j][lane];
        // False for NaN too: a member that is not finite makes the trace so.
        const bool finite = trace[lane] <= std::numeric_limits<float>::max();
        usable[lane] = finite && middle > COLLINEARITY_LIMIT * largest ? 1.0f : 0.0f;
    }

    for (int32_t row = 0; row < members.rows; ++row) {
        float* const x = members.x[0] + row * LANES;
        const float* const y = members.x[1] + row * LANES;
        const float* const z = members.x[2] + row * LANES;
        const float* const s = members.inverse_sigma + row * LANES;
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            x[lane] = axis[0][lane] * x[lane] + axis[1][lane] * y[lane] + axis[2][lane] * z[lane];
            mean[lane] += s[lane] * x[lane];
        }
    }
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) mean[lane] /= weight[lane];
    for (int32_t row = 0; row < members.rows; ++row) {
        float* const x = members.x[0] + row * LANES;
        const float* const s = members.inverse_sigma + row * LANES;
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            // The centroid's rounding, which would be a net force.
            const float distance = x[lane] - s[lane] * mean[lane];
            square[lane] += distance * distance;
            x[lane] = s[lane] * distance;
        }
    }

    for (int lane = 0; lane < count; ++lane) {
        const bool good = usable[lane] != 0.0f;
        if (good) energy += 0.5 * static_cast<double>(square[lane]);
        const float n[3] = {good ? normal[0][lane] : 0.0f, good ? normal[1][lane] : 0.0f, good ? normal[2][lane] : 0.0f};
        float* gradient = member_gradient + 3 * int64_t{first[lane]};
        for (int32_t row = 0; row < size[lane]; ++row, gradient += 3) {
            const float slope = good ? members.x[0][row * LANES + lane] : 0.0f;
            for (int i = 0; i < 3; ++i) gradient[i] = slope * n[i];
        }
    }
}

// The terms of the likelihood that do not depend on the positions, of the members [begin, end).
inline double constants_of(const float* inverse_sigmas, int64_t begin, int64_t end) {
    double sum = HALF_LOG_TWO_PI * static_cast<double>(end - begin);
    double product = 1.0;
    for (int64_t member = begin; member < end; ++member) {
        product *= inverse_sigmas[member];
        // One logarithm for many members, before the product leaves the range of a double.
        if (!(product > 1e-200 && product < 1e200)) {
            sum -= std::log(product);
            product = 1.0;
        }
    }
    return sum - std::log(product);
}

// The rows of each atom among the gradients of members.
struct AtomTable {
    const int32_t* offsets;
    const int32_t* members;
    int64_t n_listed;
};

// Return the energy, and store scale times the gradient of all atoms.
template <typename Real>
double compute(const Real* positions, const Planes& planes, const AtomTable& table, bool constants, double scale, int64_t n_atoms,
               Real* gradient) {
    const int64_t n_members = planes.offsets[planes.count];
    const int64_t n_tasks = (planes.count + PLANES_PER_TASK - 1) / PLANES_PER_TASK;
    int32_t rows = 0;
    for (int64_t plane = 0; plane < planes.count; ++plane)
        rows = std::max(rows, planes.offsets[plane + 1] - planes.offsets[plane]);

    // Those of the calling thread, which are all written before they are read.
    static thread_local std::vector<float> member_gradients, scratch;
    static thread_local std::vector<double> partial;
    const int64_t row_floats = int64_t{rows} * LANES;
    member_gradients.resize(std::max<size_t>(member_gradients.size(), 3 * n_members));
    scratch.resize(std::max<size_t>(scratch.size(), threads_for(n_tasks) * 4 * row_floats));
    partial.assign(n_tasks, 0.0);
    float* const of_members = member_gradients.data();
    float* const floats = scratch.data();
    double* const parts = partial.data();

    parallel_for(n_tasks, [&](int64_t task, int thread) {
        float* const mine = floats + thread * 4 * row_floats;
        const Members members{{mine, mine + row_floats, mine + 2 * row_floats}, mine + 3 * row_floats, 0};
        const int64_t begin = task * PLANES_PER_TASK;
        const int64_t end = std::min(planes.count, begin + PLANES_PER_TASK);
        double energy = 0.0;
        for (int64_t plane = begin; plane < end; plane += LANES)
            evaluate(positions, planes, plane, std::min<int64_t>(LANES, end - plane), members, of_members, energy);
        if (constants) energy += constants_of(planes.inverse_sigmas, planes.offsets[begin], planes.offsets[end]);
        parts[task] = energy;
    });

    add_to_atoms<Real>(of_members, table.offsets, table.members, table.n_listed, n_atoms, scale, gradient);
    double energy = 0.0;
    for (const double part : partial) energy += part;
    return energy;
}

}  // namespace
}  // namespace openmm_density
