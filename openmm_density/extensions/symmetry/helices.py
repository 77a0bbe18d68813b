"""The helix of a map or of a model's chains: where its axis is, its rise and twist, and which copies there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from ...base.errors import InputError
from ...base.units import takes_units
from ...maps import DensityMap
from ...maps.moved_maps import MapAgreement, bright_points, density_correlation, map_agreement
from .axes_in_map import BLUR, LEAST_AGREEMENT
from .groups import about, helix

LEAST_INSIDE = 0.1
"""Part of a copy's atoms that must lie in the map for it to be counted among the copies."""
LEAST_DENSITY = 0.3
"""Part of the unit's mean density that a copy must have to be counted: there is none beyond the ends of a short helix."""
_MOST = 400
# Å by which copies of places that are tried differ, and part of the map's extent by which a copy may be moved across.
_SPACING, _FARTHEST = 4.0, 0.6
# Degrees and Å of the first refinement and of the second.
_STEPS = (4.0, 1.0, 0.3)
# % by which rise and twist may be refined: without a limit both go to 0, where every map agrees with itself.
_MOST_CHANGE = 8.0
_COMPARED_FIRST, _COMPARED = 600, 6000
_TRIED = 5
# Copies with which the map is compared: up to so many steps along the helix, which tell rise and twist from the axis' place.
_COMPARED_COPIES = 3


