"""Similarity measures as the kernels know them, and their formulas in plain PyTorch: the oracle of both kernels.

============================== =====================================================================
measure                        similarity S of a density ρ and a target t
============================== =====================================================================
CROSS_CORRELATION              Σρt / √(Σρ² Σt²)
CROSS_CORRELATION_ABOUT_MEAN   the same of ρ and t less their means (Pearson)
INNER_PRODUCT                  Σ (ρ/W) (t / sd t)
RELATIVE_ENTROPY               −Σ t̂ ln(t̂ / (ρ/W + ε)) over t > 0, t̂ = t/Σt, ε = ENTROPY_FLOOR of the mean t̂
LEAST_SQUARES                  1 − min over a ≥ 0, b of Σ(t − aρ − b)² / Σ(t − mean t)²
============================== =====================================================================

W is the total weight of the atoms. The least squares have a closed form: S is the square of the Pearson correlation, and 0 where
that is negative. A model without density, a target without contrast and one without any t > 0 for the entropy have S = 0 and no
gradient; only the entropy of no density is its constant with ρ = 0.

``measures.h`` (CPU) and ``gpu_measures.py`` (GPU) hold the same formulas with their derivatives, and the same names; a test
compares every constant and slot. A new measure is a constant and a formula here and in those two files.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "CROSS_CORRELATION",
    "CROSS_CORRELATION_ABOUT_MEAN",
    "ENTROPY_FLOOR",
    "INNER_PRODUCT",
    "LEAST_SQUARES",
    "RELATIVE_ENTROPY",
    "target_moments",
]

CROSS_CORRELATION = 0
CROSS_CORRELATION_ABOUT_MEAN = 1
INNER_PRODUCT = 2
RELATIVE_ENTROPY = 3
LEAST_SQUARES = 4

NUMBERS = (CROSS_CORRELATION, CROSS_CORRELATION_ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES)
"""All measures, in the order of their numbers."""

DIVIDED_BY_WEIGHT = (INNER_PRODUCT, RELATIVE_ENTROPY)
"""Those that are defined for a positive W alone."""

ENTROPY_FLOOR = 1e-3
"""ε of the relative entropy as a part of the mean t̂. Without it S would jump where a voxel leaves the last cut-off."""

UNIFORM_VARIANCE = 1e-5
"""A density whose variance is below this part of Σρ² is uniform: it has no correlation. float32 sums over rows of 400 voxels are
out by up to 3e-6 of it, from which there would be forces."""

UNIFORM_TARGET = 1e-13
"""A target whose variance is below this part of its mean square has no contrast: its float32 numbers differ by rounding alone."""

SMALLEST_SHIFTED = 1e-6
"""Least ρ/(Wε) + 1 whose logarithm the kernels take: below it, where a density is negative, S is constant."""


class Moment(IntEnum):
    """Slots of `target_moments`: sums over the voxels of a target t that count, the last three over t > 0."""

    COUNT = 0
    SUM = 1
    SUM_OF_SQUARES = 2
    POSITIVE_COUNT = 3
    POSITIVE_SUM = 4
    POSITIVE_LOG = 5


class Sum(IntEnum):
    """Slots of the kernels' sums over the voxels that count; the relative entropy has only one."""

    DENSITY = 0
    DENSITY_SQUARED = 1
    DENSITY_TARGET = 2
    ENTROPY = 0


class Coefficient(IntEnum):
    """Slots of c in ∂S/∂ρ = c_density ρ + c_target t + c_constant; of the entropy c_target t / (ρ + c_constant), over t > 0."""

    DENSITY = 0
    TARGET = 1
    CONSTANT = 2


def target_moments(target: Tensor) -> Tensor:
    """Sum what the kernels need of a target, once for all evaluations."""
    # By NumPy, whose sums do not depend on the number of threads as torch's do.
    values = target.detach().cpu().numpy()
    t = values[np.isfinite(values)].astype(np.float64)
    positive = t[t > 0]
    sums = {
        Moment.COUNT: t.size,
        Moment.SUM: t.sum(),
        Moment.SUM_OF_SQUARES: (t * t).sum(),
        Moment.POSITIVE_COUNT: positive.size,
        Moment.POSITIVE_SUM: positive.sum(),
        Moment.POSITIVE_LOG: (positive * np.log(positive)).sum(),
    }
    return torch.tensor([sums[slot] for slot in Moment], dtype=torch.float64, device=target.device)


def similarity(density: Tensor, target: Tensor, measure: int, total_weight: float) -> Tensor:
    """Return the similarity S of two densities over the same voxels."""
    nothing = torch.zeros((), dtype=torch.float64)
    if measure == RELATIVE_ENTROPY:
        positive = target > 0
        if not positive.any():
            return nothing
        share = target[positive] / target[positive].sum()
        floor = ENTROPY_FLOOR * share.mean()
        return -(share * torch.log(share / (density[positive] / total_weight + floor))).sum()
    centred = target if measure == CROSS_CORRELATION else target - target.mean()
    if not float((centred**2).sum()) > UNIFORM_TARGET * float((target**2).sum()):
        return nothing
    if measure == INNER_PRODUCT:
        return (density / total_weight * target / target.std(correction=0)).sum()
    if measure != CROSS_CORRELATION:
        density = density - density.mean()
    square = (density**2).sum()
    if float(square.detach()) <= 0.0:
        return nothing
    r = (density * centred).sum() / torch.sqrt(square * (centred**2).sum())
    return r.clamp(min=0.0) ** 2 if measure == LEAST_SQUARES else r
