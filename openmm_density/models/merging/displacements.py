"""Positions for the copies of a merged System: so far apart that they never interact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base.errors import InputError
from ...base.units import positive, takes_units, vectors


@takes_units(positions="nm", gap="nm")
def displacements_apart(positions: Sequence[np.ndarray], gap: float) -> np.ndarray:
    """Return the displacements that put models on a compact grid around zero, a gap apart.

    Parameters
    ----------
    positions : sequence of np.ndarray, shape (n_i, 3)
        Of each model, in nm.
    gap : float
        nm between the boxes of any two models: the cut-off plus the distance that atoms may move.

    Returns
    -------
    np.ndarray, shape (N, 3)
        In nm. Single precision is finest near zero.

    Raises
    ------
    InputError
        Positions are not finite or of another shape, or the gap is not positive.
    """
    positions = [
        vectors(each, "positions", "give those of each model, of shape (n, 3)") for each in positions
    ]
    gap = positive(gap, "gap", "nm, such as 3")
    if not len(positions) or not all(len(each) and np.isfinite(each).all() for each in positions):
        raise InputError("must be finite, of at least one model", argument="positions", remedy="give nm")
    lows = np.array([each.min(axis=0) for each in positions])
    highs = np.array([each.max(axis=0) for each in positions])
    pitch = (highs - lows).max(axis=0) + gap
    counts = _cells(len(positions), pitch)
    cells = np.stack(np.unravel_index(np.arange(len(positions)), counts), axis=1)
    return (cells - (np.array(counts) - 1) / 2) * pitch - (lows + highs) / 2


def closest_approach(positions: Sequence[np.ndarray]) -> float:
    """Return the least distance in nm between the boxes around any two models (n_i, 3), as they are."""
    lows = np.array([each.min(axis=0) for each in positions])
    highs = np.array([each.max(axis=0) for each in positions])
    if len(lows) < 2:
        return math.inf
    apart = np.maximum(lows[:, None] - highs[None, :], lows[None, :] - highs[:, None]).clip(min=0.0)
    distances = np.linalg.norm(apart, axis=2)
    return float(distances[~np.eye(len(lows), dtype=bool)].min())


def _cells(number: int, pitch: np.ndarray) -> tuple[int, int, int]:
    """Return the cells along each axis of the most compact grid that holds a number of models."""
    counts = [1, 1, 1]
    while math.prod(counts) < number:
        counts[int(np.argmin(np.array(counts) * pitch))] += 1
    return tuple(counts)
