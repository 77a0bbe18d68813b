"""Places for several rigid bodies in one map: the largest first, taken off the map before smaller ones are searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ...base.errors import InputError
from ...maps.density_map import DensityMap
from .assembly import Beam, Candidates, ChainLink, clashing, without_symmetry
from .search import STEPS, Body, BodyPoses, refined, search
from .search_map import SearchMap

NOISE = 1.5
"""Two sets of places whose scores differ by less, in standard deviations over wrong places, cannot be told apart."""
LEAST = 4.0
"""Standard deviations above wrong places from which on a place is believed: models of other proteins reach 3."""
# The resolution of a search is this part of the body's radius of gyration, within limits in Å.
_PER_RADIUS, _FINEST, _COARSEST = 0.55, 4.0, 12.0
# A normal distribution's standard deviation by its median absolute one.
_MAD = 1.4826
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
    # That of the best place near a rotation and a place
    score_near: Callable[[np.ndarray, np.ndarray], float] = lambda *_: 0.0
    other: np.ndarray | None = None  # The centre, Å, of a place that is nearly as good
    other_turned: float = 0.0  # By how many degrees a body is turned there
    other_less: float = 0.0  # By how much the score of all bodies is less then


@dataclass(frozen=True)
class PlacingTask:
    """A map with what is known of it, `resolution` in Å, and of chains between bodies; and where and how the search runs.

    `device`: where maps are transformed, "cpu" or "cuda"; `threads`: of a CPU, all by default; `tell`: called with how many
    rotations were tried, of how many, and of which body.
    """

    density_map: DensityMap
    resolution: float
    links: Sequence[ChainLink] = ()
    device: str = "cpu"
    threads: int | None = None
    tell: Callable[[int, int, str], None] = lambda *_: None

    def search(
        self, kind: Kind, target: SearchMap
    ) -> tuple[BodyPoses, Callable[[np.ndarray, np.ndarray], float]]:
        """Return the best places of a body in a map made of that of the task, scored in deviations above wrong places.

        And what returns the score of the best place near one, by its rotation and place.
        """

        def tell(done: int, total: int) -> None:
            self.tell(done, total, kind.label)

        poses, noise = search(kind.body, target, tell, self.threads)
        # The median, as a few of those places are right ones.
        deviation = _MAD * float(np.median(np.abs(noise - np.median(noise)))) or 1.0

        def scores(raw: np.ndarray) -> np.ndarray:
            return (raw - np.median(noise)) / deviation

        def near(rotation: np.ndarray, place: np.ndarray) -> float:
            there = BodyPoses(np.zeros(1), rotation[None], place[None])
            return float(scores(refined(there, kind.body, target, STEPS[1]).scores)[0])

        return without_symmetry(kind.body, replace(poses, scores=scores(poses.scores))), near


def place_bodies(kinds: Sequence[Kind], task: PlacingTask) -> list[PlacedBody]:
    """Return where bodies lie in a map, in the order of the kinds; InputError if one is larger, or no place is left."""
    for kind in kinds:
        _check_size(kind, task.density_map)
    order = sorted(range(len(kinds)), key=lambda k: -len(kinds[k].body.atoms))
    placed: list[PlacedBody] = []
    while order:
        most = len(kinds[order[0]].body.atoms)
        group = [k for k in order if len(kinds[k].body.atoms) >= _AS_LARGE * most]
        order = order[len(group) :]
        placed += _place_group(group, kinds, placed, task)
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
    group: Sequence[int], kinds: Sequence[Kind], placed: Sequence[PlacedBody], task: PlacingTask
) -> list[PlacedBody]:
    """Return the places of bodies of about one size, beside those that are placed already."""
    bodies = [kinds[k].body for k in group]
    coarse = float(np.clip(_PER_RADIUS * min(each.gyration for each in bodies), _FINEST, _COARSEST))
    room = max(float(np.linalg.norm(each.atoms, axis=1).max()) for each in bodies)
    target = SearchMap.of(task.density_map, max(task.resolution, coarse), room, torch.device(task.device))
    if placed:
        target = target.without(*_all_atoms(kinds, placed))
    fixed = [Candidates(each.kind, kinds[each.kind].body, 1, _pose(each)) for each in placed]
    found: list[Candidates] = []
    near = {}
    for k in group:
        kind = kinds[k]
        poses, near[k] = task.search(kind, target)
        here = Candidates(k, kind.body, kind.copies, poses)
        free = np.ones(len(poses), dtype=bool)
        for each in fixed:
            free &= ~clashing(each.traces()[0], here)
        rows = np.flatnonzero(free)
        found.append(replace(here, poses=poses.chosen(rows)))
    sets = Beam([*fixed, *found], task.links).best()
    if not sets:
        labels = ", ".join(kinds[k].label for k in group)
        raise InputError(
            f"the map has no room for all copies of {labels}: what is placed of them leaves no place without overlap",
            remedy="give fewer copies, or the whole map",
        )
    chosen = _chosen([*fixed, *found], len(fixed), sets)
    return [replace(each, score_near=near[each.kind]) for each in chosen]


def _pose(placed: PlacedBody) -> BodyPoses:
    return BodyPoses(np.zeros(1), placed.rotation[None], placed.place[None])


def _all_atoms(kinds: Sequence[Kind], placed: Sequence[PlacedBody]) -> tuple[np.ndarray, np.ndarray]:
    atoms = [kinds[each.kind].body.atoms @ each.rotation.T + each.place for each in placed]
    return np.concatenate(atoms), np.concatenate([kinds[each.kind].body.weights for each in placed])


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
            kinds[row].kind, poses.rotations[pose], poses.places[pose], float(poses.scores[pose])
        )
        if (row, pose) in others:
            another, less = others[row, pose]
            turn = poses.rotations[another] @ one.rotation.T
            angle = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
            one = replace(one, other=poses.places[another], other_turned=float(angle), other_less=less)
        placed.append(one)
    return placed
