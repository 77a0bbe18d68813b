"""`SymmetryOperators`: how copies in an assembly or a crystal follow from one unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gemmi
import numpy as np
from numpy.typing import ArrayLike

from ..base.errors import InputError
from ..base.units import in_unit, takes_units

SPECIAL_POSITION = 0.8
"""Å: an atom closer than this to its own copy lies on a symmetry element, and both are one atom."""

# The deviation of a rotation from an orthogonal matrix that is allowed: cells are written with three decimals.
_ORTHOGONAL = 1e-3
# The largest sum of occupancies of copies that are one atom, with rounding.
_ONE_ATOM = 1.001
# Operators that differ by less, in rotation and in Å, are the same.
_SAME_ROTATION, _SAME_TRANSLATION = 1e-4, 1e-3


@takes_units("translations")
@dataclass(frozen=True, eq=False)
class SymmetryOperators:
    """The operators x′ = R x + t that generate an assembly, or the content of a crystal's cell, from one unit.

    The identity is the first: copy 0 is the unit. Make it with `from_matrices` or `crystal`.

    Attributes
    ----------
    rotations : np.ndarray, shape (n, 3, 3)
        R of each operator.
    translations : np.ndarray, shape (n, 3)
        t of each, in Å.
    cell : tuple of float or None
        a, b, c (Å), α, β, γ (°) of a crystal, whose lattice repeats all copies; None for an assembly.
    space_group : str
        Of the crystal, as gemmi's extended Hermann-Mauguin symbol; empty for an assembly.
    """

    rotations: np.ndarray
    translations: np.ndarray
    cell: tuple[float, float, float, float, float, float] | None = None
    space_group: str = ""

    @classmethod
    @takes_units("translations")
    def from_matrices(cls, rotations: ArrayLike, translations: Any) -> SymmetryOperators:
        """Return operators from matrices.

        Parameters
        ----------
        rotations : array_like, shape (n, 3, 3)
        translations : Quantity or array_like, shape (n, 3)
            In Å without a unit.

        Returns
        -------
        SymmetryOperators
            The identity comes first, and is added if missing.

        Raises
        ------
        InputError
            The shapes do not match, a number is not finite, a matrix is not orthogonal, or two operators are the same.
        """
        turned = np.array(rotations, dtype=np.float64)
        moved = np.array(translations, dtype=np.float64)
        n = len(turned) if turned.ndim else 0
        if turned.shape != (n, 3, 3) or moved.shape != (n, 3):
            raise InputError(
                "must be n matrices of 3 by 3, and as many translations of 3 numbers",
                argument="rotations",
                found=f"{turned.shape} and {moved.shape}",
                remedy="give R and t of each operator",
            )
        _check_orthogonal(turned, moved)
        identity = np.array([_same(R, t, np.eye(3), np.zeros(3)) for R, t in zip(turned, moved)], dtype=bool)
        turned = np.concatenate([np.eye(3)[None], turned[~identity]])
        moved = np.concatenate([np.zeros((1, 3)), moved[~identity]])
        if identity.sum() > 1:
            _refuse_twice("the identity")
        for i in range(1, len(turned)):
            if any(_same(turned[i], moved[i], turned[j], moved[j]) for j in range(1, i)):
                _refuse_twice(f"rotation {np.round(turned[i], 4).tolist()}")
        return cls(turned, moved)

    @classmethod
    def crystal(cls, cell: Any, space_group: Any) -> SymmetryOperators:
        """Return all operators of a crystal's space group, centring included.

        Lattice translations are not among them: the periodic map of the cell provides them.

        Parameters
        ----------
        cell : gemmi.UnitCell or sequence of float or Quantity
            a, b, c in Å, α, β, γ in °.
        space_group : gemmi.SpaceGroup or str
            In any setting and with any origin choice that gemmi knows, such as ``"P 1 21 1"``, ``"R 3 :H"``.

        Returns
        -------
        SymmetryOperators
            In the Cartesian frame of PDB files.

        Raises
        ------
        InputError
            The space group is not known, or the cell does not have its symmetry.
        """
        if not isinstance(cell, gemmi.UnitCell):
            cell = gemmi.UnitCell(*in_unit(cell[:3], "Å", "cell"), *in_unit(cell[3:], "°", "cell"))
        group = space_group
        if not isinstance(group, gemmi.SpaceGroup):
            group = gemmi.find_spacegroup_by_name(str(space_group), cell.alpha, cell.gamma)
        if group is None:
            raise InputError(
                "is not known",
                argument="space_group",
                found=f'"{space_group}"',
                remedy='give its Hermann-Mauguin symbol, such as "P 21 21 21"',
            )
        to_cartesian = np.array(cell.orth.mat.tolist())
        to_fractional = np.linalg.inv(to_cartesian)
        operations = sorted(group.operations(), key=lambda op: op.triplet() != "x,y,z")
        turned, moved = [], []
        for operation in operations:
            turned.append(to_cartesian @ (np.array(operation.rot) / operation.DEN) @ to_fractional)
            moved.append(to_cartesian @ (np.array(operation.tran) / operation.DEN))
        rotations = np.array(turned)
        if _off_orthogonal(rotations).max() > _ORTHOGONAL:
            raise InputError(
                f"does not have the symmetry of space group {group.xhm()}",
                argument="cell",
                found=", ".join(f"{value:g}" for value in cell.parameters),
                remedy="give the cell and the space group of one file, in one setting",
            )
        return cls(rotations, np.array(moved), tuple(cell.parameters), group.xhm())

    def __len__(self) -> int:
        return len(self.rotations)

    @takes_units("positions")
    def expanded(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions of every copy of the unit (N, 3), shape (n, N, 3), in Å."""
        return np.einsum("gij,nj->gni", self.rotations, positions) + self.translations[:, None]

    def moved(self, displacement: ArrayLike) -> SymmetryOperators:
        """Return the same operators in a frame displaced by (3,) in Å."""
        d = np.asarray(displacement, dtype=np.float64)
        moved = self.translations + d - self.rotations @ d
        return SymmetryOperators(self.rotations, moved, self.cell, self.space_group)

    @takes_units("positions")
    def multiplicities(self, positions: np.ndarray) -> np.ndarray:
        """Return how many copies of each atom coincide with it (`SPECIAL_POSITION`), itself included.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.

        Returns
        -------
        np.ndarray of int, shape (N,)
        """
        away = self.nearest_images(self.expanded(positions) - positions)
        return (np.linalg.norm(away, axis=2) < SPECIAL_POSITION).sum(axis=0)

    @takes_units("positions")
    def site_weights(self, positions: np.ndarray, occupancies: np.ndarray | None = None) -> np.ndarray | None:
        """Return the weight of each atom in every copy, shape (N,); None where no atom is on a symmetry element.

        An atom left in place by m operators has 1/m: its copies are one atom. Files of crystals express this by
        occupancies, which are not divided again where m of them add up to one atom at most.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Where the atoms start, in Å.
        occupancies : np.ndarray, shape (N,), optional
            Needed if the atoms' densities are multiplied by them.
        """
        multiplicities = self.multiplicities(positions)
        if occupancies is not None:
            multiplicities = np.where(multiplicities * occupancies <= _ONE_ATOM, 1, multiplicities)
        return None if np.all(multiplicities == 1) else 1.0 / multiplicities

    def nearest_images(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors (…, 3) in Å reduced by lattice vectors; unchanged where there is no crystal."""
        if self.cell is None:
            return vectors
        lattice = np.array(gemmi.UnitCell(*self.cell).orth.mat.tolist())
        return vectors - np.round(vectors @ np.linalg.inv(lattice).T) @ lattice.T

    def is_group(self) -> bool:
        """Return whether the operators form a group, up to lattice vectors: those of a piece of a helix do not."""
        for R, t in zip(self.rotations, self.translations):
            products = R @ self.rotations
            shifts = self.translations @ R.T + t
            for P, s in zip(products, shifts):
                apart = np.abs(self.rotations - P).max(axis=(1, 2)) < 10 * _ORTHOGONAL
                off = np.linalg.norm(self.nearest_images(self.translations - s), axis=1)
                if not np.any(apart & (off < 0.1)):
                    return False
        return True


def _off_orthogonal(rotations: np.ndarray) -> np.ndarray:
    return np.abs(rotations @ rotations.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))


def _check_orthogonal(rotations: np.ndarray, translations: np.ndarray) -> None:
    if not (np.isfinite(rotations).all() and np.isfinite(translations).all()):
        raise InputError(
            "must hold finite numbers", argument="rotations", remedy="give R and t of each operator"
        )
    off = _off_orthogonal(rotations)
    if len(off) and off.max() > _ORTHOGONAL:
        worst = int(off.argmax())
        raise InputError(
            f"must be orthogonal matrices, and number {worst} is not",
            argument="rotations",
            found=np.round(rotations[worst], 4).tolist(),
            remedy="give rotations in Cartesian coordinates, not in fractions of a cell",
        )


def _same(R: np.ndarray, t: np.ndarray, S: np.ndarray, s: np.ndarray) -> bool:
    return bool(np.abs(R - S).max() < _SAME_ROTATION and np.abs(t - s).max() < _SAME_TRANSLATION)


def _refuse_twice(what: str) -> None:
    raise InputError(
        f"hold {what} twice with one translation", argument="rotations", remedy="give each operator once"
    )
