"""How flat whole conjugated systems of ligands are: a haem can bend although each of its small planes stays flat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError
from ..base.units import positions_in_angstrom
from ..base.wording import residue_label
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.planes import Plane, PlaneSet
from ..models.chemistry.residues import residue_kind

FEWEST_SHARED = 3
"""Atoms that two planes have in common where they are one. Rings on either side of a single bond share two, and may be turned."""


@dataclass(frozen=True)
class FlatLigand:
    """A conjugated system of a ligand, and how far from a plane it is."""

    residue: str  # As ``A HEM 201``
    n_atoms: int  # Its non-hydrogen atoms
    rms: float  # `rms`, `worst` of the distances in Å of these atoms from their best plane.
    worst: float
    worst_atom: str  # The name of the atom that is farthest from it

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain strings and numbers."""
        return asdict(self)


def flat_ligands(topology: app.Topology, planes: PlaneSet, positions: Any) -> list[FlatLigand]:
    """Measure how flat the conjugated systems of all ligands are.

    The planes of a ligand that share three atoms or more, as the pyrroles and methine bridges of a haem do, are one system.
    `positions` (N, 3) in Å without a unit.
    """
    positions = positions_in_angstrom(positions, topology.getNumAtoms())
    atoms = list(topology.atoms())
    return [
        _flat_ligand([atoms[index] for index in members], positions[members])
        for members in conjugated_systems(topology, planes)
    ]


def with_conjugated_systems(topology: app.Topology, planes: PlaneSet) -> PlaneSet:
    """Return planes with the conjugated systems of ligands beside them."""
    atoms = list(topology.atoms())
    systems = [
        Plane(
            "ligand",
            atoms[members[0]].residue.name,
            residue_label(atoms[members[0]].residue),
            tuple(members),
            0.02,
        )
        for members in conjugated_systems(topology, planes)
    ]
    return PlaneSet((*planes.planes, *systems))


def conjugated_systems(topology: app.Topology, planes: PlaneSet) -> list[list[int]]:
    """Return the heavy atoms of each conjugated system of the ligands, in the order of `flat_ligands`."""
    atoms = list(topology.atoms())
    by_residue: dict[app.topology.Residue, list[set[int]]] = {}
    for plane in planes.planes:
        residues = {atoms[i].residue for i in plane.atoms}
        heavy = {i for i in plane.atoms if not is_hydrogen(atoms[i])}
        if len(residues) == 1 and len(heavy) > FEWEST_SHARED and residue_kind(*residues) == "other":
            by_residue.setdefault(residues.pop(), []).append(heavy)
    return [
        members
        for residue in sorted(by_residue, key=lambda residue: residue.index)
        for members in sorted(_joined(by_residue[residue]), key=lambda each: (-len(each), each))
    ]


def _flat_ligand(atoms: list[app.topology.Atom], positions: np.ndarray) -> FlatLigand:
    """Return how flat some atoms of one residue are."""
    residue = residue_label(atoms[0].residue)
    distances = np.abs(_heights(positions))
    if not np.isfinite(distances).all():
        raise InputError(
            f"must be finite, but that of an atom in {residue} is not",
            argument="positions",
            remedy="give finite ones",
        )
    worst = int(np.argmax(distances))
    rms = float(np.sqrt(np.mean(distances**2)))
    return FlatLigand(residue, len(atoms), rms, float(distances[worst]), atoms[worst].name)


def _joined(planes: list[set[int]]) -> Iterator[list[int]]:
    """Yield the atoms of planes that share enough of them to be one system."""
    left = [set(plane) for plane in planes]
    while left:
        whole = [left.pop()]
        for member in whole:  # grows while it is gone through
            near = [plane for plane in left if len(plane & member) >= FEWEST_SHARED]
            left = [plane for plane in left if plane not in near]
            whole += near
        yield sorted(set().union(*whole))


def _heights(positions: np.ndarray) -> np.ndarray:
    """Return the distances from the best plane."""
    centred = positions - positions.mean(axis=0)
    if not np.isfinite(centred).all():
        return np.full(len(centred), np.nan)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][-1]
