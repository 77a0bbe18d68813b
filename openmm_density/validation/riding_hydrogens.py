"""Hydrogens where ideal bonds and angles put them: those of a force field, or of a file, evade what is near."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations

import numpy as np
from openmm import app

from ..chemistry.elements import is_hydrogen
from ..maps.grids import checked_positions

_TETRAHEDRAL, _TRIGONAL = np.radians(109.5), np.radians(120.0)


def riding_hydrogens(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return the positions with each hydrogen that cannot turn on its parent at its ideal place, methyl groups staggered.

    Those of OH, SH, NH₃ and waters, which turn to what is around them, stay, as do those of parents without another
    neighbour; lengths of bonds stay too.

    Parameters
    ----------
    positions : Quantity or array_like, shape (N, 3)
        Å.
    """
    atoms = list(topology.atoms())
    places = checked_positions(positions, len(atoms)).copy()
    heavy: dict[int, list[int]] = defaultdict(list)
    hydrogens: dict[int, list[int]] = defaultdict(list)
    for first, second in topology.bonds():
        for own, other in ((first, second), (second, first)):
            (hydrogens if is_hydrogen(other) else heavy)[own.index].append(other.index)
    for parent, children in hydrogens.items():
        if is_hydrogen(atoms[parent]) or atoms[parent].element is None:
            continue
        directions = _directions(atoms[parent].element.symbol, parent, len(children), heavy, places)
        if directions is None or not np.isfinite(directions).all():
            continue
        bonds = places[children] - places[parent]
        lengths = np.linalg.norm(bonds, axis=1)
        # Which is which their places say.
        order = max(permutations(range(len(children))), key=lambda way: (directions[list(way)] * bonds).sum())
        places[children] = places[parent] + directions[list(order)] * lengths[:, None]
    return places


def _directions(
    symbol: str, parent: int, count: int, heavy: dict[int, list[int]], places: np.ndarray
) -> np.ndarray | None:
    """Return where the hydrogens of an atom lie, as unit vectors of shape (count, 3); None of those that stay."""
    neighbours = heavy[parent]
    to_others = [_unit(places[other] - places[parent]) for other in neighbours]
    if count == 1 and len(neighbours) in (2, 3):
        return _unit(-np.sum(to_others, axis=0))[None]
    if count == 2 and len(neighbours) == 2:
        middle, across = _unit(-np.sum(to_others, axis=0)), _unit(np.cross(*to_others))
        half = _TETRAHEDRAL / 2
        return np.array([np.cos(half) * middle + sign * np.sin(half) * across for sign in (1, -1)])
    if len(neighbours) != 1:
        return None
    beyond = [other for other in heavy[neighbours[0]] if other != parent]
    if not beyond:
        return None
    axis = -to_others[0]
    side = places[beyond[0]] - places[neighbours[0]]
    away = _unit(side - (side @ axis) * axis)
    if count == 2 and symbol == "N":
        return np.array([-np.cos(_TRIGONAL) * axis + sign * np.sin(_TRIGONAL) * away for sign in (1, -1)])
    if count == 3 and symbol == "C":
        turned = np.cross(axis, away)
        return np.array(
            [
                -np.cos(_TETRAHEDRAL) * axis
                + np.sin(_TETRAHEDRAL) * (np.cos(angle) * away + np.sin(angle) * turned)
                for angle in np.radians([60.0, 180.0, 300.0])
            ]
        )
    return None


def _unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of length 1; NaN where there is no direction, as of atoms in one place."""
    with np.errstate(invalid="ignore"):
        return vector / np.linalg.norm(vector)
