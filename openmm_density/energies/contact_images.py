"""The images of a unit that are in reach of it: copies by operators, in all cells of a crystal."""

from __future__ import annotations

import itertools

import gemmi
import numpy as np
from scipy.spatial import cKDTree

from ..models.symmetry_operators import SymmetryOperators

TRAVEL = 20.0
"""Å by which images may come nearer than at the start before some are in reach that were left out."""


def contact_images(
    operators: SymmetryOperators, positions: np.ndarray, cutoff: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a unit: of an assembly all, of a crystal those that are in reach or may be when it has moved.

    Those of a crystal are all that matter until atoms have left the sphere around the start by half of `TRAVEL`. `positions`
    (N, 3) in Å; `cutoff` in Å. Returns `images` (G, 3, 4): R and t (Å); with each its inverse, without the identity. `numbers`
    int (G,) of the operator behind each.
    """
    centre = (positions.min(axis=0) + positions.max(axis=0)) / 2
    reach = 2 * float(np.linalg.norm(positions - centre, axis=1).max()) + cutoff + TRAVEL
    rotations, translations = operators.rotations, operators.translations
    numbers = np.arange(len(rotations))
    steps = np.zeros((1, 3))
    if operators.cell is not None:
        # From the copy that is nearest, as many cells as are in reach along each axis.
        lattice = np.array(gemmi.UnitCell(*operators.cell).orth.mat.tolist())
        to_fractions = np.linalg.inv(lattice)
        away = rotations @ centre + translations - centre
        translations = translations - np.round(away @ to_fractions.T) @ lattice.T
        most = np.ceil(reach * np.linalg.norm(to_fractions, axis=1)).astype(int) + 1
        steps = np.array(list(itertools.product(*(range(-n, n + 1) for n in most))), dtype=float) @ lattice.T
    translations = (translations[:, None] + steps).reshape(-1, 3)
    rotations, numbers = np.repeat(rotations, len(steps), axis=0), np.repeat(numbers, len(steps))
    near = np.linalg.norm(rotations @ centre + translations - centre, axis=1) <= reach
    near |= operators.cell is None
    near &= (numbers > 0) | (np.linalg.norm(translations, axis=1) > 1e-3)
    return np.concatenate([rotations[near], translations[near, :, None]], axis=2), numbers[near]


def mates_near(
    operators: SymmetryOperators, positions: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms of a unit's mates that are near any of its own.

    `positions` (N, 3) of the unit, Å; `reach` in Å. Returns `places` (K, 3) in Å; `sources` int (K,): the atom of the
    unit that each is an image of.
    """
    images, _ = contact_images(operators, positions, reach)
    tree = cKDTree(positions)
    places, sources = [np.empty((0, 3))], [np.empty(0, dtype=np.int64)]
    for image in images:
        moved = positions @ image[:, :3].T + image[:, 3]
        distances, _ = tree.query(moved, distance_upper_bound=reach)
        near = np.flatnonzero(np.isfinite(distances))
        places.append(moved[near])
        sources.append(near)
    return np.concatenate(places), np.concatenate(sources)
