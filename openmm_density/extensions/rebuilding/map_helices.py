"""The α-helices that a map shows along a chain, residue by residue, whatever became of them in the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from ...maps.density_map import DensityMap
from ...validation.stretches import runs_of
from .helix_fragments import LENGTH, HelixFragments, Poses, ideal_helix, pose_of

LEAST_SCORE = 0.6
"""Of a fragment in a helix, see `HelixFragments.score`. In helices, at 3.6 Å, they have 0.63 to 0.87, elsewhere 0.6 at most."""
SHORTEST = 5
"""Residues of a helix."""

# By how much a fragment may fit better once more moves were tried.
_ROUGH = 0.05
# Å between axes: nearer ones are one helix.
_ONE_HELIX = 4.0
# Residues by which a helix is grown at most, at either end.
_LONGEST = 60
# Rounds of random moves of a fragment that was moved on by one residue, in degrees and Å.
_ROUNDS, _DEGREES, _ANGSTROM = 6, 5.0, 0.25
# Å within which a place of a helix has a residue of the chain, and residues that it may be off the line of the others.
_NEAR, _FAR_OFF = 3.5, 4.0
# Residues of the chain for each place of a helix, as it may be drawn out or pressed together.
_SLOPES = np.arange(0.4, 1.5, 0.1)
# Density of a place, in units of the backbone's, that counts nothing, and that counts one.
_NOTHING, _ONE, _MOST = 0.5, 1.0, 1.2


@dataclass(frozen=True)
class MapHelix:
    """A helix in a map, with a place for each residue that it can hold."""

    backbone: np.ndarray  # (m, 5, 3), N, Cα, C, O and Cβ in Å
    # (m,), how much of a helix is seen at each place: 1 where the density is that of the whole backbone, −1 at least
    density: np.ndarray
    # (m,), which residue of the chain is there in the model, as a line through them: no whole numbers
    residues: np.ndarray


def helices_along(density_map: DensityMap, backbone: np.ndarray) -> list[MapHelix]:
    """Return the helices along a chain, in the order in which it runs through them.

    Fragments of ideal helices are laid on its trace wherever it leads, turned and moved to where they fit best, and those that
    fit are grown residue by residue as far as the density goes, bending with it.

    `backbone` (n, 4, 3): N, Cα, C and O in Å.
    """
    alphas = backbone[:, 1]
    level = _level(density_map, backbone)
    if level <= 0:
        return []
    fragments = HelixFragments(density_map, level)
    poses, scores = fragments.along(alphas)
    found: list[np.ndarray] = []
    axes: list[np.ndarray] = []
    for number in np.argsort(-scores, kind="stable").tolist():
        if scores[number] < LEAST_SCORE - _ROUGH:
            break
        if any(_nearest(poses.centres[number][None], axis)[0] < _ONE_HELIX for axis in axes):
            continue
        pose, score = fragments.improved(Poses(poses.axes[number], poses.centres[number]))
        if score < LEAST_SCORE:
            continue
        grown = _grown(fragments, pose)
        axis = _axis(grown)
        free = np.ones(len(axis), dtype=bool)
        for other in axes:
            free &= _nearest(axis, other) > _ONE_HELIX
        first, last = max(runs_of(free), key=lambda run: run[1] - run[0], default=(0, -1))
        if last - first + 1 >= SHORTEST:
            found.append(grown[first : last + 1])
            axes.append(axis[first : last + 1])
    helices = [
        MapHelix(atoms, _seen(fragments, atoms), _residues_there(alphas, atoms[:, 1])) for atoms in found
    ]
    return sorted(helices, key=lambda helix: float(np.median(helix.residues)))


def _level(density_map: DensityMap, backbone: np.ndarray) -> float:
    values = density_map.value_at(backbone.reshape(-1, 3)).reshape(backbone.shape[:2])
    return float(np.median(np.nan_to_num(values, nan=0.0).mean(axis=1))) if len(backbone) else 0.0


def _grown(fragments: HelixFragments, start: Poses) -> np.ndarray:
    """Return the residues (m, 5, 3) of a helix that holds a fragment, grown at both ends as far as fragments fit."""
    longer = ideal_helix(LENGTH + 1)
    pieces = {0: fragments.atoms(start)}
    for way, own, moved in ((1, longer[:-1], longer[1:]), (-1, longer[1:], longer[:-1])):
        place = 0
        while abs(place) < _LONGEST:
            atoms, here = pieces[place].reshape(-1, 3), own.reshape(-1, 3)
            turn, _ = Rotation.align_vectors(atoms - atoms.mean(axis=0), here - here.mean(axis=0))
            onward = turn.apply(moved.reshape(-1, 3) - here.mean(axis=0)) + atoms.mean(axis=0)
            pose, score = fragments.improved(
                pose_of(onward.reshape(moved.shape)), _ROUNDS, _DEGREES, _ANGSTROM
            )
            if score < LEAST_SCORE:
                break
            place += way
            pieces[place] = fragments.atoms(pose)
    places = np.array(sorted(pieces))
    result = []
    # Each residue from the fragment in whose middle it is.
    for residue in range(places[0], places[-1] + LENGTH):
        piece = int(places[np.abs(places + LENGTH // 2 - residue).argmin()])
        result.append(pieces[piece][residue - piece])
    return np.array(result)


def _axis(atoms: np.ndarray) -> np.ndarray:
    """Return points on the axis of a helix, by the mean of the Cα about each place."""
    alphas = atoms[:, 1]
    return np.array([alphas[max(place - 2, 0) : place + 3].mean(axis=0) for place in range(len(alphas))])


def _nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1)


def _seen(fragments: HelixFragments, atoms: np.ndarray) -> np.ndarray:
    density = fragments.density(atoms).mean(axis=1)
    return np.clip((density - _NOTHING) / (_ONE - _NOTHING), -1.0, _MOST)


def _residues_there(alphas: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return which residue each place of a helix has in a model, by the line that most of them lie on."""
    distances = np.linalg.norm(places[:, None] - alphas[None], axis=2)
    residues, near = distances.argmin(axis=1), distances.min(axis=1) < _NEAR
    if near.sum() < SHORTEST:
        near[:] = True
    at = np.arange(len(places))
    best, chosen = np.inf, np.zeros(len(places))
    for slope in _SLOPES.tolist():
        offsets = (residues - slope * at)[near]
        middle = float(np.median(offsets))
        off = float(np.minimum(np.abs(offsets - middle), _FAR_OFF).sum())
        if off < best:
            best, chosen = off, slope * at + middle
    return chosen
