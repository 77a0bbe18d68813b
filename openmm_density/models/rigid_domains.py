"""Rigid domains of a molecule, found from frames of a path or of soft modes, and how they turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.cluster import hierarchy
from scipy.ndimage import uniform_filter1d
from scipy.spatial.distance import pdist
from scipy.spatial.transform import Rotation

from .superposition import rotation_onto, superposition

SMALLEST = 20
"""The fewest residues of a domain."""
MOST = 6
"""Domains."""
WORTH_DIVIDING = 0.75
"""The fraction of the deviation from rigid bodies that may remain when a domain is added."""
RIGID = 0.4
"""Å; fits of one model differ by less, so smaller deviations are not divided."""
_SMOOTHED = 7
_CUTS, _ROUNDS = 20, 30
_MOST_CLUSTERED = 1200


def rigid_domains(
    traces: np.ndarray, chains: Sequence[np.ndarray], worth: float = WORTH_DIVIDING
) -> np.ndarray:
    """Return the domain of each residue: residues that keep their relative positions in all frames.

    Residues are first clustered by how much their distances vary over the path (average linkage). From every cut of that tree
    into parts, residues then move to the part whose rigid motion they follow best, until none does, as in k-means of rigid
    motions (after M. Hirsch and M. Habeck, Bioinformatics 24, 2184 (2008), without their probabilities). A domain is added
    as long as it reduces the mean deviation from rigid bodies by a quarter, by default. `traces` (F, R, 3): one atom of
    each residue in each frame, in Å. Returns int (R,), from 0, the largest domain.
    """
    n_frames, n_residues = traces.shape[:2]
    best = np.zeros(n_residues, dtype=np.int64)
    if n_frames < 2 or n_residues < 2 * SMALLEST:
        return best
    left = _deviation(traces, best)
    by_count: dict[int, tuple[float, np.ndarray]] = {}
    for parts in _first_parts(traces):
        labels = _settled(traces, parts, chains)
        found = _deviation(traces, labels)
        count = int(labels.max()) + 1
        if count not in by_count or found < by_count[count][0]:
            by_count[count] = found, labels
    for count in sorted(by_count):
        found, labels = by_count[count]
        divisions = count - (int(best.max()) + 1)
        if left > RIGID and divisions > 0 and found < left * worth**divisions:
            left, best = found, labels
    return best


def _first_parts(traces: np.ndarray) -> list[np.ndarray]:
    """Return initial divisions of the residues, with -1 for those in no large part."""
    n_residues = traces.shape[1]
    chosen = np.unique(np.linspace(0, n_residues - 1, min(n_residues, _MOST_CLUSTERED)).round().astype(int))
    distances = np.array([pdist(frame[chosen]) for frame in traces])
    tree = hierarchy.linkage(distances.std(axis=0), "average")
    least = max(SMALLEST * len(chosen) / n_residues, 3)
    divisions = []
    for cut in range(2, _CUTS):
        clusters = hierarchy.fcluster(tree, cut, "maxclust")
        labels = np.full(n_residues, -1)
        large = [each for each in np.unique(clusters) if (clusters == each).sum() >= least][:MOST]
        for number, each in enumerate(large):
            labels[chosen[clusters == each]] = number
        if len(large) > 1 and not any(np.array_equal(labels, other) for other in divisions):
            divisions.append(labels)
    return divisions


def _settled(traces: np.ndarray, labels: np.ndarray, chains: Sequence[np.ndarray]) -> np.ndarray:
    """Return domains whose residues all follow them better than any other."""
    for _ in range(_ROUNDS):
        numbers = [number for number in np.unique(labels) if number >= 0]
        numbers = [number for number in numbers if (labels == number).sum() >= SMALLEST] or numbers[:1]
        residuals = np.array([_residuals(traces, labels == number) for number in numbers])
        for chain in chains:
            # Neighbours move together: a single residue's random motion makes no domain.
            residuals[:, chain] = uniform_filter1d(residuals[:, chain], _SMOOTHED, axis=1, mode="nearest")
        nearest = residuals.argmin(axis=0)
        if len(numbers) == labels.max() + 1 and np.array_equal(nearest, labels):
            break
        labels = nearest
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[labels]


def _residuals(traces: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return how far each residue strays over the frames where these members are superposed, in Å."""
    placed = placed_by(traces, members)
    return np.sqrt(((placed - placed.mean(axis=0)) ** 2).sum(axis=2).mean(axis=0))