@dataclass(frozen=True)
class HelixPlace:
    """A helix, where it is: `rise` (Å) and `twist` (degrees) to the next copy, a rotation `frame` (3, 3) of z onto the axis,
    and a point `centre` (3,) of the axis in Å.
    """

    rise: float
    twist: float
    frame: np.ndarray
    centre: np.ndarray

    def operators(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the operators of copies `first` to `last`, the unit (copy 0) first, shapes (n, 3, 3) and (n, 3), Å."""
        return about(*helix(self.rise, self.twist, first, last), self.frame, self.centre)

    @takes_units("positions")
    def copies_inside(self, density_map: DensityMap, positions: np.ndarray) -> tuple[int, int]:
        """Return the first and the last copy of a unit at `positions` (N, 3), Å, with a tenth of its atoms at least in a map's
        density.

        Raises InputError if no copy but the unit itself lies in the map.
        """
        own = self._level(density_map, positions, 0)
        ends = []
        for sign in (-1, 1):
            k = 0
            while abs(k) < _MOST:
                level = self._level(density_map, positions, k + sign)
                # The box of a map has room beyond the ends of what it shows.
                if np.isnan(level) or level < LEAST_DENSITY * own:
                    break
                k += sign
            ends.append(k)
        if ends == [0, 0]:
            raise InputError(
                "the map holds one copy of the helix only",
                remedy="give a map with the unit's neighbours, or leave symmetry out",
            )
        return ends[0], ends[1]

    def _level(self, density_map: DensityMap, positions: np.ndarray, k: int) -> float:
        """Return the mean density at the atoms of a copy, above that of the map; NaN where too few of them lie in it."""
        turned, shifts = self.operators(k, k)
        values = density_map.value_at(positions @ turned[-1].T + shifts[-1])
        inside = np.isfinite(values)
        if inside.mean() < LEAST_INSIDE:
            return float("nan")
        return float(values[inside].mean() - density_map.data.mean())


@takes_units("rise", twist="°")
def find_helix_in_map(density_map: DensityMap, rise: float, twist: float) -> tuple[HelixPlace, MapAgreement]:
    """Find where a map has a helix: its axis, with rise and twist refined.

    The axis is tried along z, y and x wherever copies stay in the map, also outside of it, as a box that is cut out of a tube
    need not contain it; the best are refined by the correlation of the map with its copies up to three steps away.

    Parameters
    ----------
    density_map : DensityMap
    rise, twist : float
        Å and degrees from one copy to the next, nearly.

    Returns
    -------
    HelixPlace
    MapAgreement
        With the copies by which it was found.

    Raises
    ------
    InputError
        If the map does not agree with its copies about any axis: the mean correlation stays below `LEAST_AGREEMENT`.
    """
    smooth = density_map.gaussian_filter(BLUR)
    coarse = _Fit(smooth, rise, twist, bright_points(smooth, _COMPARED_FIRST))
    tried = _places(density_map, twist)
    scores = np.array([coarse.score(HelixPlace(rise, twist, *each), 1) for each in tried])
    starts = [tried[i] for i in np.argsort(-scores)[:_TRIED]]
    places = [coarse.refined(HelixPlace(rise, twist, *start), _STEPS[0]) for start in starts]
    best = max(places, key=coarse.score)
    fine = _Fit(density_map, rise, twist, bright_points(density_map, _COMPARED))
    # A simplex that has shrunk too early begins once more.
    place = fine.refined(fine.refined(best, _STEPS[1]), _STEPS[2])
    found = map_agreement(density_map, *place.operators(-_COMPARED_COPIES, _COMPARED_COPIES), fine.points)
    if not found.mean >= LEAST_AGREEMENT:
        raise InputError(
            f"the map does not have the symmetry helical:{rise:g},{twist:g}: with its copies about the best axis it correlates "
            f"by only {found.mean:.2f}, where {LEAST_AGREEMENT:g} are needed",
            remedy="give the symmetry that it has, or leave symmetry out",
        )
    return place, found


def helix_of_motion(rotation: np.ndarray, translation: np.ndarray) -> HelixPlace:
    """Return the helix of which one step is x′ = R x + t (Chasles), Å: its axis, rise and twist, from 0 to 180."""
    vector = Rotation.from_matrix(rotation).as_rotvec()
    angle = float(np.linalg.norm(vector))
    axis = vector / angle if angle > 1e-6 else np.asarray(translation) / np.linalg.norm(translation)
    rise = float(axis @ translation)
    # A point of the axis is only moved along it; of those the one nearest to the origin is taken.
    centre = np.linalg.lstsq(np.eye(3) - rotation, translation - rise * axis, rcond=None)[0]
    frame = Rotation.align_vectors(axis[None], np.array([[0.0, 0.0, 1.0]]))[0].as_matrix()
    return HelixPlace(rise, np.rad2deg(angle), frame, centre)


class _Fit:
    """A map's correlation with its copies along a helix, by where the axis is, rise and twist."""

    def __init__(self, density_map: DensityMap, rise: float, twist: float, points: np.ndarray) -> None:
        self.map, self.points = density_map, points
        self._rise, self._twist = rise, twist
        self._own = density_map.value_at(points)

    def place(self, parameters: np.ndarray, near: HelixPlace) -> HelixPlace:
        """Return a helix near another: degrees of the axis' tilt, Å of its shift across, changes of rise and twist in %."""
        tilt = Rotation.from_rotvec(np.deg2rad([*parameters[:2], 0.0])).as_matrix()
        shift = near.frame @ np.array([*parameters[2:4], 0.0])
        rise, twist = near.rise * (1 + parameters[4] / 100), near.twist * (1 + parameters[5] / 100)
        return HelixPlace(float(rise), float(twist), near.frame @ tilt, near.centre + shift)

    def score(self, place: HelixPlace, n_copies: int = _COMPARED_COPIES) -> float:
        """Return the mean correlation with so many neighbours; -1 where they leave the map.

        It is -1, too, for a rise or twist far from what was asked for. A copy and its inverse compare the same pairs of
        points, so one side of the helix is enough.
        """
        change = max(
            abs(place.rise / self._rise - 1), abs(place.twist / self._twist - 1) if self._twist else 0.0
        )
        if change > _MOST_CHANGE / 100:
            return -1.0
        found = [
            density_correlation(self._own, self.map.value_at(self.points @ r.T + t))
            for r, t in list(zip(*place.operators(0, n_copies)))[1:]
        ]
        known = [each for each in found if np.isfinite(each)]
        return float(np.mean(known)) if known else -1.0

    def refined(self, near: HelixPlace, step: float) -> HelixPlace:
        """Return a better helix near another, at first within so many degrees, Å and %."""
        simplex = np.concatenate([np.zeros((1, 6)), step * np.eye(6)])
        best = minimize(
            lambda parameters: -self.score(self.place(parameters, near)), np.zeros(6), method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-6, "maxfev": 300},
        )  # fmt: skip
        return self.place(best.x, near)


def _places(density_map: DensityMap, twist: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return axes to begin with: along z, y and x, at points of a square grid across.

    A point at a distance of r from the axis is moved by 2 r sin(twist/2) across: the grid is as fine as tells copies apart, and
    ends where they leave the map.
    """
    middle = density_map.origin + density_map.matrix @ ((density_map.size - 1) / 2)
    extent = float(np.linalg.norm(density_map.matrix, axis=0) @ density_map.size) / 3
    moved = max(abs(2 * np.sin(np.deg2rad(twist) / 2)), 0.05)
    reach, spacing = _FARTHEST * extent / moved, _SPACING / moved
    across = np.arange(-np.ceil(reach / spacing), np.ceil(reach / spacing) + 1) * spacing
    frames = [
        np.eye(3),
        np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
        np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]),
    ]
    shifts = np.array([[x, y, 0.0] for x in across for y in across if np.hypot(x, y) <= reach])
    return [(frame, middle + frame @ shift) for frame in frames for shift in shifts]
