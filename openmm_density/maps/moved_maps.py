"""A map beside copies of itself that operators move: how well they agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.units import takes_units
from .density_map import DensityMap

# Grid points that are compared, at most.
_COMPARED = 8000
# Points whose copies must lie in the map, for a correlation to be told.
_FEWEST = 100


@dataclass(frozen=True)
class MapAgreement:
    """How well a map agrees with its copies by n operators, (n, 3, 3) and (n, 3), Å, the identity first.

    `correlations` (n,) with each copy over the points that are compared; NaN where too few of them stay in the map.
    """

    rotations: np.ndarray
    translations: np.ndarray
    correlations: np.ndarray

    @property
    def mean(self) -> float:
        """Over all operators but the identity whose copies lie in the map; NaN where none does."""
        known = self.correlations[1:][np.isfinite(self.correlations[1:])]
        return float(known.mean()) if len(known) else float("nan")


@takes_units("translations", "points")
def map_agreement(
    density_map: DensityMap, rotations: np.ndarray, translations: np.ndarray, points: np.ndarray | None = None
) -> MapAgreement:
    """Compare a map with its copies.

    Parameters
    ----------
    density_map : DensityMap
    rotations, translations : np.ndarray, shapes (n, 3, 3) and (n, 3)
        Operators, Å, the identity first.
    points : np.ndarray, shape (m, 3), optional
        Where it is compared, such as around the atoms of a model; by default where its density is highest.
    """
    points = bright_points(density_map) if points is None else points
    own = density_map.value_at(points)
    found = [
        density_correlation(own, density_map.value_at(points @ r.T + t))
        for r, t in zip(rotations, translations)
    ]
    return MapAgreement(rotations, translations, np.array(found))


def bright_points(density_map: DensityMap, most: int = _COMPARED) -> np.ndarray:
    """Return grid points with density well above the mean, evenly picked, shape (m, 3), Å."""
    data = density_map.data
    above = np.flatnonzero(data.ravel() > data.mean() + data.std())
    above = above[:: max(len(above) // most, 1)]
    index = np.array(np.unravel_index(above, data.shape))[::-1].T
    return density_map.origin + index @ density_map.matrix.T


def density_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation about the mean of two densities at the same points; NaN where too few are known."""
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < max(_FEWEST, 0.2 * len(known)):
        return float("nan")
    a, b = first[known] - first[known].mean(), second[known] - second[known].mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else 0.0
