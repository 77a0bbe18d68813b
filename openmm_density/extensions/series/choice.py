"""Which of several fits of one volume stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...fitting.improvement import CC_TOLERANCE
from .frame_fit import FrameFit

FAULTS = (
    *("clash_count", "ramachandran_outlier_count", "rotamer_outlier_count", "twisted_count"),
    *("wrong_alpha_count", "wrong_centre_count"),
)
"""What is counted of a geometry."""


def better_fit(fits: Sequence[FrameFit]) -> FrameFit:
    """Return the fit with the highest correlation; among those that hardly differ in it, the one with the best geometry.

    The correlation is the free one where there is one. Where geometries have as many faults, the first stays.
    """
    highest = max(fit.score for fit in fits)
    equal = [fit for fit in fits if fit.score >= highest - CC_TOLERANCE]
    return min(equal, key=lambda fit: faults(fit.summary["geometry_final"]))


def faults(geometry: Mapping[str, Any]) -> int:
    """Return how many clashes, outliers, twisted peptides and wrong centres the geometry of a summary has."""
    return sum(geometry.get(name) or 0 for name in FAULTS)
