// Limited-memory BFGS (Nocedal, Math. Comput. 35, 773 (1980)) with a backtracking search along lines.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace openmm_density {
namespace {

// How many steps are remembered, and how often a step along a line is tried.
constexpr int REMEMBERED = 6, MOST_TRIALS = 40;
// Armijo's and Wolfe's conditions, and factors of a step that is too long or too short.
constexpr double DECREASE = 1e-4, CURVATURE = 0.9, SHORTER = 0.5, LONGER = 2.1;

inline double product(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    return sum;
}

// Lower function(x, gradient) -> value; return its value at x, which is then that of lowest value so far.
template <typename Function>
double minimize(std::vector<double>& x, int64_t iterations, double tolerance, Function&& function) {
    const size_t n = x.size();
    std::vector<double> gradient(n), direction(n), before(n), slope_before(n), scales(REMEMBERED), alphas(REMEMBERED);
    std::vector<std::vector<double>> steps(REMEMBERED, std::vector<double>(n)), changes = steps;
    double value = function(x.data(), gradient.data());
    for (int64_t done = 0, kept = 0; done < iterations; ++done) {
        const double size = std::sqrt(product(gradient, gradient));
        if (!(size > tolerance)) break;
        for (size_t k = 0; k < n; ++k) direction[k] = -gradient[k];
        const int64_t known = std::min<int64_t>(kept, REMEMBERED);
        for (int64_t back = 1; back <= known; ++back) {
            const int64_t at = (kept - back) % REMEMBERED;
            alphas[at] = product(steps[at], direction) / scales[at];
            for (size_t k = 0; k < n; ++k) direction[k] -= alphas[at] * changes[at][k];
        }
        if (known) {
            const int64_t last = (kept - 1) % REMEMBERED;
            const double factor = scales[last] / product(changes[last], changes[last]);
            for (double& each : direction) each *= factor;
        }
        for (int64_t back = known; back >= 1; --back) {
            const int64_t at = (kept - back) % REMEMBERED;
            const double beta = product(changes[at], direction) / scales[at];
            for (size_t k = 0; k < n; ++k) direction[k] += (alphas[at] - beta) * steps[at][k];
        }
        double downhill = product(gradient, direction);
        if (!(downhill < 0.0)) break;
        before = x, slope_before = gradient;
        const double value_before = value;
        double length = known ? 1.0 : 1.0 / size;
        bool accepted = false;
        for (int trial = 0; trial < MOST_TRIALS && !accepted; ++trial) {
            for (size_t k = 0; k < n; ++k) x[k] = before[k] + length * direction[k];
            value = function(x.data(), gradient.data());
            const double slope = product(gradient, direction);
            if (!(value <= value_before + length * DECREASE * downhill))  // or it is no number
                length *= SHORTER;
            else if (slope < CURVATURE * downhill)
                length *= LONGER;
            else if (slope > -CURVATURE * downhill)
                length *= SHORTER;
            else
                accepted = true;
        }
        if (!accepted) {  // no step leads farther down
            x = before, gradient = slope_before, value = value_before;
            if (!known) break;
            kept = 0;  // but along the gradient itself, perhaps
            continue;
        }
        const int64_t at = kept % REMEMBERED;
        for (size_t k = 0; k < n; ++k) steps[at][k] = x[k] - before[k], changes[at][k] = gradient[k] - slope_before[k];
        scales[at] = product(steps[at], changes[at]);
        if (scales[at] > 0.0) ++kept;
    }
    return value;
}

}  // namespace
}  // namespace openmm_density
