"""The bonded terms of a force field as arrays, from which those of a few atoms are taken quickly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import openmm

# How many atoms a term of each force has, and what its methods call it.
_TERMS = {
    openmm.HarmonicBondForce: ("Bond", 2),
    openmm.HarmonicAngleForce: ("Angle", 3),
    openmm.PeriodicTorsionForce: ("Torsion", 4),
    openmm.RBTorsionForce: ("Torsion", 4),
    openmm.CMAPTorsionForce: ("Torsion", 8),
    openmm.CustomTorsionForce: ("Torsion", 4),
}


class BondedTerms:
    """Masses and bonded terms of a System, to be taken apart many times.

    Reading a System term by term takes longer than minimising a few residues: it is read once. What is here can be pickled.

    Parameters
    ----------
    system : openmm.System

    Attributes
    ----------
    masses : np.ndarray, shape (N,)
        In dalton.
    """

    def __init__(self, system: openmm.System) -> None:
        self.masses = np.array([system.getParticleMass(i)._value for i in range(system.getNumParticles())])
        self._forces = [_TermsOfForce(force) for force in system.getForces() if type(force) in _TERMS]

    def among(self, members: np.ndarray, moves: np.ndarray) -> list[openmm.Force]:
        """Build the forces with the terms among some atoms, of which one or more move, as in a System of these atoms alone.

        Parameters
        ----------
        members : np.ndarray of int, shape (M,)
            The atoms, in their order there.
        moves : np.ndarray of bool, shape (M,)
        """
        place = np.full(len(self.masses), -1)
        place[members] = np.arange(len(members))
        return [force.among(place, moves) for force in self._forces]


class _TermsOfForce:
    """The terms of one force: the atoms of each, and its other parameters."""

    def __init__(self, force: openmm.Force) -> None:
        term, size = _TERMS[type(force)]
        self._empty = _without_terms(force)
        self._add = f"add{term}"
        get = getattr(force, f"get{term}Parameters")
        found = [get(number) for number in range(getattr(force, f"getNum{term}s")())]
        # A term of CMAP begins with the number of its map.
        before = 1 if isinstance(force, openmm.CMAPTorsionForce) else 0
        self._particles = np.array([each[before : before + size] for each in found], dtype=np.int64)
        self._particles = self._particles.reshape(-1, size)
        self._before: list[Any] = [tuple(each[:before]) for each in found]
        self._after: list[Any] = [tuple(_plain(value) for value in each[before + size :]) for each in found]

    def among(self, place: np.ndarray, moves: np.ndarray) -> openmm.Force:
        """Build the force with the terms among members, by the place of each atom among them, or -1."""
        force = copy.deepcopy(self._empty)
        add = getattr(force, self._add)
        particles = place[self._particles]
        chosen = (particles >= 0).all(axis=1) & moves[particles].any(axis=1)
        for number in np.flatnonzero(chosen).tolist():
            add(*self._before[number], *particles[number].tolist(), *self._after[number])
        return force


def _plain(value: Any) -> Any:
    """Return a value without its unit, in OpenMM's own."""
    return getattr(value, "_value", value)


def _without_terms(force: openmm.Force) -> openmm.Force:
    """Return a force of the same kind without its terms."""
    if isinstance(force, openmm.CMAPTorsionForce):
        own = openmm.CMAPTorsionForce()
        for number in range(force.getNumMaps()):
            size, energies = force.getMapParameters(number)
            own.addMap(size, _plain(energies))
        return own
    if not isinstance(force, openmm.CustomTorsionForce):
        return type(force)()
    own = openmm.CustomTorsionForce(force.getEnergyFunction())
    for number in range(force.getNumPerTorsionParameters()):
        own.addPerTorsionParameter(force.getPerTorsionParameterName(number))
    for number in range(force.getNumGlobalParameters()):
        own.addGlobalParameter(
            force.getGlobalParameterName(number), force.getGlobalParameterDefaultValue(number)
        )
    return own
