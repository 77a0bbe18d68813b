"""The weights of an ensemble's replicas: how much of the mean density each of them is, refined with the replicas at rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base.errors import InputError

PRIOR = 0.005
"""How strongly weights are drawn to equal ones, in similarity: replicas of one conformation, which the map cannot tell apart,
share its weight evenly, and a weight that the map shows is moved by less than 0.02."""
ROUNDS = 80
"""Evaluations that a search for weights takes at most."""
# Largest change of a weight at which the search has ended.
_STILL = 1e-4
_FIRST_STEP, _SMALLEST_STEP = 4.0, 1e-4
_LEAST = 1e-6


def checked_weights(weights: object, replicas: int) -> np.ndarray:
    """Return the weights of replicas, shape (R,), which sum up to 1; equal ones where there are none."""
    if weights is None:
        return np.full(replicas, 1.0 / replicas)
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (replicas,) or not np.isfinite(found).all() or (found < 0).any():
        raise InputError(
            "must be one for each replica, 0 or more",
            argument="replica_weights",
            found=f"{found.tolist()} for {replicas}",
            remedy="give as many numbers, or leave them out for equal ones",
        )
    if abs(found.sum() - 1) > 1e-6:
        raise InputError(
            "must add up to 1",
            argument="replica_weights",
            found=f"{found.sum():g}",
            remedy="give parts of their sum",
        )
    return found / found.sum()


def refined_weights(
    similarity: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    prior: float = PRIOR,
    rounds: int = ROUNDS,
) -> np.ndarray:
    """Return the weights that maximise S(w) − prior · Σ w ln(R w), by mirror descent.

    A step multiplies each weight by an exponential of its gradient and divides by their sum, which is the projected gradient
    of what lies on the simplex (Beck and Teboulle 2003): weights stay positive and sum up to 1. The prior is the relative
    entropy to equal weights, as in the reweighting of ensembles by maximum entropy (Bottaro, Bengtsen and Lindorff-Larsen
    2020). `similarity`: takes weights and returns S and ∂S/∂w, shape (R,). `start` (R,): where the search begins; a weight of
    0 begins a little above it, so that it can come back.
    """
    weights = np.maximum(start, 1e-3 / len(start))
    weights /= weights.sum()

    def judged(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = similarity(w)
        logarithm = np.log(len(w) * np.maximum(w, _LEAST))
        return value - prior * float((w * logarithm).sum()), gradient - prior * (logarithm + 1)

    best, gradient = judged(weights)
    step = _FIRST_STEP
    for _ in range(rounds):
        if step < _SMALLEST_STEP:
            break
        exponent = step * (gradient - gradient.max())
        tried = weights * np.exp(np.maximum(exponent, -30.0))
        tried = np.maximum(tried / tried.sum(), _LEAST)
        tried /= tried.sum()
        value, its_gradient = judged(tried)
        if value <= best:
            step /= 4
            continue
        moved = np.abs(tried - weights).max()
        weights, best, gradient, step = tried, value, its_gradient, 1.5 * step
        if moved < _STILL:
            break
    return weights