def placed_by(traces: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return all frames (F, R, 3) with some residues superposed on the first frame."""
    fixed = traces[0, members]
    placed = np.empty_like(traces, dtype=np.float64)
    for number, frame in enumerate(traces):
        rotation, shift = superposition(frame[members], fixed)
        placed[number] = frame @ rotation.T + shift
    return placed


def _deviation(traces: np.ndarray, labels: np.ndarray) -> float:
    """Return the root mean square deviation of all residues from the rigid motion of their domain, in Å."""
    own = np.empty(traces.shape[1])
    for number in np.unique(labels):
        members = labels == number
        own[members] = _residuals(traces, members)[members]
    return float(np.sqrt((own**2).mean()))


@dataclass(frozen=True)
class DomainMotion:
    """The motion of a domain relative to the largest one, along a path."""

    domain: int  # From 1; the first is the largest, the reference for the others
    residues: tuple[str, ...]  # Its residue ranges, as in ``A 30-59``
    size: int  # Residues
    # `angle_from_first`, `angle_from_previous`: its rotation in each frame relative to the first one and the previous
    # one, in degrees.
    angle_from_first: list[float]
    angle_from_previous: list[float]
    # The direction of the rotation from the first frame to the one in which it is turned farthest, as a unit vector
    axis: list[float]
    point: list[float]  # A point on that axis, in Å, in the frame of the first one
    shift_along_axis: float  # The shift along it, in Å

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {**vars(self), "residues": list(self.residues)}


def domain_motions(
    traces: np.ndarray, labels: np.ndarray, stretches: Sequence[Sequence[str]]
) -> list[DomainMotion]:
    """Return the motions of domains (`labels` int (R,)) relative to the largest, in traces (F, R, 3) in Å."""
    placed = placed_by(traces, labels == 0)
    motions = []
    for number in range(1, int(labels.max()) + 1):
        own = placed[:, labels == number]
        turns = [_turn(own[0], frame) for frame in own]
        before = [0.0, *(_degrees(_turn(a, b)) for a, b in pairwise(own))]
        angles = [_degrees(turn) for turn in turns]
        farthest = int(np.argmax(angles))
        axis, point, along = _screw(turns[farthest], own[0].mean(axis=0), own[farthest].mean(axis=0))
        motions.append(
            DomainMotion(
                number + 1,
                tuple(stretches[number]),
                int((labels == number).sum()),
                angles,
                before,
                axis,
                point,
                along,
            )
        )
    return motions


def _turn(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    return rotation_onto(first - first.mean(axis=0), other - other.mean(axis=0))


def _degrees(turn: np.ndarray) -> float:
    return round(float(np.degrees(Rotation.from_matrix(turn).magnitude())), 2)


def _screw(turn: np.ndarray, centre: np.ndarray, moved: np.ndarray) -> tuple[list[float], list[float], float]:
    """Return direction, point and shift of a motion's screw axis."""
    vector = Rotation.from_matrix(turn).as_rotvec()
    angle = np.linalg.norm(vector)
    if angle < 1e-6:
        return [0.0, 0.0, 1.0], centre.tolist(), 0.0
    axis = vector / angle
    shift = moved - turn @ centre
    along = float(axis @ shift)
    # The point nearest to the domain's own centre: (1 − R) c = shift, but for the part along the axis.
    point = np.linalg.lstsq(np.eye(3) - turn, shift - along * axis, rcond=None)[0]
    point += axis * (axis @ (centre - point))
    return (
        [round(float(each), 4) for each in axis],
        [round(float(each), 2) for each in point],
        round(along, 2),
    )
