// Planarity on the CPU: the planes' energies, then the atoms' gradients. __init__.py has the formulas.
//
// Planes advance together, one per SIMD lane, so that the solver has no branches. Each plane's members get a gradient of their
// own in a buffer; an atom then adds its members' in the order of the table. Every sum thus has one order, whatever the threads.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "member_gradients.h"
#include "parallel.h"
#include "scale.h"

namespace {

using openmm_density::parallel_for;
using openmm_density::threads_for;

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
void diagonalise(Matrices& matrices, Axes& axes, int sweeps) {
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

void covariance(const Members& members, Matrices& result) {
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

void scale(Matrices& matrices, const Lanes& factor) {
    for (auto& element : matrices.element)
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) element[lane] *= factor[lane];
}

// Rotate the members into the frame of the axes.
void rotate_into(const Members& members, const Axes& axes) {
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
double constants_of(const float* inverse_sigmas, int64_t begin, int64_t end) {
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

template <typename Real>
double compute(const at::Tensor& positions, const Planes& planes, const at::Tensor& atom_offsets,
               const at::Tensor& atom_members, bool constants, double scale, at::Tensor& gradient) {
    const int64_t n_members = planes.offsets[planes.count];
    const int64_t n_tasks = (planes.count + PLANES_PER_TASK - 1) / PLANES_PER_TASK;
    int32_t rows = 0;
    for (int64_t plane = 0; plane < planes.count; ++plane)
        rows = std::max(rows, planes.offsets[plane + 1] - planes.offsets[plane]);

    const auto options = positions.options().dtype(at::kFloat);
    at::Tensor member_gradient = at::empty({n_members, 3}, options);
    const int64_t row_floats = int64_t{rows} * LANES;
    at::Tensor scratch = at::empty({threads_for(n_tasks), 4 * row_floats}, options);
    float* const member_gradients = member_gradient.data_ptr<float>();
    float* const scratch_floats = scratch.data_ptr<float>();
    const Real* const coordinates = positions.const_data_ptr<Real>();
    std::vector<double> partial(n_tasks, 0.0);

    parallel_for(n_tasks, [&](int64_t task, int thread) {
        float* const mine = scratch_floats + thread * 4 * row_floats;
        const Members members{{mine, mine + row_floats, mine + 2 * row_floats}, mine + 3 * row_floats, 0};
        const int64_t begin = task * PLANES_PER_TASK;
        const int64_t end = std::min(planes.count, begin + PLANES_PER_TASK);
        double energy = 0.0;
        for (int64_t plane = begin; plane < end; plane += LANES)
            evaluate(coordinates, planes, plane, std::min<int64_t>(LANES, end - plane), members, member_gradients, energy);
        if (constants) energy += constants_of(planes.inverse_sigmas, planes.offsets[begin], planes.offsets[end]);
        partial[task] = energy;
    });

    openmm_density::add_to_atoms<Real>(member_gradients, atom_offsets.const_data_ptr<int32_t>(), atom_members.const_data_ptr<int32_t>(),
                       atom_offsets.numel() - 1, positions.size(0), scale, gradient.data_ptr<Real>());
    double energy = 0.0;
    for (const double part : partial) energy += part;
    return energy;
}

void check_table(const at::Tensor& table, at::ScalarType type, const char* name) {
    TORCH_CHECK_VALUE(table.dim() == 1 && table.scalar_type() == type && table.is_contiguous(), "planarity: ", name,
                      " must be a contiguous one-dimensional tensor of ", type, ", but has shape ", table.sizes(), " and type ",
                      table.scalar_type(), ": take it from pack_planes");
}

void check_entries(const at::Tensor& table, int64_t limit, const char* name, const char* of) {
    const int32_t* const entries = table.const_data_ptr<int32_t>();
    const int64_t n = table.numel();
    int32_t wrong = 0;
#pragma omp simd reduction(+ : wrong)
    for (int64_t i = 0; i < n; ++i) wrong += entries[i] < 0 || entries[i] >= limit;
    if (wrong == 0) return;
    const int32_t first = *std::find_if(entries, entries + n, [&](int32_t entry) { return entry < 0 || entry >= limit; });
    TORCH_CHECK_VALUE(false, "planarity: ", name, " holds index ", first, ", but there are ", limit, " ", of,
                      ": give the positions of all atoms that the planes were packed for");
}

void check_offsets(const at::Tensor& offsets, int64_t total, int32_t smallest_step, const char* name) {
    const int64_t n = offsets.numel();
    const int32_t* const values = offsets.const_data_ptr<int32_t>();
    int32_t steps_too_small = 0;
#pragma omp simd reduction(+ : steps_too_small)
    for (int64_t i = 1; i < n; ++i) steps_too_small += int64_t{values[i]} - values[i - 1] < smallest_step;
    const bool rises = n > 0 && values[0] == 0 && values[n - 1] == total && steps_too_small == 0;
    TORCH_CHECK_VALUE(rises, "planarity: ", name, " must rise from 0 to ", total, " in steps of at least ", smallest_step,
                      ": take it from pack_planes");
}

std::tuple<at::Tensor, at::Tensor> planarity(const at::Tensor& positions, const at::Tensor& members, const at::Tensor& offsets,
                                             const at::Tensor& inverse_sigmas, const at::Tensor& atom_offsets,
                                             const at::Tensor& atom_members, bool constants,
                                             const std::optional<at::Tensor>& scale) {
    const at::ScalarType type = positions.scalar_type();
    TORCH_CHECK_VALUE(positions.dim() == 2 && positions.size(1) == 3 && (type == at::kFloat || type == at::kDouble),
                      "planarity: positions must be a float32 or float64 tensor of shape (atoms, 3), but have shape ",
                      positions.sizes(), " and type ", type);
    check_table(members, at::kInt, "members");
    check_table(offsets, at::kInt, "offsets");
    check_table(inverse_sigmas, at::kFloat, "inverse_sigmas");
    check_table(atom_offsets, at::kInt, "atom_offsets");
    check_table(atom_members, at::kInt, "atom_members");
    const int64_t n_members = members.numel();
    TORCH_CHECK_VALUE(inverse_sigmas.numel() == n_members && atom_members.numel() == n_members, "planarity: ", n_members,
                      " members need as many inverse_sigmas and atom_members, but there are ", inverse_sigmas.numel(), " and ",
                      atom_members.numel(), ": take all tables from one pack_planes");
    check_offsets(offsets, n_members, SMALLEST_PLANE, "offsets");
    check_offsets(atom_offsets, n_members, 0, "atom_offsets");
    check_entries(members, positions.size(0), "members", "positions");
    check_entries(atom_members, n_members, "atom_members", "members");

    const at::Tensor x = positions.contiguous();
    at::Tensor gradient = at::empty({x.size(0), 3}, x.options());
    at::Tensor energy = at::empty({}, x.options().dtype(at::kDouble));
    const Planes planes{members.const_data_ptr<int32_t>(), offsets.const_data_ptr<int32_t>(),
                        inverse_sigmas.const_data_ptr<float>(), offsets.numel() - 1};
    const double factor = openmm_density::value_of(scale);
    *energy.data_ptr<double>() =
        type == at::kFloat ? compute<float>(x, planes, atom_offsets, atom_members, constants, factor, gradient)
                           : compute<double>(x, planes, atom_offsets, atom_members, constants, factor, gradient);
    return {energy, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("planarity", &planarity);
}
