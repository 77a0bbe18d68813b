"""Copies of parts of a System that no term joins, in any order: of like chains a force field describes one."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import openmm

from .bonded_forces import TERMS, term_columns
from .terms import call_for_each, constraints_of, masses_of, without_terms

_SPECIAL = "InteractionGroups", "ParticleParameterOffsets", "ExceptionParameterOffsets"


class _JoinedParts(Exception):
    """A term has particles of several parts."""


class _Places:
    """Where the copies of parts come: `sizes` (K,) of the parts in their System, `kinds` (P,) of the copies in theirs."""

    def __init__(self, sizes: np.ndarray, kinds: np.ndarray) -> None:
        self._kinds, self._ends = kinds, np.cumsum(sizes)
        copied = sizes[kinds]
        self._shifts = np.cumsum(copied) - copied - (self._ends - sizes)[kinds]

    def rows(self, particles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of all copies, int (C,), and what is added to their particles. `particles` (T, n): those of each."""
        kind_of, *others = np.searchsorted(self._ends, particles, side="right").T
        if any((each != kind_of).any() for each in others):
            raise _JoinedParts
        order = np.argsort(kind_of, kind="stable")
        edges = np.searchsorted(kind_of[order], np.arange(len(self._ends) + 1))
        counts = np.diff(edges)[self._kinds]
        begins = edges[self._kinds] - (np.cumsum(counts) - counts)
        return order[np.repeat(begins, counts) + np.arange(counts.sum())], np.repeat(self._shifts, counts)


def copies_of_parts(system: openmm.System, sizes: np.ndarray, kinds: np.ndarray) -> openmm.System | None:
    """Return a System of copies of the parts of another one, which have sizes (K,), in the order of `kinds` (P,) from 0 on.

    None where the other one has virtual sites, terms that join parts, or forces that cannot be copied.
    """
    forces, particles = system.getForces(), np.arange(system.getNumParticles())
    if not all(map(_can_be_copied, forces)) or any(map(system.isVirtualSite, particles.tolist())):
        return None
    places, made = _Places(sizes, kinds), openmm.System()
    made.setDefaultPeriodicBoxVectors(*system.getDefaultPeriodicBoxVectors())
    try:
        rows, _ = places.rows(particles[:, None])
        call_for_each(made, "addParticle", masses_of(system)[rows])
        pairs, lengths = constraints_of(system)
        rows, shifts = places.rows(pairs)
        call_for_each(made, "addConstraint", pairs[rows] + shifts[:, None], lengths[rows])
        for force in forces:
            made.addForce(_copied(force, places))
    except _JoinedParts:
        return None
    return made


def _can_be_copied(force: openmm.Force) -> bool:
    is_special = any(getattr(force, f"getNum{name}", int)() for name in _SPECIAL)
    return type(force).__name__ in TERMS and not is_special


def _copied(force: openmm.Force, places: _Places) -> openmm.Force:
    """Return a force with the same settings and the terms of all copies."""
    settings = without_terms(force, but=("Maps",))
    made = openmm.XmlSerializer.deserialize(ElementTree.tostring(settings, encoding="unicode"))
    for terms in term_columns(force):
        terms.add_copies(made, places.rows)
    return made
