"""Ideal α-helices laid into a map: how well a fragment fits in a pose, and the poses along a trace in which it fits best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from ...maps.density_map import DensityMap

LENGTH = 11
"""Residues of a fragment: three turns. Shorter ones fit anywhere, and longer ones hardly into a helix that bends."""

# Bond lengths in Å and angles in degrees (Engh & Huber 1991), and the torsions φ, ψ and ω of an α-helix.
_N_CA, _CA_C, _C_N, _C_O, _CA_CB = 1.458, 1.525, 1.329, 1.231, 1.53
_AT_N, _AT_CA, _AT_C, _C_N_O = 121.7, 111.0, 116.6, 122.5
_PHI, _PSI, _OMEGA = -63.0, -42.0, 180.0
# N, Cα, C, O and Cβ: the last two are shown less.
_WEIGHTS = np.array([1.0, 1.0, 1.0, 0.7, 0.7]) / 4.4
# How much the density between the turns, where nothing should be, counts against theirs: it tells how a helix is turned.
_BETWEEN = 0.5
# Of a trace: residues that its direction is averaged over, Å between fragments, and how many steps on either side the direction
# is taken over.
_AVERAGED, _STEP, _REACH = 4, 3.0, 3
# Poses that are tried first, in degrees about the axis and Å along it, and so many of them are improved.
_TURNS, _SLIDES, _IMPROVED = np.arange(0.0, 360.0, 20.0), np.array([-0.5, 0.0, 0.5]), 3
# Random moves: rounds, moves of each, by how many degrees and Å in the first, and how much smaller they get with each round.
_ROUNDS, _MOVES, _DEGREES, _ANGSTROM, _FALL = 10, 16, 15.0, 0.7, 0.7
# Fragments that are treated at once, for memory.
_AT_ONCE = 32


class Poses(NamedTuple):
    """Where fragments are."""

    axes: np.ndarray  # (..., 3, 3), as rows; the last is that of the helix, from N to C
    centres: np.ndarray  # (..., 3), Å


def _next_atom(
    first: np.ndarray, second: np.ndarray, third: np.ndarray, length: float, angle: float, torsion: float
) -> np.ndarray:
    """Return the atom bonded to the third of three, by bond length, angle and torsion (Å, degrees)."""
    along = _unit(third - second)
    normal = _unit(np.cross(second - first, along))
    bend, turn = np.radians(angle), np.radians(torsion)
    across = np.cos(turn) * np.cross(normal, along) + np.sin(turn) * normal
    return third + length * (np.sin(bend) * across - np.cos(bend) * along)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def ideal_helix(count: int) -> np.ndarray:
    """Return N, Cα, C, O and Cβ of an α-helix of so many residues about the z axis, shape (count, 5, 3), in Å.

    It runs up from its N terminus; its Cα are centred at z = 0.
    """
    angle = np.radians(180 - _AT_CA)
    chain = [np.zeros(3), np.array([_N_CA, 0, 0])]
    chain.append(chain[1] + _CA_C * np.array([np.cos(angle), np.sin(angle), 0]))
    for _ in range(count):
        for length, at, torsion in ((_C_N, _AT_C, _PSI), (_N_CA, _AT_N, _OMEGA), (_CA_C, _AT_CA, _PHI)):
            chain.append(_next_atom(*chain[-3:], length, at, torsion))
    whole = np.array(chain).reshape(-1, 3, 3)
    n, ca, c = np.moveaxis(whole[:count], 1, 0)
    joined = zip(c, whole[1:, 0], whole[1:, 1])
    oxygen = np.array([_next_atom(far, near, own, _C_O, _C_N_O, 0.0) for own, near, far in joined])
    # Of an L-amino acid with tetrahedral angles.
    beta = ca + _CA_CB * _unit(0.568 * (ca - n) - 0.541 * (c - ca) - 0.583 * np.cross(ca - n, c - ca))
    atoms = np.stack([n, ca, c, oxygen, beta], axis=1)
    # The screw that takes each residue to the next one.
    before, behind = whole[:-1].reshape(-1, 3), whole[1:].reshape(-1, 3)
    turn, _ = Rotation.align_vectors(behind - behind.mean(axis=0), before - before.mean(axis=0))
    step = behind.mean(axis=0) - turn.apply(before.mean(axis=0))
    up = _unit(turn.as_rotvec())
    up *= np.sign(step @ up)
    origin = np.linalg.lstsq(np.eye(3) - turn.as_matrix(), step - up * (step @ up), rcond=None)[0]
    across = _unit(ca[0] - origin - up * ((ca[0] - origin) @ up))
    atoms = (atoms - origin) @ np.stack([across, np.cross(up, across), up]).T
    atoms[..., 2] -= atoms[:, 1, 2].mean()
    return atoms


FRAGMENT = ideal_helix(LENGTH)
# Half a turn about the axis, where there are no atoms.
_GROOVE = FRAGMENT[:, :3] * np.array([-1.0, -1.0, 1.0])


class HelixFragments:
    """Lay ideal helices into a map.

    `level`: density of a backbone in it: scores are in its units.
    """

    def __init__(self, density_map: DensityMap, level: float) -> None:
        self._map, self._level = density_map, level
        self._random = np.random.default_rng(0)

    def atoms(self, poses: Poses) -> np.ndarray:
        """Return N, Cα, C, O and Cβ of the residues of fragments, shape (..., LENGTH, 5, 3)."""
        return _posed(FRAGMENT, poses)

    def score(self, poses: Poses) -> np.ndarray:
        """Return how well fragments fit: the mean density of their atoms, less half of that between the turns."""
        own = (self.density(self.atoms(poses)) @ _WEIGHTS).mean(axis=-1)
        return own - _BETWEEN * self.density(_posed(_GROOVE, poses)).mean(axis=(-2, -1))

    def density(self, points: np.ndarray) -> np.ndarray:
        """Return the density at points (..., 3) in units of the level; 0 beyond the map."""
        values = self._map.value_at(points.reshape(-1, 3))
        return np.nan_to_num(values, nan=0.0).reshape(points.shape[:-1]) / self._level

    def along(self, alphas: np.ndarray) -> tuple[Poses, np.ndarray]:
        """Return the poses along a trace in which fragments fit best, and their scores.

        `alphas` (n, 3): Cα of a chain in Å, however irregular: fragments are laid on its running mean, in its
        direction.
        """
        centres, directions = _axis_of(alphas)
        found = [
            self._best(centres[begin : begin + _AT_ONCE], directions[begin : begin + _AT_ONCE])
            for begin in range(0, len(centres), _AT_ONCE)
        ]
        if not found:
            return Poses(np.zeros((0, 3, 3)), np.zeros((0, 3))), np.zeros(0)
        poses = Poses(*(np.concatenate(parts) for parts in zip(*(each for each, _ in found))))
        return poses, np.concatenate([scores for _, scores in found])

    def improved(
        self, poses: Poses, rounds: int = _ROUNDS, degrees: float = _DEGREES, angstrom: float = _ANGSTROM
    ) -> tuple[Poses, np.ndarray]:
        """Return poses after random moves that made them fit better, ever smaller ones, and their scores."""
        axes, centres = poses.axes.copy(), poses.centres.copy()
        scores = self.score(poses)
        for number in range(rounds):
            part = _FALL**number
            shape = (*scores.shape, _MOVES, 3)
            turns = Rotation.from_rotvec(
                self._random.normal(0, np.radians(degrees) * part, shape).reshape(-1, 3)
            )
            tried = Poses(
                turns.as_matrix().reshape(*shape, 3) @ axes[..., None, :, :],
                centres[..., None, :] + self._random.normal(0, angstrom * part, shape),
            )
            values = self.score(tried)
            best = values.argmax(axis=-1)[..., None]
            better = np.take_along_axis(values, best, -1)[..., 0] > scores
            scores = np.maximum(scores, values.max(axis=-1))
            chosen_axes = np.take_along_axis(tried.axes, best[..., None, None], -3)[..., 0, :, :]
            chosen_centres = np.take_along_axis(tried.centres, best[..., None], -2)[..., 0, :]
            axes = np.where(better[..., None, None], chosen_axes, axes)
            centres = np.where(better[..., None], chosen_centres, centres)
        return Poses(axes, centres), scores

    def _best(self, centres: np.ndarray, directions: np.ndarray) -> tuple[Poses, np.ndarray]:
        """Return the best pose near each of some points (W, 3) on a trace."""
        axes = _turned_about(directions, np.radians(_TURNS))
        slid = centres[:, None] + _SLIDES[:, None] * directions[:, None]
        shape = (len(centres), len(_TURNS), len(_SLIDES))
        first = Poses(
            np.broadcast_to(axes[:, :, None], (*shape, 3, 3)).reshape(len(centres), -1, 3, 3),
            np.broadcast_to(slid[:, None], (*shape, 3)).reshape(len(centres), -1, 3),
        )
        order = np.argsort(-self.score(first), axis=1, kind="stable")[:, :_IMPROVED]
        rows = np.arange(len(centres))
        poses, scores = self.improved(Poses(*(part[rows[:, None], order] for part in first)))
        best = scores.argmax(axis=1)
        return Poses(*(part[rows, best] for part in poses)), scores[rows, best]


def pose_of(atoms: np.ndarray) -> Poses:
    """Return the pose of the fragment that lies best on the atoms (LENGTH, 5, 3) of another."""
    centre, own = atoms.reshape(-1, 3).mean(axis=0), FRAGMENT.reshape(-1, 3).mean(axis=0)
    turn, _ = Rotation.align_vectors(atoms.reshape(-1, 3) - centre, FRAGMENT.reshape(-1, 3) - own)
    axes = turn.as_matrix().T
    return Poses(axes, centre - own @ axes)


def _axis_of(alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points at even distances on the running mean of a trace, and its directions there (unit vectors)."""
    if len(alphas) < 2 * _AVERAGED:
        return np.zeros((0, 3)), np.zeros((0, 3))
    window = np.full(_AVERAGED, 1 / _AVERAGED)
    mean = np.stack([np.convolve(column, window, mode="valid") for column in alphas.T], axis=1)
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(mean, axis=0), axis=1))])
    at = np.arange(0.0, lengths[-1], _STEP)
    points = np.stack([np.interp(at, lengths, column) for column in mean.T], axis=1)
    places = np.arange(len(points))
    first, last = np.maximum(places - _REACH, 0), np.minimum(places + _REACH, len(points) - 1)
    centres = np.array([points[a : b + 1].mean(axis=0) for a, b in zip(first, last)])
    return centres, _unit(points[last] - points[first])


def _turned_about(directions: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return axes (W, A, 3, 3), as rows, whose last has a direction (W, 3), turned about it by angles (A,)."""
    aside = np.where(np.abs(directions[:, :1]) < 0.8, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    x = _unit(np.cross(directions, aside))[:, None]
    y = np.cross(directions[:, None], x)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    up = np.broadcast_to(directions[:, None], (len(directions), len(angles), 3))
    return np.stack([cosine * x + sine * y, cosine * y - sine * x, up], axis=-2)


def _posed(atoms: np.ndarray, poses: Poses) -> np.ndarray:
    return atoms @ poses.axes[..., None, :, :] + poses.centres[..., None, None, :]
