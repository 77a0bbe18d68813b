"""Where a map has a point group: by its correlation with copies of itself that the operators move."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from ...base.errors import InputError
from ...maps import DensityMap
from ...maps.moved_maps import MapAgreement, bright_points, density_correlation, map_agreement
from .groups import about, point_group

LEAST_AGREEMENT = 0.5
"""Mean correlation of a map with its moved copies below which it is said not to have a symmetry."""
BLUR = 4.0
"""Å, the width of the Gaussian with which a map is smoothed before axes are looked for from afar."""
# Grid points that are compared from afar, at most.
_COMPARED_FIRST = 2000
# Places from which axes are refined.
_TRIED = 4


def find_in_map(density_map: DensityMap, group: str) -> MapAgreement:
    """Find where a map has a point group: its axes and centre.

    The main axis is tried along z, y and x, through the centre of the box and that of the density, for groups with several axes
    in turns about it; the best is refined by the correlation of the map with its copies.

    Parameters
    ----------
    density_map : DensityMap
    group : str
        As `point_group` takes.

    Raises
    ------
    InputError
        If the map does not agree with its copies anywhere: their mean correlation stays below `LEAST_AGREEMENT`.
    """
    rotations = point_group(group)
    points = bright_points(density_map)
    smooth = density_map.gaussian_filter(BLUR)
    coarse = _Fit(smooth, rotations, bright_points(smooth, _COMPARED_FIRST))
    places = sorted(_places(group, smooth, coarse.points), key=lambda place: -coarse.score(*place))[:_TRIED]
    best = max((coarse.refined(*place, 4.0) for place in places), key=lambda place: coarse.score(*place))
    frame, centre = _Fit(density_map, rotations, points).refined(*best, 1.0)
    found = map_agreement(
        density_map, *about(rotations, np.zeros((len(rotations), 3)), frame, centre), points
    )
    if not found.mean >= LEAST_AGREEMENT:
        raise InputError(
            f"the map does not have the symmetry {group}: with its copies about the best axis it correlates by only "
            f"{found.mean:.2f}, where {LEAST_AGREEMENT:g} are needed",
            remedy="give the symmetry that it has, or leave symmetry out",
        )
    return found


class _Fit:
    """A map's correlation with its copies, by where the axes are."""

    def __init__(self, density_map: DensityMap, rotations: np.ndarray, points: np.ndarray) -> None:
        self.map, self.points = density_map, points
        # So many operators have axes of every kind; more only take time.
        self._rotations = rotations[1:8]
        self._none = np.zeros((len(self._rotations), 3))
        self._own = density_map.value_at(points)

    def score(self, frame: np.ndarray, centre: np.ndarray) -> float:
        """Return the mean correlation; -1 where most copies leave the map."""
        moved, shifts = about(self._rotations, self._none, frame, centre)
        found = [
            density_correlation(self._own, self.map.value_at(self.points @ r.T + t))
            for r, t in zip(moved, shifts)
        ]
        known = [each for each in found if np.isfinite(each)]
        return float(np.mean(known)) if 2 * len(known) >= len(found) else -1.0

    def refined(self, frame: np.ndarray, centre: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a better place near by, at first within so many degrees and Å."""

        def place(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            turn = Rotation.from_rotvec(np.deg2rad(parameters[:3])).as_matrix()
            return turn @ frame, centre + parameters[3:]

        simplex = np.concatenate([np.zeros((1, 6)), step * np.eye(6)])
        best = minimize(
            lambda parameters: -self.score(*place(parameters)), np.zeros(6), method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-6, "maxfev": 400},
        )  # fmt: skip
        return place(best.x)


def _places(group: str, density_map: DensityMap, points: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return orientations and centres to begin with: the main axis along z, y and x, and turns about it where it matters."""
    weights = density_map.value_at(points)
    weights -= weights.min()
    middle = density_map.origin + density_map.matrix @ ((density_map.size - 1) / 2)
    axes = [
        np.eye(3),
        np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
        np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]),
    ]
    turns = (
        [0.0]
        if group[:1].upper() == "C"
        else np.arange(0.0, 180.0, 7.5 if group[:1].upper() == "D" else 45.0)
    )
    about_z = [Rotation.from_euler("z", angle, degrees=True).as_matrix() for angle in turns]
    centres = [middle, weights @ points / weights.sum()]
    return [(axis @ turn, centre) for axis in axes for turn in about_z for centre in centres]
