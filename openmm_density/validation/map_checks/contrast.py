"""Whether the molecule is positive in the map: where it is not, every force points the wrong way."""

from __future__ import annotations

import numpy as np

from ...base.errors import as_argument
from ...maps.density_map import DensityMap
from .coverage import IN_DENSITY, coverage, sampled
from .findings import Finding, MapChecks
from .subject import Subject

CHECK = "contrast"

# Of a model that lies where the map is lowest.
ANTICORRELATED = -0.2
# Skewness of all voxels: molecules fill the lesser part of a map and reach far above its mean. Right ones have −0.2 or more.
NEGATIVE_SKEWNESS = -0.7


def check_contrast(subject: Subject) -> MapChecks:
    """Return ``skewness``, ``coverage`` by the map and by its negative (``coverage_inverted``); an error where it is inverted."""
    density_map, heavy, cc = subject.density_map, subject.heavy, subject.cc
    skewness = _skewness(density_map)
    figures = {
        "skewness": skewness,
        "coverage": coverage(heavy, density_map),
        "coverage_inverted": coverage(heavy, density_map, sign=-1),
    }
    lies_in_it = cc <= ANTICORRELATED and figures["coverage_inverted"] >= IN_DENSITY > figures["coverage"]
    is_negative = skewness <= NEGATIVE_SKEWNESS and figures["coverage"] < IN_DENSITY and cc < -ANTICORRELATED
    if not (lies_in_it or is_negative):
        return MapChecks({CHECK: figures})
    seen = (
        f"a model that correlates with it by {cc:.3f} and lies where it is lowest"
        if lies_in_it
        else f"voxels that reach farther below their mean than above (skewness {skewness:.1f})"
    )
    inverted = Finding(
        CHECK,
        "the map's contrast is inverted: molecules are negative in it",
        found=seen,
        remedy=f"pass {as_argument('invert', True)}, or leave that out if it was given",
        is_error=True,
    )
    return MapChecks({CHECK: figures}, [inverted])


def _skewness(density_map: DensityMap) -> float:
    off = sampled(density_map).astype(np.float64)
    off -= off.mean()
    deviation = off.std()
    return float((off**3).mean() / deviation**3) if deviation > 0 else 0.0
