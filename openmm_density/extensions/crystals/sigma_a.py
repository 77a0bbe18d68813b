"""σA: how well a model's amplitudes predict those measured, by likelihood, and what that makes of map coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

PER_NODE, MOST_NODES = 60, 12
"""Reflections for each node of the curve, at least, and how many there are at most."""
SMOOTHNESS = 2.0
"""Of the prior that holds neighbouring nodes alike: half the squared difference of their logits is multiplied by it."""
SHELLS = 20
"""Of resolution, in which both amplitudes are normalised, at most; at least 100 reflections in each."""


@dataclass(frozen=True)
class SigmaA:
    """σA of each reflection, and the normalisation that goes with it."""

    sigma_a: np.ndarray  # (M,)
    d: np.ndarray  # (M,), Luzzati's D, by which the model's amplitude is multiplied: σA √(Σ_N/Σ_P)
    total: np.ndarray  # (M,), Σ_N, the mean intensity that is measured at this resolution for ε = 1
    n_used: int  # From how many reflections it was estimated


def log_likelihood(
    measured: np.ndarray, model: np.ndarray, sigma_a: np.ndarray, centric: np.ndarray
) -> np.ndarray:
    """Return the logarithm of the likelihood of normalised amplitudes (Read, Acta Cryst. 1986, A42, 140-149).

    `measured`, `model` (N,) of unit mean square; `sigma_a` (N,); `centric` bool (N,).
    """
    variance = 1 - sigma_a**2
    x = measured * sigma_a * model / variance
    square = measured**2 + (sigma_a * model) ** 2
    acentric = np.log(2 * measured / variance) - square / variance + np.log(special.i0e(2 * x)) + 2 * x
    both = np.logaddexp(x, -x) - np.log(2)
    centrics = 0.5 * np.log(2 / (np.pi * variance)) - square / (2 * variance) + both
    return np.where(centric, centrics, acentric)


def figure_of_merit(
    measured: np.ndarray, model: np.ndarray, sigma_a: np.ndarray, centric: np.ndarray
) -> np.ndarray:
    """Return m, the expected cosine of the phases' error, of normalised amplitudes (Sim, Acta Cryst. 1959, 12, 813-815)."""
    x = measured * sigma_a * model / (1 - sigma_a**2)
    return np.where(centric, np.tanh(x), special.i1e(2 * x) / special.i0e(2 * x))


def estimate_sigma_a(
    measured: np.ndarray,
    model: np.ndarray,
    inverse_d2: np.ndarray,
    centric: np.ndarray,
    at: np.ndarray,
) -> np.ndarray:
    """Return σA at some resolutions, by the largest likelihood of normalised amplitudes.

    Its logit is linear in 1/d² between nodes, each with as many reflections, which a weak prior holds alike. `measured`,
    `model` (N,): normalised amplitudes of the reflections that it is estimated from; `inverse_d2` (N,) of these; `centric`
    bool (N,); `at` (M,): 1/d² where it is asked for.
    """
    n_nodes = int(np.clip(len(measured) // PER_NODE, 1, MOST_NODES))
    nodes = np.quantile(inverse_d2, (np.arange(n_nodes) + 0.5) / n_nodes)
    measured = np.maximum(measured, 1e-6)

    def curve(logits: np.ndarray, where: np.ndarray) -> np.ndarray:
        return np.clip(special.expit(np.interp(where, nodes, logits)), 1e-3, 0.9995)

    def loss(logits: np.ndarray) -> float:
        fit = log_likelihood(measured, model, curve(logits, inverse_d2), centric).sum()
        return float(-fit + 0.5 * SMOOTHNESS * np.sum(np.diff(logits) ** 2) + 1e-3 * np.sum(logits**2))

    # One value for all first: a start from which no node is lost.
    starts = np.linspace(-3, 6, 19)
    best = starts[np.argmin([loss(np.full(n_nodes, each)) for each in starts])]
    found = optimize.minimize(
        loss, np.full(n_nodes, best), method="L-BFGS-B", bounds=[(-6.0, 7.5)] * n_nodes
    ).x
    return curve(found, at)


def mean_squares(values: np.ndarray, inverse_d2: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the mean of squares at some resolutions, interpolated between shells of equal numbers.

    `values`, `inverse_d2` (N,); `at` (M,): 1/d² where it is asked for.
    """
    order = np.argsort(inverse_d2, kind="stable")
    shells = np.array_split(order, int(np.clip(len(order) // 100, 1, SHELLS)))
    centres = np.array([inverse_d2[shell].mean() for shell in shells])
    means = np.array([np.mean(values[shell] ** 2) for shell in shells])
    return np.exp(np.interp(at, centres, np.log(np.maximum(means, 1e-12 * means.max() + 1e-300))))
