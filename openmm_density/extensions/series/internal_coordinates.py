"""Internal coordinates that a user follows along a path: distances, angles and dihedrals between centres of selections."""

from __future__ import annotations

from dataclasses import dataclass

import mdtraj
import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.units import takes_units
from ...base.wording import one_line

KINDS = {"distance": (2, "Å"), "angle": (3, "°"), "dihedral": (4, "°")}
"""How many centres each has, and its unit."""


@dataclass(frozen=True)
class InternalCoordinate:
    """A distance, angle or dihedral between the centres of heavy atoms that mdtraj selections name.

    Attributes
    ----------
    kind : {"distance", "angle", "dihedral"}
    selections : tuple of str
        Two, three or four, such as ``resid 30 to 59`` (counted from 0) or ``residue 31 to 60 and name CA`` (as in the file).

    Raises
    ------
    InputError
        If the kind is not known, or has not so many centres.
    """

    kind: str
    selections: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                "must be distance, angle or dihedral",
                argument="kind",
                found=f'"{self.kind}"',
                remedy="use one of these",
            )
        object.__setattr__(self, "selections", tuple(self.selections))
        count, _ = KINDS[self.kind]
        if len(self.selections) != count:
            raise InputError(
                f"must be {count} mdtraj selections",
                argument=self.kind,
                found=f"{len(self.selections)} of them",
                remedy="give one for each centre",
            )

    @property
    def unit(self) -> str:
        """Å or °."""
        return KINDS[self.kind][1]

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.kind} {' – '.join(self.selections)}"

    def atoms(self, topology: app.Topology) -> list[np.ndarray]:
        """Return the heavy atoms of each selection.

        Raises
        ------
        InputError
            If a selection is none, or selects nothing.
        """
        converted = mdtraj.Topology.from_openmm(topology)
        heavy = {
            atom.index for atom in converted.atoms if atom.element is None or atom.element.atomic_number > 1
        }
        found = []
        for selection in self.selections:
            try:
                atoms = converted.select(selection)
            except Exception as error:  # mdtraj's parser raises whatever its parts raise
                raise InputError(
                    f"must be mdtraj selections ({one_line(error)})",
                    argument=self.kind,
                    found=f'"{selection}"',
                    remedy="give a selection such as resid 30 to 59",
                ) from None
            chosen = np.array([atom for atom in atoms if int(atom) in heavy], dtype=np.int64)
            if not len(chosen):
                raise InputError(
                    "must select atoms of the model",
                    argument=self.kind,
                    found=f'"{selection}"',
                    remedy="give a selection such as resid 30 to 59, counted from 0",
                )
            found.append(chosen)
        return found

    def check(self, topology: app.Topology) -> None:
        """Raise InputError where a model has not what is selected."""
        self.atoms(topology)

    @takes_units("frames")
    def values(self, topology: app.Topology, frames: np.ndarray) -> np.ndarray:
        """Return the coordinate in each frame.

        Parameters
        ----------
        topology : openmm.app.Topology
        frames : np.ndarray, shape (F, N, 3)
            Å.

        Returns
        -------
        np.ndarray, shape (F,)
            Å or degrees; dihedrals go on beyond 180° where the path does.
        """
        centres = [frames[:, atoms].mean(axis=1) for atoms in self.atoms(topology)]
        if self.kind == "distance":
            return np.linalg.norm(centres[1] - centres[0], axis=1)
        if self.kind == "angle":
            a, b = centres[0] - centres[1], centres[2] - centres[1]
            cosine = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
            return np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
        return np.degrees(np.unwrap(_dihedrals(*centres)))


def _dihedrals(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return the angles (radians) about b–c, with IUPAC's sign."""
    first, axis, last = b - a, c - b, d - c
    m, n = np.cross(first, axis), np.cross(axis, last)
    sine = (first * np.cross(axis, last)).sum(axis=1) * np.linalg.norm(axis, axis=1)
    return np.arctan2(sine, (m * n).sum(axis=1))
