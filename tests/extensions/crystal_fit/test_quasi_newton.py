"""Minimisation by limited-memory BFGS."""

import numpy as np

from openmm_density.extensions.crystal_fit.amplitude_refinement import minimized


def test_it_finds_the_minimum_of_a_narrow_valley():
    def rosenbrock(x):
        a, b = 1 - x[0], x[1] - x[0] ** 2
        return a**2 + 100 * b**2, np.array([-2 * a - 400 * x[0] * b, 200 * b])

    found = minimized(rosenbrock, np.array([-1.2, 1.0]), np.array([800.0, 200.0]), 100, 0.5)
    assert np.allclose(found.x, 1.0, atol=2e-3) and found.iterations < 60
    assert found.evaluations < 2 * found.iterations


def test_no_variable_moves_farther_than_is_allowed_and_what_is_no_number_is_backed_away_from():
    visited = []

    def walled(x):
        visited.append(x.copy())
        if x[0] > 0.25:
            return np.nan, np.full(2, np.nan)
        return float((x**2).sum() / 2 + 10 * x[0]), x + np.array([10.0, 0.0])

    start = np.array([0.2, -3.0])
    minimized(walled, start, np.ones(2), 3, 0.1)
    assert np.abs(np.diff([start, *visited[1:]], axis=0)).max() <= 0.1 + 1e-12
    stuck = minimized(
        lambda x: walled(np.array([0.3, 0.0])) if x[0] != 0.2 else walled(x), start, np.ones(2), 9, 0.1
    )
    assert stuck.iterations == 0 and np.array_equal(stuck.x, start)
