"""Ideal positions of hydrogens on the atoms that carry them, for all atoms of a model at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_TETRAHEDRAL, _TRIGONAL = np.radians([109.5, 120.0])
_STAGGERED = np.radians([60.0, 180.0, 300.0])
# For carbon and nitrogen: numbers of neighbours that leave hydrogens a single position.
_WEDGED = ((1, 2), (1, 3), (2, 2))


class Site(NamedTuple):
    """An atom that carries hydrogens: its index, the hydrogens', and those of its other neighbours."""

    parent: int
    hydrogens: Sequence[int]
    neighbours: Sequence[int]


class Surroundings(NamedTuple):
    """What is around sites."""

    places: np.ndarray  # (N, 3), Å
    symbols: Sequence[str]  # The element of each atom
    neighbours: Mapping[int, Sequence[int]]  # Neighbours of each atom that have a position
    degrees: np.ndarray  # int (N,), the total number of neighbours of each

    def is_flat(self, site: Site) -> bool:
        """Return whether a site's only neighbour is planar, so that the hydrogens of amides and phenols lie in its plane."""
        return bool(self.degrees[site.neighbours[0]] <= 3)

    def is_held(self, site: Site) -> bool:
        """Return whether a site has one neighbour, beyond which another atom defines its torsion."""
        return len(site.neighbours) == 1 and len(self.neighbours[site.neighbours[0]]) > 1

    def arms(self, sites: Sequence[Site]) -> np.ndarray:
        """Return the unit vectors from sites to their neighbours, all of one number, shape (sites, neighbours, 3)."""
        parents = self.places[[site.parent for site in sites]]
        return units(self.places[[site.neighbours for site in sites]] - parents[:, None])

    def turned(self, sites: Sequence[Site], angle: float, turns: np.ndarray) -> np.ndarray:
        """Return unit vectors at an angle to each site's bond, by torsions about it, shape (sites, turns, 3)."""
        axis = -self.arms(sites)[:, 0]
        ends = np.array(
            [
                (site.neighbours[0], next(a for a in self.neighbours[site.neighbours[0]] if a != site.parent))
                for site in sites
            ]
        )
        return directions_at(axis, self.places[ends[:, 1]] - self.places[ends[:, 0]], angle, turns)


def ideal_directions(sites: Sequence[Site], around: Surroundings) -> Iterator[tuple[list[Site], np.ndarray]]:
    """Yield sites with fixed hydrogens and unit vectors to these (sites, hydrogens, 3), staggered; NaN for coincident atoms."""
    kinds: dict[tuple[int, int, bool], list[Site]] = defaultdict(list)
    for site in sites:
        count, others = len(site.hydrogens), len(site.neighbours)
        if (count, others) in _WEDGED:
            kinds[count, others, False].append(site)
        elif count in (2, 3) and around.symbols[site.parent] in ("C", "N") and around.is_held(site):
            kinds[count, 1, count == 2 and around.is_flat(site)].append(site)
    for (count, others, is_flat), members in kinds.items():
        if is_flat:
            yield members, around.turned(members, _TRIGONAL, np.array([np.pi, 0.0]))
        elif others == 1:
            yield members, around.turned(members, _TETRAHEDRAL, _STAGGERED[:count])
        elif count == 1:
            yield members, units(-around.arms(members).sum(axis=1))[:, None]
        else:
            arms, half = around.arms(members), _TETRAHEDRAL / 2
            middle, across = units(-arms.sum(axis=1)), units(np.cross(arms[:, 0], arms[:, 1]))
            sides = [np.cos(half) * middle + sign * np.sin(half) * across for sign in (1, -1)]
            yield members, np.stack(sides, axis=1)


def directions_at(
    axis: np.ndarray, side: np.ndarray, angle: float | np.ndarray, turns: np.ndarray
) -> np.ndarray:
    """Return unit vectors from atoms at an angle to a bond, by torsions about it, shape (atoms, turns, 3).

    axis: (atoms, 3), unit vectors along the bond to the atom; side: (atoms, 3), from the bond's other end to the atom that tells
    the torsion; turns: (turns,) or (atoms, turns); angle: for all, or (atoms, 1, 1).
    """
    away = units(side - np.einsum("ni,ni->n", side, axis)[:, None] * axis)
    across = np.cross(axis, away)
    around = np.cos(turns)[..., None] * away[:, None] + np.sin(turns)[..., None] * across[:, None]
    return -np.cos(angle) * axis[:, None] + np.sin(angle) * around


def units(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; NaN where there is no direction, as for coincident atoms."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
