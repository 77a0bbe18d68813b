"""The helix among the chains of a model: where, its rise and twist, and how far the copies are from it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from ...base.errors import InputError
from ...models.model import Model
from ...models.superposition import superposition
from .chains import FARTHEST, FoundSymmetry, copies_of, nearest, paired
from .groups import about, helix
from .helices import HelixPlace, helix_of_motion

# Å along the axis below which copies are about one point of it: of a ring, not of a helix.
_LEAST_RISE = 0.2

_Pair = tuple[np.ndarray, np.ndarray]


def find_helix_in_chains(model: Model) -> tuple[FoundSymmetry, HelixPlace]:
    """Find the helix of a model that holds several of its copies.

    The motion from the first copy to each other one is tried as the helix' step; that by whose powers all are reached, with the
    least deviation after least squares of axis, rise and twist, is taken.

    Parameters
    ----------
    model : Model

    Returns
    -------
    FoundSymmetry
        Its group is ``helical``; its operators carry the first copy onto each.
    HelixPlace

    Raises
    ------
    InputError
        If there is one copy only, or the copies are on no helix.
    """
    kinds = copies_of(model.topology)
    listed = "; ".join(" ".join(chain.id for chain in kind) for kind in kinds)
    if not kinds or {len(kind) for kind in kinds} in ({1}, set()) or len({len(kind) for kind in kinds}) > 1:
        raise InputError(
            "has no copies of one unit, among which a helix could be found",
            source=model.path,
            found=listed or None,
            remedy="give rise and twist, such as helical:1.41,22.03",
        )
    kind, positions = kinds[0], model.positions
    pairs = [paired(kind[0], chain) for chain in kind]
    best = None
    for own, others in pairs[1:]:
        place = helix_of_motion(*superposition(positions[own], positions[others]))
        found = _refined(place, pairs, positions)
        if found is not None and (best is None or _order(found) < _order(best)):
            best = found
    if best is None or best[2] > FARTHEST:
        off = "" if best is None else f" (the nearest is off by {best[2]:.1f} Å)"
        raise InputError(
            f"has {len(kind)} copies that are on no helix{off}",
            source=model.path,
            found=listed,
            remedy="give a model of one unit, and give the symmetry",
        )
    place, steps, rmsd = best
    operators = [place.operators(k, k) for k in steps]
    rotations = np.array([turned[-1] for turned, _ in operators])
    translations = np.array([shifts[-1] for _, shifts in operators])
    units = tuple(
        tuple(nearest(each, each[0], positions, r, t).id for each in kinds)
        for r, t in zip(rotations, translations)
    )
    return FoundSymmetry("helical", rotations, translations, units, rmsd), place


def _order(found: tuple[HelixPlace, list[int], float]) -> tuple[float, int]:
    """Return what is compared: deviations that differ by less than 0.1 Å are one, of which the fewest steps win."""
    return round(found[2], 1), max(found[1]) - min(found[1])


def _refined(
    place: HelixPlace, pairs: list[_Pair], positions: np.ndarray
) -> tuple[HelixPlace, list[int], float] | None:
    """Return the best helix near another, the number of each copy in it and the deviation in Å; None where they are on none."""
    axis = place.frame[:, 2]
    if abs(place.rise) < _LEAST_RISE:
        return None
    heights = [
        float(axis @ (positions[others].mean(axis=0) - positions[own].mean(axis=0))) for own, others in pairs
    ]
    steps = [round(height / place.rise) for height in heights]
    if len(set(steps)) < len(steps):
        return None

    def moved(p: np.ndarray) -> HelixPlace:
        tilt = Rotation.from_rotvec([p[0], p[1], 0.0]).as_matrix()
        centre = place.centre + place.frame @ np.array([p[2], p[3], 0.0])
        return HelixPlace(place.rise + p[4], place.twist + np.rad2deg(p[5]), place.frame @ tilt, centre)

    def off(p: np.ndarray) -> np.ndarray:
        each = moved(p)
        found = []
        for k, (own, others) in zip(steps[1:], pairs[1:]):
            turned, shifts = about(*helix(each.rise, each.twist, k, k), each.frame, each.centre)
            found.append((positions[own] @ turned[-1].T + shifts[-1] - positions[others]).ravel())
        return np.concatenate(found)

    best = least_squares(off, np.zeros(6)).x
    n_compared = sum(len(own) for own, _ in pairs[1:])
    return moved(best), steps, float(np.sqrt((off(best) ** 2).sum() / n_compared))
