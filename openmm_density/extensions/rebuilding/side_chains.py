"""Side chains that turn about their bonds, and the torsions that a search tries for each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from openmm import app

from ...models.chemistry.backbone import BACKBONE
from ...models.chemistry.side_chains import (
    LARGEST_DEVIATION,
    PLANAR_ENDS,
    SIDE_CHAINS,
    STAGGERED,
    SYMMETRIC_ENDS,
)
from ...models.chemistry.torsions import torsion_angles
from .molecule import Molecule

# Degrees. About a bond to a planar group torsions take any value, and that of arginine three.
_GUANIDINIUM = (-90.0, 90.0, 180.0)
_FULL_TURN = tuple(float(angle) for angle in range(-180, 180, 30))
_HALF_TURN = _FULL_TURN[3:9]
# An axis times this is the matrix, as nine numbers, that makes of a row its cross product with it: v @ M = axis × v.
_ROWS_CROSSED = np.array(
    [[0, 0, 0, 0, 0, 1, 0, -1, 0], [0, 0, -1, 0, 0, 0, 1, 0, 0], [0, 1, 0, -1, 0, 0, 0, 0, 0.0]]
)


@dataclass(frozen=True)
class SideChain:
    """The atoms of a side chain, and the torsions about which they turn."""

    residue: int  # Index of its residue
    name: str  # Of the residue
    # int (n,), N, CA and CB, followed by all atoms that χ1 turns; of a side chain that does not turn its heavy atoms
    atoms: np.ndarray
    # int, indices into ``atoms`` of those that count in an energy: heavy atoms that turn, and Cβ where the side chain
    # is moved as a whole
    scored: np.ndarray
    # For each χ its four atoms, and those that it turns, as indices into ``atoms``
    torsions: list[tuple[tuple[int, ...], np.ndarray]]
    grid: np.ndarray  # (K, number of torsions), the combinations of torsions that are tried, in degrees

    @property
    def scored_atoms(self) -> np.ndarray:
        """Indices, in the whole model, of the atoms that count in an energy."""
        return self.atoms[self.scored]

    def conformations(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions (…, K, n, 3) of ``atoms`` with the torsions of each row of ``grid``, by those (…, n, 3) in one."""
        n_models = int(np.prod(positions.shape[:-2]))
        conformations = np.repeat(positions.reshape(n_models, *positions.shape[-2:]), len(self.grid), axis=0)
        grid = np.tile(self.grid, (n_models, 1))
        for (quadruple, moved), angles in zip(self.torsions, grid.T):
            set_torsion(conformations, quadruple, moved, angles)
        return conformations.reshape(*positions.shape[:-2], len(self.grid), *positions.shape[-2:])

    def torsion_angles(self, positions: np.ndarray) -> np.ndarray:
        """Return χ1, χ2 … in degrees, by the positions (N, 3) of the whole model."""
        quadruples = np.array([self.atoms[list(quadruple)] for quadruple, _ in self.torsions], dtype=np.int64)
        return np.degrees(torsion_angles(positions, quadruples.reshape(-1, 4)))

    def is_other_rotamer(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether a torsion differs by more than torsions of one rotamer do, by positions (N, 3) of the whole model."""
        apart = self.torsion_angles(after) - self.torsion_angles(before)
        period = np.full(len(apart), 360.0)
        if self.name in SYMMETRIC_ENDS:
            period[-1:] = 180.0
        apart = np.abs((apart + period / 2) % period - period / 2)
        return bool((apart > np.degrees(LARGEST_DEVIATION)).any())


def turning_side_chain(
    molecule: Molecule, residue: app.topology.Residue, is_fitted: np.ndarray
) -> SideChain | None:
    """Return the side chain of a residue as it turns about its bonds.

    `is_fitted` bool (N,). Returns None for residues without torsions, with atoms missing or not fitted, or bonded to
    another residue.
    """
    index = {atom.name: atom.index for atom in residue.atoms()}
    path, values = _path_and_torsions(residue.name)
    if not path or any(name not in index for name in path):
        return None
    own = set(index.values())
    torsions = []
    for first in range(len(values)):
        quadruple = tuple(index[name] for name in path[first : first + 4])
        moved = molecule.beyond_bond(quadruple[1], quadruple[2])
        if not moved <= own:
            return None
        torsions.append((quadruple, sorted(moved)))
    atoms = [index[name] for name in path[:3]] + torsions[0][1]
    scored = [local for local in range(3, len(atoms)) if molecule.is_heavy[atoms[local]]]
    if not all(is_fitted[atoms[local]] for local in scored):
        return None
    local_of = {atom: local for local, atom in enumerate(atoms)}
    return SideChain(
        residue.index,
        residue.name,
        np.array(atoms, dtype=np.int64),
        np.array(scored, dtype=np.int64),
        [
            (tuple(local_of[atom] for atom in quadruple), np.array([local_of[atom] for atom in moved]))
            for quadruple, moved in torsions
        ],
        np.array(list(itertools.product(*values))),
    )


def whole_side_chain(
    residue: app.topology.Residue, turning: SideChain | None, is_fitted: np.ndarray
) -> SideChain:
    """Return a side chain with Cβ among the atoms that count, for a search that moves it as a whole.

    `is_fitted` bool (N,).
    """
    if turning is not None:
        return replace(turning, scored=np.concatenate([[2], turning.scored]))
    backbone = (*BACKBONE, "OXT")
    atoms = np.array(
        [a.index for a in residue.atoms() if a.name not in backbone and is_fitted[a.index]], dtype=np.int64
    )
    return SideChain(residue.index, residue.name, atoms, np.arange(len(atoms)), [], np.zeros((1, 0)))


def set_torsion(
    conformations: np.ndarray, quadruple: tuple[int, ...], moved: np.ndarray, degrees: np.ndarray
) -> None:
    """Set a torsion of each of K conformations (K, n, 3) to an angle each, in place.

    `conformations` (K, n, 3); `degrees` (K,).
    """
    a, b, c, d = (conformations[:, atom] for atom in quadruple)
    axis = c - b
    axis = axis / np.sqrt((axis * axis).sum(axis=1, keepdims=True))
    first, second = _cross(b - a, axis), _cross(axis, d - c)
    current = np.arctan2((_cross(first, second) * axis).sum(axis=1), (first * second).sum(axis=1))
    turn_torsion(conformations, quadruple, moved, np.radians(degrees) - current)


def turn_torsion(
    conformations: np.ndarray, quadruple: tuple[int, ...], moved: np.ndarray, angles: np.ndarray
) -> None:
    """Turn what is beyond a torsion's bond in each of K conformations (K, n, 3) by an angle each, in place.

    `angles` (K,) in radians.
    """
    at = conformations[:, quadruple[2]]
    axis = at - conformations[:, quadruple[1]]
    axis = axis / np.sqrt((axis * axis).sum(axis=1, keepdims=True))
    cosine, sine = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    # Rodrigues' rotation formula, of rows.
    along = axis[:, :, None] * axis[:, None]
    rotations = cosine * np.eye(3) + sine * (axis @ _ROWS_CROSSED).reshape(-1, 3, 3) + (1 - cosine) * along
    at = at[:, None]
    conformations[:, moved] = at + (conformations[:, moved] - at) @ rotations


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross products of vectors (…, 3): of few, in a third of NumPy's time."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return np.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), axis=-1)


def _path_and_torsions(name: str) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Return the atoms along a side chain, and the values in degrees of its χ1, χ2 …; empty for other residues."""
    path = SIDE_CHAINS.get(name, ())
    values = (STAGGERED,) * (len(path) - 3)
    if name in PLANAR_ENDS:
        turns = _GUANIDINIUM if name == "ARG" else _HALF_TURN if name in SYMMETRIC_ENDS else _FULL_TURN
        path, values = (*path, PLANAR_ENDS[name]), (*values, turns)
    return path, values
