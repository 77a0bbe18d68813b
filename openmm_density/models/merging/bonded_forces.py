"""Merge forces between listed particles: their terms are renumbered, one System's after the other's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openmm

from ...base.errors import InputError
from .terms import call_for_each, listed_terms, plain

# Kinds of terms by class: their name in its methods, and how many particles come first in each.
LISTED = {
    "HarmonicBondForce": ("Bond", 2),
    "HarmonicAngleForce": ("Angle", 3),
    "PeriodicTorsionForce": ("Torsion", 4),
    "RBTorsionForce": ("Torsion", 4),
    "CustomBondForce": ("Bond", 2),
    "CustomAngleForce": ("Angle", 3),
    "CustomTorsionForce": ("Torsion", 4),
}
TERMS: dict[str, list[tuple[str, int, int]]] = {
    **{name: [(*listed, 0)] for name, listed in LISTED.items()},
    "CMAPTorsionForce": [("Torsion", 8, 1)],
    "NonbondedForce": [("Particle", 0, 0), ("Exception", 2, 0)],
    "GBSAOBCForce": [("Particle", 0, 0)],
    "CustomGBForce": [("Particle", 0, 0), ("Exclusion", 2, 0)],
    "CustomNonbondedForce": [("Particle", 0, 0), ("Exclusion", 2, 0)],
}
"""The same of all forces with terms that can be renumbered, and which column has the first particle."""
_ABSOLUTE = re.compile(r"\b[xyz]\d+\b")
# Energies that do not change when the copy of a molecule is moved.
_DIFFERENCE = re.compile(r"\(([xyz])\d+ - \1\d+\)")
_COORDINATE = re.compile(r"\b([xyz])\b")
# The last of these parameters of a particle are the displacement of its copy.
_MOVED = ("moved_x", "moved_y", "moved_z")


class TermColumns:
    """Terms as columns, with those of their particles from one on: these are renumbered, and all terms are added at once."""

    def __init__(self, force: openmm.Force, kind: str, n_particles: int, first_column: int) -> None:
        rows = listed_terms(force, kind)
        columns = [list(column) for column in zip(*rows)]
        end = first_column + n_particles
        self._kind, self._numbers = kind, list(range(len(rows)))
        self.before, self._after = columns[:first_column], columns[end:]
        self._particles = [np.array(column, dtype=np.int64) for column in columns[first_column:end]]

    def add_to(self, merged: openmm.Force, first: int, before: Sequence[list[Any]] | None = None) -> None:
        """Add them with a number added to that of each particle; `before`: other values of the columns before these."""
        columns = self.before if before is None else before
        if self._numbers:
            call_for_each(merged, f"add{self._kind}", *columns, *self._moved(first), *self._after)

    def set_in(self, merged: openmm.Force, first: int) -> None:
        """Put them in place of those that are there."""
        columns = *self.before, *self._moved(first), *self._after
        if self._numbers:
            call_for_each(merged, f"set{self._kind}Parameters", self._numbers, *columns)

    def add_copies(
        self, made: openmm.Force, rows_of: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """Add copies: `rows_of` tells from the particles of each, int (T, n), which (C,) there are and what is added to these."""
        if self._numbers:
            particles = np.array(self._particles or [self._numbers])
            rows, shifts = rows_of(particles.T)
            before, after = (
                [_taken(column, rows) for column in columns] for columns in (self.before, self._after)
            )
            moved = [column[rows] + shifts for column in self._particles]
            call_for_each(made, f"add{self._kind}", *before, *moved, *after)

    def _moved(self, first: int) -> list[np.ndarray]:
        return [column + first for column in self._particles]


def _taken(column: list[Any], rows: np.ndarray) -> list[Any]:
    if isinstance(column[0], (int, float)):
        return np.array(column)[rows].tolist()
    return [column[row] for row in rows.tolist()]


def term_columns(force: openmm.Force) -> list[TermColumns]:
    """Return the terms of a force, by their kinds."""
    return [TermColumns(force, *kind) for kind in TERMS[type(force).__name__]]


class ListedTerms:
    """Forces whose terms have two to four particles, and parameters."""

    def __init__(self, force: openmm.Force) -> None:
        (self._terms,) = term_columns(force)

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """Add the terms of a System whose first particle has this number; optionally they replace existing ones."""
        (self._terms.set_in if replace else self._terms.add_to)(merged, first)


class CompoundTerms:
    """`CustomCompoundBondForce`."""

    def __init__(self, force: openmm.CustomCompoundBondForce) -> None:
        _refuse_absolute(force)
        self._terms = [plain(force.getBondParameters(i)) for i in range(force.getNumBonds())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `ListedTerms.add_to`."""
        for number, (particles, parameters) in enumerate(self._terms):
            moved = [particle + first for particle in particles]
            if replace:
                merged.setBondParameters(number, moved, parameters)
            else:
                merged.addBond(moved, parameters)


