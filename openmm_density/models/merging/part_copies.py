"""Copies of parts of a System that no term joins, in any order: of like chains a force field describes one."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import openmm

from .bonded_forces import LISTED
from .terms import bare, call_for_each, constraints_of, masses_of

# Kinds of terms by class: their name in its methods, and in which columns their particles are.
_TERMS: dict[str, list[tuple[str, slice]]] = {
    **{name: [(kind, slice(count))] for name, (kind, count) in LISTED.items()},
    "CMAPTorsionForce": [("Torsion", slice(1, 9))],
    "NonbondedForce": [("Particle", slice(0)), ("Exception", slice(2))],
    "GBSAOBCForce": [("Particle", slice(0))],
    "CustomGBForce": [("Particle", slice(0)), ("Exclusion", slice(2))],
    "CustomNonbondedForce": [("Particle", slice(0)), ("Exclusion", slice(2))],
}
# Their elements in its XML.
_LISTS = {"Bonds", "Angles", "Torsions", "Particles", "Exceptions", "Exclusions"}


class _Places:
    """Where the copies of parts come: `sizes` (K,) of the parts in their System, `kinds` (P,) of the copies in theirs."""

    def __init__(self, sizes: np.ndarray, kinds: np.ndarray) -> None:
        self._kinds, self._ends = kinds, np.cumsum(sizes)
        copied = sizes[kinds]
        self._shifts = np.cumsum(copied) - copied - (self._ends - sizes)[kinds]

    def rows(self, particles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of all copies, int (C,), and what is added to their particles. `particles`: one of each row."""
        kind_of = np.searchsorted(self._ends, particles, side="right")
        order = np.argsort(kind_of, kind="stable")
        edges = np.searchsorted(kind_of[order], np.arange(len(self._ends) + 1))
        counts = np.diff(edges)[self._kinds]
        begins = edges[self._kinds] - (np.cumsum(counts) - counts)
        return order[np.repeat(begins, counts) + np.arange(counts.sum())], np.repeat(self._shifts, counts)


def copies_of_parts(system: openmm.System, sizes: np.ndarray, kinds: np.ndarray) -> openmm.System | None:
    """Return a System of copies of the parts of another one, which have sizes (K,), in the order of `kinds` (P,) from 0 on.

    None where the other one has virtual sites or forces that cannot be copied.
    """
    forces, count = system.getForces(), system.getNumParticles()
    if not all(map(_can_be_copied, forces)) or any(map(system.isVirtualSite, range(count))):
        return None
    places, made = _Places(sizes, kinds), openmm.System()
    rows, _ = places.rows(np.arange(count))
    call_for_each(made, "addParticle", masses_of(system)[rows])
    pairs, lengths = constraints_of(system)
    rows, shifts = places.rows(pairs[:, 0])
    call_for_each(made, "addConstraint", pairs[rows] + shifts[:, None], lengths[rows])
    for force in forces:
        made.addForce(_copied(force, places))
    return made


def _can_be_copied(force: openmm.Force) -> bool:
    special = "InteractionGroups", "ParticleParameterOffsets", "ExceptionParameterOffsets"
    has_special = any(getattr(force, f"getNum{name}", int)() for name in special)
    return type(force).__name__ in _TERMS and not has_special


def _copied(force: openmm.Force, places: _Places) -> openmm.Force:
    made = _without_terms(force)
    for kind, of_particles in _TERMS[type(force).__name__]:
        suffix = "Particles" if kind == "Exclusion" else "Parameters"
        count = getattr(force, f"getNum{kind}s")()
        if not count:
            continue
        found = list(map(bare(force, f"get{kind}{suffix}"), range(count)))
        # What a particle of a custom force has is one argument.
        is_one = kind == "Particle" and isinstance(force, (openmm.CustomGBForce, openmm.CustomNonbondedForce))
        columns = [found] if is_one else [list(column) for column in zip(*found)]
        particles = [np.array(column) for column in columns[of_particles]]
        rows, shifts = places.rows(particles[0] if particles else np.arange(count))
        columns = [_taken(column, rows) for column in columns]
        columns[of_particles] = [(column[rows] + shifts).tolist() for column in particles]
        call_for_each(made, f"add{kind}", *columns)
    return made


def _taken(column: list[Any], rows: np.ndarray) -> list[Any]:
    if isinstance(column[0], (int, float)):
        return np.array(column)[rows].tolist()
    return [column[row] for row in rows.tolist()]


def _without_terms(force: openmm.Force) -> openmm.Force:
    """Return a force with the same settings and no terms."""
    root = ElementTree.fromstring(openmm.XmlSerializer.serialize(force))
    for child in root:
        if child.tag in _LISTS:
            child.clear()
    return openmm.XmlSerializer.deserialize(ElementTree.tostring(root, encoding="unicode"))
