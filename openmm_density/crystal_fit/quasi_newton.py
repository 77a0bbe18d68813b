"""Minimisation by limited-memory BFGS in steps that no variable exceeds, which bears energies with the noise of floats."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_MEMORY = 20
# Of the energy: a rise by less is noise.
_NOISE = 1e-7
# Of it too: where less is to be gained, the minimum is reached.
_CONVERGED = 1e-9
_SHORTER, _ATTEMPTS = 0.35, 6
_SUFFICIENT = 1e-4


class Minimum(NamedTuple):
    """Where a minimisation ended.

    Attributes
    ----------
    x : np.ndarray, shape (N,)
    energy : float
    iterations, evaluations : int
    """

    x: np.ndarray
    energy: float
    iterations: int
    evaluations: int


def minimized(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    x: np.ndarray,
    curvature: np.ndarray,
    iterations: int,
    longest: float,
) -> Minimum:
    """Minimise an energy of many variables (J. Nocedal, Math. Comput. 1980, 35, 773-782).

    Parameters
    ----------
    x : np.ndarray, shape (N,)
        From where.
    curvature : np.ndarray, shape (N,)
        About the second derivative by each variable, positive: what the variables are scaled by.
    """
    scale = np.sqrt(curvature)
    energy, gradient = evaluate(x)
    slope = gradient / scale
    pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_MEMORY)
    done, evaluations = 0, 1
    while done < iterations:
        direction = _direction(slope, pairs)
        direction *= min(1.0, longest / max(np.abs(direction / scale).max(), 1e-300))
        expected, length = float(direction @ slope), 1.0
        if -expected <= _CONVERGED * abs(energy):
            break
        for _ in range(_ATTEMPTS):
            tried = x + length * direction / scale
            energy_there, gradient = evaluate(tried)
            evaluations += 1
            bound = energy + _SUFFICIENT * length * expected + _NOISE * abs(energy)
            if np.isfinite(energy_there) and np.isfinite(gradient).all() and energy_there <= bound:
                break
            length *= _SHORTER
        else:
            if not pairs:
                break
            pairs.clear()
            continue
        step, change = length * direction, gradient / scale - slope
        if step @ change > 1e-10 * np.sqrt((step @ step) * (change @ change)):
            pairs.append((step, change))
        x, energy, slope, done = tried, energy_there, gradient / scale, done + 1
    return Minimum(x, energy, done, evaluations)


def _direction(slope: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the direction of descent by the two loops of the method."""
    q, parts = slope.copy(), []
    for step, change in reversed(pairs):
        parts.append((step @ q) / (step @ change))
        q -= parts[-1] * change
    if pairs:
        step, change = pairs[-1]
        q *= (step @ change) / (change @ change)
    for (step, change), part in zip(pairs, reversed(parts)):
        q += step * (part - (change @ q) / (step @ change))
    return -q if q @ slope > 0 else -slope
