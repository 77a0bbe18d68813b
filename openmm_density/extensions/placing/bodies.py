"""Places for several rigid bodies in one map: the largest first, taken off the map before smaller ones are searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from ...base.errors import InputError
from ...maps.density_map import DensityMap
from .assembly import Beam, Candidates, ChainLink, clashing, without_symmetry
from .search import Body, BodyPoses, search
from .search_map import SearchMap

NOISE = 2.0
"""Two sets of places whose scores differ by less, in standard deviations over wrong places, cannot be told apart."""
LEAST = 5.0
"""Standard deviations above wrong places from which on a place is believed: models of other proteins reach 4."""
# The resolution of a search is this part of the body's radius of gyration, within limits in Å.
_PER_RADIUS, _FINEST, _COARSEST = 0.55, 4.0, 12.0
# Bodies of which none has less than this part of the atoms of another are searched in the same map.
_AS_LARGE = 0.5


@dataclass(frozen=True)
class Kind:
    """A rigid body, what it is called, how many of it are to be placed, and where the centre of its atoms was, in Å."""

    label: str
    body: Body
    copies: int = 1
    centre: np.ndarray = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True)
class PlacedBody:
    """Where a body is: x → rotation · x + place, of its atoms about their centre; scores in deviations above wrong places."""

    kind: int
    rotation: np.ndarray
    place: np.ndarray
    score: float
    other: np.ndarray | None = None  # The centre, Å, of a place that is nearly as good
    other_turned: float = 0.0  # By how many degrees a body is turned there
    other_less: float = 0.0  # By how much the score of all bodies is less then


def place_bodies(
    kinds: Sequence[Kind],
    density_map: DensityMap,
    resolution: float,
    links: Sequence[ChainLink] = (),
    device: torch.device | None = None,
    tell: Callable[[int, int, str], None] = lambda *_: None,
) -> list[PlacedBody]:
    """Return where bodies lie in a map, in the order of the kinds.

    Parameters
    ----------
    kinds : sequence of Kind
    density_map : DensityMap
    resolution : float
        Of the map, in Å.
    links : sequence of ChainLink
        Chains between bodies.
    device : torch.device, optional
        Where maps are transformed; the CPU by default.
    tell : callable
        Told how many rotations were tried, of how many, and of which body.

    Raises
    ------
    InputError
        If a body is larger than the map, or no place is left for one.
    """
    for kind in kinds:
        _check_size(kind, density_map)
    order = sorted(range(len(kinds)), key=lambda k: -len(kinds[k].body.atoms))
    placed: list[PlacedBody] = []
    while order:
        most = len(kinds[order[0]].body.atoms)
        group = [k for k in order if len(kinds[k].body.atoms) >= _AS_LARGE * most]
        order = order[len(group) :]
        placed += _place_group(group, kinds, placed, density_map, resolution, links, device, tell)
    return sorted(placed, key=lambda each: each.kind)


def _check_size(kind: Kind, density_map: DensityMap) -> None:
    extent = np.ptp(kind.body.atoms @ np.linalg.svd(kind.body.atoms, full_matrices=False)[2].T, axis=0)
    box = np.linalg.norm(density_map.matrix * density_map.size, axis=0)
    if extent.max() > np.linalg.norm(box):
        raise InputError(
            f"{kind.label} is {extent.max():.0f} Å long, and the map holds no more than {np.linalg.norm(box):.0f} Å",
            remedy="give the map that shows it, or check the voxel size",
        )


def _place_group(
    group: Sequence[int],
    kinds: Sequence[Kind],
    placed: Sequence[PlacedBody],
    density_map: DensityMap,
    resolution: float,
    links: Sequence[ChainLink],
    device: torch.device | None,
    tell: Callable[[int, int, str], None],
) -> list[PlacedBody]:
    """Return the places of bodies of about one size, beside those that are placed already."""
    bodies = [kinds[k].body for k in group]
    coarse = max(
        resolution, float(np.clip(_PER_RADIUS * min(each.gyration for each in bodies), _FINEST, _COARSEST))
    )
    room = max(float(np.linalg.norm(each.atoms, axis=1).max()) for each in bodies)
    target = SearchMap.of(density_map, coarse, room, device or torch.device("cpu"))
    if placed:
        target = target.without(*_all_atoms(kinds, placed))
    fixed = [Candidates(each.kind, kinds[each.kind].body, 1, _pose(each), np.zeros(1)) for each in placed]
    found: list[Candidates] = []
    for k in group:
        kind = kinds[k]
        poses = without_symmetry(kind.body, search(kind.body, target, partial(_tell, tell, kind.label)))
        free = np.ones(len(poses), dtype=bool)
        for each in fixed:
            free &= ~clashing(each.traces()[0], Candidates(k, kind.body, 1, poses, poses.scores))
        poses = poses.chosen(np.flatnonzero(free))
        found.append(Candidates(k, kind.body, kind.copies, poses, poses.scores))
    # First by scores alone; then by how far these are above those of wrong places, which are known by then.
    sets = Beam([*fixed, *found], links).best()
    if sets:
        scaled = [
            _scaled(each, len(fixed) + row, [*fixed, *found], sets[0][1]) for row, each in enumerate(found)
        ]
        sets = Beam([*fixed, *scaled], links).best()
    if not sets:
        labels = ", ".join(kinds[k].label for k in group)
        raise InputError(
            f"the map has no room for all copies of {labels}: what is placed of them leaves no place without overlap",
            remedy="give fewer copies, or the whole map",
        )
    return _chosen([*fixed, *scaled], len(fixed), sets)


def _tell(tell: Callable[[int, int, str], None], label: str, done: int, total: int) -> None:
    tell(done, total, label)


def _pose(placed: PlacedBody) -> BodyPoses:
    return BodyPoses(np.zeros(1), placed.rotation[None], placed.place[None])


def _all_atoms(kinds: Sequence[Kind], placed: Sequence[PlacedBody]) -> tuple[np.ndarray, np.ndarray]:
    atoms = [kinds[each.kind].body.atoms @ each.rotation.T + each.place for each in placed]
    return np.concatenate(atoms), np.concatenate([kinds[each.kind].body.weights for each in placed])


def _scaled(
    candidates: Candidates, row: int, kinds: Sequence[Candidates], chosen: tuple[tuple[int, int], ...]
) -> Candidates:
    """Return candidates with gains in standard deviations above wrong places: those where none was chosen lies."""
    wrong = np.ones(len(candidates.gains), dtype=bool)
    for other, pose in chosen:
        wrong &= ~clashing(kinds[other].traces(slice(pose, pose + 1))[0], candidates)
    if wrong.sum() < 10:
        wrong[:] = True
        wrong[[pose for other, pose in chosen if other == row]] = False
    noise = candidates.poses.scores[wrong] if wrong.any() else candidates.poses.scores
    deviation = float(noise.std()) or 1.0
    return replace(candidates, gains=(candidates.poses.scores - noise.mean()) / deviation)


def _chosen(
    kinds: Sequence[Candidates], n_fixed: int, sets: Sequence[tuple[float, tuple[tuple[int, int], ...]]]
) -> list[PlacedBody]:
    """Return the best set, with what of it is different in another one that is about as good."""
    score, best = sets[0]
    others = {}
    for less, other in ((score - each, chosen) for each, chosen in sets[1:]):
        if less > NOISE:
            break
        for (row, pose), (_, another) in zip(best, other):
            if pose != another:
                others.setdefault((row, pose), (another, less))
    placed = []
    for row, pose in best[n_fixed:]:
        poses = kinds[row].poses
        one = PlacedBody(
            kinds[row].kind, poses.rotations[pose], poses.places[pose], float(kinds[row].gains[pose])
        )
        if (row, pose) in others:
            another, less = others[row, pose]
            turn = poses.rotations[another] @ one.rotation.T
            angle = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
            one = replace(one, other=poses.places[another], other_turned=float(angle), other_less=less)
        placed.append(one)
    return placed
