"""Which of the places found for each body are taken: those that fit best together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree

from .search import Body, BodyPoses

# Å between Cα or P atoms of two bodies, and the part of the smaller one's that may be nearer.
_CLASH, _MOST_CLASHING = 4.0, 0.1
_COMPARED = 120
_BEAM = 60
# What each Å too much between the ends of two domains takes from a z-score, and at most.
_PER_ANGSTROM, _MOST_TAKEN = 0.5, 12.0
# BodyPoses that bring the atoms so near (Å) to like ones of a better pose are its copies by a symmetry of the body.
_SAME, _ALIKE = 2.5, 0.8


@dataclass(frozen=True)
class ChainLink:
    """The chain between two kinds of bodies: the rows of its ends among their atoms, and how far apart these may be, in Å."""

    first: int
    first_atom: int
    second: int
    second_atom: int
    most: float


@dataclass(frozen=True)
class Candidates:
    """Places that were found for one kind of body, of which there are to be some copies."""

    kind: int
    body: Body
    copies: int
    poses: BodyPoses

    def traces(self, rows: np.ndarray | slice = slice(None), step: int = 1) -> np.ndarray:
        """Return the Cα or P atoms in some poses, (P, n, 3)."""
        atoms = self.body.atoms[self.body.trace][::step]
        turned = np.einsum("pij,nj->pni", self.poses.rotations[rows], atoms)
        return turned + self.poses.places[rows][:, None]


def without_symmetry(body: Body, poses: BodyPoses) -> BodyPoses:
    """Return poses without those that a symmetry of the body makes of better ones."""
    trace, names = body.atoms[body.trace], body.names
    kept: list[int] = []
    trees: dict[int, cKDTree] = {}
    for row in range(len(poses)):
        own = trace @ poses.rotations[row].T + poses.places[row]
        for other in kept:
            if np.linalg.norm(poses.places[row] - poses.places[other]) > _SAME:
                continue
            distances, nearest = trees[other].query(own)
            if distances.mean() < _SAME and (names[nearest] == names).mean() > _ALIKE:
                break
        else:
            kept.append(row)
            trees[row] = cKDTree(own)
    return poses.chosen(np.array(kept, dtype=np.int64))


def clashing(placed: np.ndarray, candidates: Candidates) -> np.ndarray:
    """Return which of the poses (P,) put a body where atoms (N, 3) are already."""
    n_trace = int(candidates.body.trace.sum())
    step = -(-n_trace // _COMPARED)
    others = torch.from_numpy(candidates.traces(step=step).astype(np.float32))
    near = torch.cdist(others, torch.from_numpy(placed.astype(np.float32))) < _CLASH
    fewer = min(n_trace, len(placed))
    return (near.sum(dim=(1, 2)).numpy() * step) > _MOST_CLASHING * fewer


class Beam:
    """A search for the best sets of places, all copies of all kinds, that do not overlap."""

    def __init__(self, kinds: Sequence[Candidates], links: Sequence[ChainLink] = ()) -> None:
        self._kinds, self._links = kinds, links
        self._free: dict[tuple[int, int, int], np.ndarray] = {}
        self._joined: dict[tuple[int, int, int, int], np.ndarray] = {}

    def best(self) -> list[tuple[float, tuple[tuple[int, int], ...]]]:
        """Return scores and sets, the best first: pairs of a row of kinds and one of its poses."""
        states: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]
        for row, kind in enumerate(self._kinds):
            for copy in range(kind.copies):
                found = []
                for score, chosen in states:
                    gains = kind.poses.scores + self._connected(chosen, row)
                    free = np.ones(len(gains), dtype=bool)
                    for each in chosen:
                        free &= self._apart(*each, row)
                    if copy:  # of copies, which are alike, each set is made in one order only
                        free[: chosen[-1][1] + 1] = False
                    rows = np.flatnonzero(free)
                    rows = rows[np.argsort(-gains[rows], kind="stable")[:_BEAM]]
                    found += [(score + float(gains[i]), (*chosen, (row, int(i)))) for i in rows]
                found.sort(key=lambda each: -each[0])
                states = found[:_BEAM]
        return states

    def _apart(self, first: int, pose: int, second: int) -> np.ndarray:
        key = first, pose, second
        if key not in self._free:
            self._free[key] = ~clashing(
                self._kinds[first].traces(slice(pose, pose + 1))[0], self._kinds[second]
            )
        return self._free[key]

    def _connected(self, chosen: tuple[tuple[int, int], ...], row: int) -> np.ndarray:
        """Return what distances between ends of a chain take from the poses of a kind; of copies the nearest counts."""
        total = np.zeros(len(self._kinds[row].poses))
        for number, link in enumerate(self._links):
            pair = link.first, link.second
            if self._kinds[row].kind in pair:
                other = pair[1 - pair.index(self._kinds[row].kind)]
                taken = [
                    self._taken(number, *each, row) for each in chosen if self._kinds[each[0]].kind == other
                ]
                total += np.max(taken, axis=0) if taken else 0.0
        return total

    def _taken(self, number: int, first: int, pose: int, second: int) -> np.ndarray:
        key = number, first, pose, second
        if key not in self._joined:
            link, one, other = self._links[number], self._kinds[first], self._kinds[second]
            ends = {link.first: link.first_atom, link.second: link.second_atom}
            a = one.poses.rotations[pose] @ one.body.atoms[ends[one.kind]] + one.poses.places[pose]
            b = other.poses.rotations @ other.body.atoms[ends[other.kind]] + other.poses.places
            excess = np.maximum(np.linalg.norm(b - a, axis=1) - link.most, 0)
            self._joined[key] = -np.minimum(_PER_ANGSTROM * excess, _MOST_TAKEN)
        return self._joined[key]
