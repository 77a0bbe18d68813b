"""Hydrogens that turn to what is around them: those of hydroxyls, thiols and waters, and in crowded places all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ..chemistry.hydrogen_places import Site, Surroundings, units

_ANGLES = {"O": np.radians(108.5), "S": np.radians(96.0)}
_TETRAHEDRAL, _OF_WATER = np.radians([109.5, 104.5])
# Torsions that are tried about a bond, orientations where no bond tells any, and how often half of the sites choose anew, as what
# they turn to may turn too.
_TURNS, _ORIENTATIONS, _SWEEPS = 24, 120, 4
# Å up to which an atom counts; kcal/mol Å² with which an acceptor attracts, of both charges and a dielectric of four times the
# distance; and kcal/mol with which all repel at the distance of a contact (Å).
_REACH, _ATTRACTION, _REPULSION = 5.0, 16.6, 0.3
_TO_ACCEPTOR, _TO_HYDROGEN, _TO_OTHERS = 1.8, 2.0, 2.6
# Sites that choose at once, which bounds the memory.
_AT_ONCE = 500
# Å below which atoms push a hydrogen about its parent, up to which they may come to do so, and how often they push.
_CROWDED, _NEAR, _PUSHES = 1.6, 3.0, 30


def turn(sites: Sequence[Site], lengths: np.ndarray, around: Surroundings) -> None:
    """Place the hydrogens of sites that can turn in ``around.places``, NaN before; `lengths` (N,) in Å of each atom's bonds to
    them.
    """
    kinds: dict[tuple[int, str, bool], list[Site]] = defaultdict(list)
    for site in sites:
        held = len(site.hydrogens) == 1 and around.is_held(site)
        symbol = around.symbols[site.parent] if held else ""
        kinds[len(site.hydrogens), symbol, held and around.is_flat(site)].append(site)
    parts = [
        (members[k : k + _AT_ONCE], symbol, is_flat)
        for (_, symbol, is_flat), members in kinds.items()
        for k in range(0, len(members), _AT_ONCE)
    ]
    symbols = np.array(around.symbols)
    accepts = (symbols == "O") | ((symbols == "N") & (around.degrees <= 2))
    contacts = np.where(accepts, _TO_ACCEPTOR, np.where(symbols == "H", _TO_HYDROGEN, _TO_OTHERS))
    attraction = np.where(accepts, _ATTRACTION, 0.0)
    for sweep in range(_SWEEPS):
        for members, symbol, is_flat in parts:
            # All at first, then each half in turn.
            some = members[sweep % 2 :: 2] if sweep else members
            if some:
                bonds = lengths[[site.parent for site in some]][:, None, None, None]
                ways = bonds * _directions(some, symbol, is_flat, around)
                _choose(some, ways, around.places, contacts, attraction)


def _directions(sites: Sequence[Site], symbol: str, is_flat: bool, around: Surroundings) -> np.ndarray:
    """Return the ways in which hydrogens may lie, as unit vectors of shape (sites, ways, hydrogens, 3)."""
    if symbol:
        turns = np.array([0.0, np.pi]) if is_flat else np.linspace(0.0, 2 * np.pi, _TURNS, endpoint=False)
        return around.turned(sites, _ANGLES.get(symbol, _TETRAHEDRAL), turns)[:, :, None]
    count = len(sites[0].hydrogens)
    angle = _OF_WATER if count == 2 else _TETRAHEDRAL
    turns = 2 * np.pi * np.arange(count - 1) / max(count - 1, 1)
    ring = np.stack([np.cos(turns), np.sin(turns), np.full(count - 1, 1 / np.tan(angle))], axis=1)
    own = np.concatenate([[[0.0, 0.0, 1.0]], np.sin(angle) * ring])
    # Normal quaternions are rotations of one density; the generator of SciPy has other arguments in each version.
    orientations = Rotation.from_quat(np.random.default_rng(0).normal(size=(_ORIENTATIONS, 4)))
    ways = (orientations.as_matrix() @ own.T).transpose(0, 2, 1)
    return np.broadcast_to(ways, (len(sites), *ways.shape))


def _choose(
    sites: Sequence[Site], ways: np.ndarray, places: np.ndarray, contacts: np.ndarray, attraction: np.ndarray
) -> None:
    """Place the hydrogens of sites, none of which sees another's, in the best of the ways from their parents."""
    parents = np.array([site.parent for site in sites])
    own = np.array([site.hydrogens for site in sites])
    there = np.flatnonzero(np.isfinite(places).all(axis=1))
    near = cKDTree(places[there]).query_ball_point(np.nan_to_num(places[parents]), _REACH)
    counts = np.array([len(each) for each in near])
    of, others = np.repeat(np.arange(len(sites)), counts), there[np.concatenate(near).astype(int)]
    counted = (others != parents[of]) & (others[:, None] != own[of]).all(axis=1)
    of, others = of[counted], others[counted]
    tried = places[parents][:, None, None] + ways
    apart = tried[of] - places[others][:, None, None]
    squared = np.maximum(np.einsum("pwhi,pwhi->pwh", apart, apart), 0.25)
    energy = _REPULSION * (contacts[others][:, None, None] ** 2 / squared) ** 6
    energy -= attraction[others][:, None, None] / squared
    totals = np.zeros(ways.shape[:2])
    np.add.at(totals, of, energy.sum(axis=2))
    places[own] = np.take_along_axis(tried, totals.argmin(axis=1)[:, None, None, None], axis=1)[:, 0]


def part_crowded(sites: Sequence[Site], places: np.ndarray) -> None:
    """Move hydrogens that have something within `_CROWDED` away from it, as far as their bonds let them."""
    hydrogens = np.array([k for site in sites for k in site.hydrogens], dtype=np.int64)
    parents = np.repeat([site.parent for site in sites], [len(site.hydrogens) for site in sites]).astype(int)
    if not len(hydrogens) or not np.isfinite(places).all():
        return
    owner = np.arange(len(places))
    owner[hydrogens] = parents
    tree = cKDTree(places)
    near = tree.query_ball_point(places[hydrogens], _CROWDED)
    counts = np.array([len(each) for each in near])
    of, others = np.repeat(np.arange(len(near)), counts), np.concatenate(near).astype(int)
    crowded = np.unique(of[owner[others] != parents[of]])
    if not len(crowded):
        return
    hydrogens, parents = hydrogens[crowded], parents[crowded]
    near = tree.query_ball_point(places[hydrogens], _NEAR)
    of, others = (
        np.repeat(np.arange(len(near)), [len(each) for each in near]),
        np.concatenate(near).astype(int),
    )
    kept = owner[others] != parents[of]
    of, others = of[kept], others[kept]
    lengths = np.linalg.norm(places[hydrogens] - places[parents], axis=1)[:, None]
    for _ in range(_PUSHES):
        apart = places[hydrogens][of] - places[others]
        distances = np.linalg.norm(apart, axis=1)
        pushes = np.zeros((len(hydrogens), 3))
        depth = np.maximum(_CROWDED - distances, 0.0) / np.maximum(distances, _CROWDED / 10)
        np.add.at(pushes, of, 0.5 * depth[:, None] * apart)
        if not pushes.any():
            break
        places[hydrogens] = places[parents] + lengths * units(places[hydrogens] + pushes - places[parents])
