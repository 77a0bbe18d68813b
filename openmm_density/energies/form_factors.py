"""How an atom's density is made of Gaussians.

Two descriptions, both giving amplitudes A_c in density per Å³ and exponents α_c in Å⁻² for ρ = Σ A_c exp(−α_c r²):

- one Gaussian whose width is the map's resolution, with any weight;
- the electron (c4322) or X-ray (IT92) form factors of gemmi's tables, widened by the B factor and by the resolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import gemmi
import numpy as np
import torch
from torch import Tensor

SIGMA_PER_RESOLUTION = 0.225


def blurring_b_factor(resolution: float) -> float:
    """Return the B factor B_d = 8π²(0.225 d)² in Å² that widens a point to the Gaussian of a map at resolution d in Å."""
    return 8 * math.pi**2 * (SIGMA_PER_RESOLUTION * resolution) ** 2


def resolution_gaussians(weights: Tensor, resolution: float) -> tuple[Tensor, Tensor]:
    """Return amplitudes and exponents (N, 1) of a Gaussian an atom: integral `weights` (N,), σ = 0.225 · resolution (Å)."""
    sigma = SIGMA_PER_RESOLUTION * resolution
    amplitudes = weights[:, None] / (2 * math.pi * sigma**2) ** 1.5
    return amplitudes, torch.full_like(amplitudes, 0.5 / sigma**2)


def form_factor_gaussians(
    elements: Sequence[str],
    table: str,
    b_factors: Tensor,
    occupancies: Tensor,
    resolution: float,
) -> tuple[Tensor, Tensor]:
    """Describe each atom by its form factor, blurred by its B factor and by the resolution.

    With f(s) = Σ a exp(−b s²/4) of the table and B_d of `blurring_b_factor`: α = 4π²/(b + B + B_d) and A = occupancy · a
    (4π/(b + B + B_d))^(3/2). Differentiable with respect to B factors and occupancies. `b_factors`, `occupancies` (N,): B in
    Å²; `resolution` in Å. Returns `amplitudes`, `exponents` (N, 5).
    """
    a, b = (
        torch.as_tensor(values, dtype=b_factors.dtype)
        for values in _coefficients([gemmi.Element(symbol) for symbol in elements], table)
    )
    width = b + b_factors[:, None] + blurring_b_factor(resolution)
    amplitudes = occupancies[:, None] * a * (4 * math.pi / width) ** 1.5
    return amplitudes, 4 * math.pi**2 / width


def _coefficients(elements: list[gemmi.Element], table: str) -> tuple[np.ndarray, np.ndarray]:
    if table == "electron":
        rows = [element.c4322.get_coefs() for element in elements]
        return np.array([row[:5] for row in rows]), np.array([row[5:] for row in rows])
    # The table's constant is a fifth Gaussian of no width of its own.
    rows = [element.it92.get_coefs() for element in elements]
    return np.array([[*row[:4], row[8]] for row in rows]), np.array([[*row[4:8], 0.0] for row in rows])
