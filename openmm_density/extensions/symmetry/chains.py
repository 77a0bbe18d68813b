"""The symmetry among the chains of a model: which group, where, and how far the copies are from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from ...base.errors import InputError
from ...models.matching import residues_of
from ...models.model import Model
from ...models.superposition import superposition
from .groups import about, point_group

IDENTITY = 0.95
"""The part of the residues that two chains have in common which must have the same name, for them to be copies."""
OVERLAP = 0.6
"""The part of the shorter chain that its copy must have."""
FARTHEST = 3.0
"""Å by which copies may be off a group in the root mean square."""
_SHORTEST = 5
# Cosine below which two axes count as not parallel, and degrees by which angles of rotations may be off the group's.
_PARALLEL, _ANGLE = 0.98, 15.0
# Degrees below which a copy is not turned: point groups have no two copies of one orientation.
_TURNED = 0.1


@dataclass(frozen=True)
class FoundSymmetry:
    """A point `group` that the chains of a model have, such as ``D2``.

    `rotations`, `translations` (n, 3, 3) and (n, 3): exact operators of the group where it was found, Å, the identity first,
    which carry the unit onto its copies; `units`: the chain ids of each copy in the same order; `rmsd`: Å by which the copies'
    trace atoms are off the operators' images of the unit.
    """

    group: str
    rotations: np.ndarray
    translations: np.ndarray
    units: tuple[tuple[str, ...], ...]
    rmsd: float


def find_in_chains(model: Model) -> FoundSymmetry:
    """Find the point group of a model that holds all copies.

    Chains are copies where residues of the same number have the same name; each is superposed onto the first one, and the group
    whose rotations those are, with the same axes and centre for all, is found by its axes and refined by least squares
    of the trace atoms. Where several fit, that of the smallest deviation is taken.

    Parameters
    ----------
    model : Model

    Raises
    ------
    InputError
        If the model has one copy only, kinds of chains in different numbers, or copies that no group explains.
    """
    kinds = copies_of(model.topology)
    numbers = sorted({len(kind) for kind in kinds})
    listed = "; ".join(" ".join(chain.id for chain in kind) for kind in kinds)
    if not kinds or numbers == [1]:
        raise InputError(
            "has no two chains of one sequence, between which symmetry could be found",
            source=model.path,
            remedy="give the symmetry, such as C4, or give a model with its copies",
        )
    if len(numbers) > 1:
        raise InputError(
            "has kinds of chains in different numbers of copies",
            source=model.path,
            found=listed,
            remedy="give a model of one unit, and give the symmetry",
        )
    best = _found(kinds[0], model.positions)
    if best is None or best[2] > FARTHEST:
        off = "" if best is None else f" (the nearest, {best[0]}, is off by {best[2]:.1f} Å)"
        raise InputError(
            f"has {numbers[0]} copies that are in no point group{off}",
            source=model.path,
            found=listed,
            remedy="give a model of one unit, and give the symmetry",
        )
    group, operators, rmsd = best
    units = [
        [nearest(kind, kind[0], model.positions, *each).id for kind in kinds] for each in zip(*operators)
    ]
    if len({name for unit in units for name in unit}) < sum(map(len, kinds)):
        raise InputError(
            f"has chains that are not where {group} has them",
            source=model.path,
            found=listed,
            remedy="give a model of one unit",
        )
    return FoundSymmetry(group, *operators, tuple(map(tuple, units)), rmsd)


@dataclass(frozen=True)
class _Chain:
    """A polymer: its id, and the trace atom and name of each residue by its number."""

    id: str
    names: dict[str, str]
    atoms: dict[str, int]


def copies_of(topology: app.Topology) -> list[list[_Chain]]:
    """Return the chains by kind, those with most residues first."""
    chains: dict[str, _Chain] = {}
    for residue in residues_of(topology):
        if not residue.traces:
            continue
        chain = chains.setdefault(residue.chain, _Chain(residue.chain, {}, {}))
        key = f"{residue.number}{residue.insertion_code}"
        chain.names.setdefault(key, residue.name)
        chain.atoms.setdefault(key, next(iter(residue.traces.values())))
    kinds: list[list[_Chain]] = []
    for chain in chains.values():
        if len(chain.names) < _SHORTEST:
            continue
        kind = next((kind for kind in kinds if _are_copies(kind[0], chain)), None)
        if kind is None:
            kinds.append([chain])
        else:
            kind.append(chain)
    return sorted(kinds, key=lambda kind: -len(kind[0].names))


def _are_copies(first: _Chain, second: _Chain) -> bool:
    common = first.names.keys() & second.names.keys()
    same = sum(first.names[key] == second.names[key] for key in common)
    return len(common) >= OVERLAP * min(len(first.names), len(second.names)) and same >= IDENTITY * len(
        common
    )


def paired(first: _Chain, second: _Chain) -> tuple[np.ndarray, np.ndarray]:
    """Return the trace atoms that two chains have in common, those of each in one order."""
    common = [key for key in first.atoms if key in second.atoms]
    return np.array([first.atoms[key] for key in common]), np.array([second.atoms[key] for key in common])


def nearest(
    kind: list[_Chain], unit: _Chain, positions: np.ndarray, rotation: np.ndarray, translation: np.ndarray
) -> _Chain:
    """Return the chain of a kind that is where an operator puts its first."""

    def distance(chain: _Chain) -> float:
        own, others = paired(unit, chain)
        return float(
            np.linalg.norm((positions[own] @ rotation.T + translation - positions[others]).mean(axis=0))
        )

    return min(kind, key=distance)


def _found(
    kind: list[_Chain], positions: np.ndarray
) -> tuple[str, tuple[np.ndarray, np.ndarray], float] | None:
    """Return the group of copies, its operators and the deviation from it; None where no group has so many."""
    pairs = [paired(kind[0], chain) for chain in kind]
    motions = [superposition(positions[own], positions[others]) for own, others in pairs]
    observed = np.array([rotation for rotation, _ in motions])
    best = None
    for group in _groups_of(len(kind)):
        for frame in _frames(point_group(group), observed):
            rotations = point_group(group)
            chosen = _assigned(frame @ rotations @ frame.T, observed)
            if len(set(chosen)) < len(chosen):
                continue
            operators, rmsd = _refined(rotations, chosen, frame, motions, pairs, positions)
            if best is None or rmsd < best[2] - 1e-6:
                best = group, operators, rmsd
    return best


def _groups_of(n: int) -> list[str]:
    """Return the point groups of so many operators."""
    cubic = {12: ["T"], 24: ["O"], 60: ["I"]}
    return [f"C{n}", *([f"D{n // 2}"] if n % 2 == 0 and n >= 4 else []), *cubic.get(n, [])]


def _frames(rotations: np.ndarray, observed: np.ndarray) -> list[np.ndarray]:
    """Return the orientation of a group that explains observed rotations best; none where its axes do not go with theirs."""
    vectors = Rotation.from_matrix(observed).as_rotvec()
    own = Rotation.from_matrix(rotations).as_rotvec()
    angles, own_angles = (np.rad2deg(np.linalg.norm(each, axis=1)) for each in (vectors, own))
    if angles[1:].min() < _TURNED:
        return []
    first = 1 + int(np.argmax([_sharpness(angle) for angle in angles[1:]]))
    axis = vectors[first] / np.linalg.norm(vectors[first])
    lines = vectors[1:] / np.linalg.norm(vectors[1:], axis=1, keepdims=True)
    second = 1 + int(np.argmin(np.abs(lines @ axis)))
    is_cyclic = np.abs(lines @ axis).min() > _PARALLEL
    best, least = None, np.inf
    for i in np.flatnonzero(np.abs(own_angles - angles[first]) < _ANGLE):
        for sign in (1.0, -1.0):
            for frame in _aligned(
                own, own_angles, vectors, angles, i, first, None if is_cyclic else second, sign
            ):
                turned = frame @ rotations @ frame.T
                off = ((turned[None] - observed[:, None]) ** 2).sum(axis=(2, 3)).min(axis=1).sum()
                if off < least:
                    best, least = frame, off
    return [] if best is None else [best]


def _sharpness(angle: float) -> float:
    """Return how well an axis is told by a rotation about it: not by one of few degrees."""
    return float(np.sin(np.deg2rad(angle) / 2))


def _aligned(
    own: np.ndarray,
    own_angles: np.ndarray,
    vectors: np.ndarray,
    angles: np.ndarray,
    i: int,
    first: int,
    second: int | None,
    sign: float,
) -> list[np.ndarray]:
    """Return rotations that carry one axis of a group onto an observed one and, where there is a second, that as well."""
    source, target = sign * own[i] / np.linalg.norm(own[i]), vectors[first] / np.linalg.norm(vectors[first])
    if second is None:
        return [Rotation.align_vectors(target[None], source[None])[0].as_matrix()]
    other = vectors[second] / np.linalg.norm(vectors[second])
    frames = []
    for j in np.flatnonzero(np.abs(own_angles - angles[second]) < _ANGLE):
        for other_sign in (1.0, -1.0):
            own_other = other_sign * own[j] / max(np.linalg.norm(own[j]), 1e-12)
            if abs(own_other @ source - other @ target) < np.sin(np.deg2rad(_ANGLE)):
                turn, _ = Rotation.align_vectors(np.array([target, other]), np.array([source, own_other]))
                frames.append(turn.as_matrix())
    return frames


def _assigned(turned: np.ndarray, observed: np.ndarray) -> list[int]:
    """Return which operator each observed rotation is nearest to; the identity is the first's."""
    distances = ((turned[None] - observed[:, None]) ** 2).sum(axis=(2, 3))
    return [0, *(int(k) for k in distances[1:].argmin(axis=1))]


