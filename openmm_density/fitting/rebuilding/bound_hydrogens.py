"""Hydrogens that follow the heavy atoms that they are bound to."""

from __future__ import annotations

import numpy as np

from ...chemistry.elements import is_hydrogen
from .molecule import Molecule
from .register_search import axes_of_planes


class BoundHydrogens:
    """Where hydrogens are, by the atoms that they are bound to and the neighbours of these.

    Parameters
    ----------
    molecule : Molecule
    moving : np.ndarray of int
        The heavy atoms whose hydrogens follow.
    """

    def __init__(self, molecule: Molecule, moving: np.ndarray) -> None:
        def neighbours(atom: int, hydrogens: bool) -> list[int]:
            return [k for k in molecule.bonded.get(atom, ()) if is_hydrogen(molecule.atoms[k]) == hydrogens]

        frames = []
        for parent in moving.tolist():
            hydrogens, first = neighbours(parent, True), sorted(neighbours(parent, False))
            if not hydrogens or not first:
                continue
            second = first[1:] or [k for k in sorted(neighbours(first[0], False)) if k != parent]
            if second:
                frames += [(hydrogen, parent, first[0], second[0]) for hydrogen in hydrogens]
        self._frames = np.array(frames, dtype=np.int64).reshape(-1, 4)

    def carried(self, before: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return positions with the hydrogens where they were before, seen from the atoms that they are bound to."""
        hydrogens, *frame = self._frames.T
        local = np.einsum("nij,nj->ni", axes_of_planes(before, *frame), before[hydrogens] - before[frame[0]])
        result = positions.copy()
        result[hydrogens] = positions[frame[0]] + np.einsum(
            "nij,ni->nj", axes_of_planes(positions, *frame), local
        )
        return result