class CentroidTerms:
    """`CustomCentroidBondForce`: bonds between groups of particles."""

    def __init__(self, force: openmm.CustomCentroidBondForce) -> None:
        _refuse_absolute(force)
        self._groups = [plain(force.getGroupParameters(i)) for i in range(force.getNumGroups())]
        self._terms = [plain(force.getBondParameters(i)) for i in range(force.getNumBonds())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `ListedTerms.add_to`."""
        first_group = 0 if replace else merged.getNumGroups()
        for number, (particles, weights) in enumerate(self._groups):
            moved = [particle + first for particle in particles]
            if replace:
                merged.setGroupParameters(number, moved, weights)
            else:
                merged.addGroup(moved, weights)
        if not replace:
            for groups, parameters in self._terms:
                merged.addBond([group + first_group for group in groups], parameters)


class TorsionMapTerms:
    """`CMAPTorsionForce`: pairs of torsions, each with one of the force's maps; equal maps are shared."""

    def __init__(self, force: openmm.CMAPTorsionForce) -> None:
        self._maps = [plain(force.getMapParameters(i)) for i in range(force.getNumMaps())]
        (self._terms,) = term_columns(force)

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `ListedTerms.add_to`."""
        if replace:
            self._terms.set_in(merged, first)
            return
        there = {
            _fingerprint(*plain(merged.getMapParameters(i))): i for i in reversed(range(merged.getNumMaps()))
        }
        numbers = []
        for size, energies in self._maps:
            key = _fingerprint(size, energies)
            if key not in there:
                there[key] = merged.addMap(size, energies)
            numbers.append(there[key])
        used = [[numbers[number] for number in column] for column in self._terms.before]
        self._terms.add_to(merged, first, used)


class ExternalTerms:
    """`CustomExternalForce`: its energy depends on absolute positions, so it gets the displacement of each copy."""

    def __init__(self, force: openmm.CustomExternalForce) -> None:
        self._terms = [plain(force.getParticleParameters(i)) for i in range(force.getNumParticles())]

    def add_to(self, merged: openmm.Force, first: int, displacement: np.ndarray, replace: bool) -> None:
        """See `ListedTerms.add_to`."""
        if replace:
            merged.setEnergyFunction(_COORDINATE.sub(r"(\1-moved_\1)", merged.getEnergyFunction()))
            for name in _MOVED:
                merged.addPerParticleParameter(name)
        for number, (particle, parameters) in enumerate(self._terms):
            values = [*parameters, *displacement.tolist()]
            if replace:
                merged.setParticleParameters(number, particle + first, values)
            else:
                merged.addParticle(particle + first, values)


def _fingerprint(size: int, energies: Sequence[float]) -> tuple[int, bytes]:
    return size, np.asarray(energies, dtype=np.float64).tobytes()


def _refuse_absolute(force: Any) -> None:
    found = _ABSOLUTE.search(_DIFFERENCE.sub("", force.getEnergyFunction()))
    if found:
        raise InputError(
            f"{type(force).__name__} with coordinates in its energy cannot be merged",
            found=f'"{found[0]}"',
            remedy="write the energy in distances, angles and torsions",
        )


BONDED = {
    **dict.fromkeys(LISTED, ListedTerms),
    "CustomCompoundBondForce": CompoundTerms,
    "CustomCentroidBondForce": CentroidTerms,
    "CMAPTorsionForce": TorsionMapTerms,
    "CustomExternalForce": ExternalTerms,
}