def _refined(
    rotations: np.ndarray,
    chosen: list[int],
    frame: np.ndarray,
    motions: list[tuple[np.ndarray, np.ndarray]],
    pairs: list[tuple[np.ndarray, np.ndarray]],
    positions: np.ndarray,
) -> tuple[tuple[np.ndarray, np.ndarray], float]:
    """Return the operators that carry the unit onto its copies best, exact in the group, in the order of the copies; Å off."""
    none = np.zeros((len(rotations), 3))
    turned = (frame @ rotations @ frame.T)[chosen]
    # The centre is what all operators leave where it is: (1 - R) c = t.
    centre = np.linalg.lstsq(
        np.concatenate(np.eye(3) - turned[1:]),
        np.concatenate([shift for _, shift in motions[1:]]),
        rcond=None,
    )[0]

    def operators(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = Rotation.from_rotvec(parameters[:3]).as_matrix() @ frame
        moved, shifts = about(rotations, none, own, centre + parameters[3:])
        return moved[chosen], shifts[chosen]

    def off(parameters: np.ndarray) -> np.ndarray:
        moved = zip(*operators(parameters), pairs[: len(chosen)], strict=True)
        return np.concatenate(
            [
                (positions[own] @ r.T + t - positions[others]).ravel()
                for r, t, (own, others) in moved
                if len(own)
            ]
        )

    found = least_squares(off, np.zeros(6), method="trf").x
    n_compared = sum(len(own) for own, _ in pairs[1:])
    return operators(found), float(np.sqrt((off(found) ** 2).sum() / n_compared))
