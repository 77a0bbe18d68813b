"""Amplitudes from intensities, negative ones as well, by what is known beforehand of their distribution."""

from __future__ import annotations

import numpy as np
from scipy import special

POINTS = 160
"""Of the quadrature over the amplitude."""
REACH = 6.0
"""Deviations of the intensity to which it reaches."""
PER_SHELL = 200
"""Reflections from which the mean intensity of a shell of resolution is estimated, at least."""


def amplitudes(
    intensities: np.ndarray,
    deviations: np.ndarray,
    inverse_d2: np.ndarray,
    centric: np.ndarray,
    epsilon: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected amplitudes and their standard deviations (French and Wilson, Acta Cryst. 1978, A34, 517-525).

    The measured intensity is normally distributed about the true one, which has Wilson's distribution with the mean intensity
    of its resolution; that is interpolated between shells. Both integrals are computed by quadrature. `intensities`,
    `deviations` (N,): deviations above 0; `inverse_d2` (N,): 1/d² in Å⁻²; `centric` bool (N,); `epsilon` (N,): how many times
    a reflection is stronger by its symmetry. Returns `amplitudes`, `deviations` (N,).
    """
    expected = epsilon * mean_intensity(intensities / epsilon, inverse_d2)
    found = np.empty((2, len(intensities)))
    for first in range(0, len(intensities), 20000):
        part = slice(first, first + 20000)
        found[:, part] = _moments(intensities[part], deviations[part], expected[part], centric[part])
    mean, square = found
    return mean, np.sqrt(np.maximum(square - mean**2, 1e-12 * square))


def mean_intensity(intensities: np.ndarray, inverse_d2: np.ndarray) -> np.ndarray:
    """Return the mean intensity at the resolution of each reflection, interpolated between shells of equal numbers; above 0."""
    order = np.argsort(inverse_d2, kind="stable")
    shells = np.array_split(order, max(min(len(order) // PER_SHELL, 40), 1))
    centres = np.array([inverse_d2[shell].mean() for shell in shells])
    means = np.array([intensities[shell].mean() for shell in shells])
    positive = means[means > 0]
    floor = 1e-3 * positive.min() if len(positive) else 1.0
    return np.exp(np.interp(inverse_d2, centres, np.log(np.maximum(means, floor))))


def _moments(
    intensities: np.ndarray, deviations: np.ndarray, expected: np.ndarray, centric: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior means of F and F²."""
    # With x = F: p(x) ~ x exp(-x²/S) for acentric, exp(-x²/2S) for centric reflections, times that of the measured x².
    shifted = intensities - deviations**2 * np.where(centric, 0.5, 1.0) / expected
    top = np.sqrt(np.maximum(shifted, 0) + REACH * deviations)
    bottom = np.sqrt(np.maximum(np.maximum(shifted, 0) - REACH * deviations, 0))
    nodes, weights = special.roots_legendre(POINTS)
    x = bottom[:, None] + (top - bottom)[:, None] * (nodes + 1) / 2
    log_p = -0.5 * ((x**2 - shifted[:, None]) / deviations[:, None]) ** 2
    log_p += np.where(centric[:, None], 0.0, np.log(np.maximum(x, 1e-300)))
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True)) * weights
    total = p.sum(axis=1)
    return (p * x).sum(axis=1) / total, (p * x**2).sum(axis=1) / total
