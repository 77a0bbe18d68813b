"""The lowest path of shifts along a chain."""

from __future__ import annotations

import itertools

import numpy as np

from openmm_density.extensions.rebuilding.lowest_path import lowest_path


def test_the_lowest_path_is_that_of_all_paths() -> None:
    rng = np.random.default_rng(3)
    shifts = np.array([0, -1, 1])
    for change in (0.0, 0.3, 2.0):
        energies = rng.normal(size=(7, 3))
        cost = {}
        for path in itertools.product(range(3), repeat=7):
            whole = np.array([0, *shifts[list(path)], 0])
            changes = np.abs(np.diff(whole)) * [0.5, *np.ones(6), 0.5]
            cost[path] = energies[np.arange(7), path].sum() + change * changes.sum()
        assert tuple(lowest_path(energies, shifts, change)) == min(cost, key=cost.__getitem__)
    assert len(lowest_path(np.zeros((0, 3)), shifts, 1.0)) == 0
    # Where nothing is told, nothing is shifted, nor all of a chain for little.
    assert not lowest_path(np.zeros((10, 3)), shifts, 1.0).any()
    little = np.zeros((10, 3))
    little[:, 1] = -0.05
    assert not lowest_path(little, shifts, 1.0).any()
    assert (lowest_path(4 * little, shifts, 1.0) == 1).all()
