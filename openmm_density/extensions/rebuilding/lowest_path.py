"""The shifts along a chain of lowest energy in all, by dynamic programming (Viterbi 1967)."""

from __future__ import annotations

import numpy as np


def lowest_path(energies: np.ndarray, shifts: np.ndarray, change: float) -> np.ndarray:
    """Choose a column for each row so that the sum of energies, and of `change` times what the shift changes by, is lowest.

    Half of it counts where a path begins or ends shifted: one that is shifted all along changes once in all.

    Parameters
    ----------
    energies : np.ndarray, shape (N, K)
    shifts : np.ndarray of int, shape (K,)
        Of each column.

    Returns
    -------
    np.ndarray of int, shape (N,)
        Of equal paths that with the first columns.
    """
    if not len(energies):
        return np.zeros(0, dtype=np.int64)
    steps = change * np.abs(shifts[:, None] - shifts)
    at_ends = 0.5 * change * np.abs(shifts)
    came_from = []
    total = at_ends + energies[0]
    for own in energies[1:]:
        paths = total[:, None] + steps
        came_from.append(paths.argmin(axis=0))
        total = paths.min(axis=0) + own
    path = [int((total + at_ends).argmin())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])
