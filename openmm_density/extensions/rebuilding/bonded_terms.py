"""The bonded terms of a force field as arrays, from which those of a few atoms are taken quickly."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import openmm

from openmm_density.kernels.local_dynamics import MapTerms, Terms
from openmm_density.kernels.torsion_maps import spline_nodes

# How many atoms a term of each force has, and what its methods call it.
_TERMS = {
    openmm.HarmonicBondForce: ("Bond", 2),
    openmm.HarmonicAngleForce: ("Angle", 3),
    openmm.PeriodicTorsionForce: ("Torsion", 4),
    openmm.RBTorsionForce: ("Torsion", 4),
    openmm.CMAPTorsionForce: ("Torsion", 8),
    openmm.CustomTorsionForce: ("Torsion", 4),
}

# Those that are arrays as well, with the atoms and parameters of a term.
_ARRAYS = {
    openmm.HarmonicBondForce: (2, 2),
    openmm.HarmonicAngleForce: (3, 2),
    openmm.PeriodicTorsionForce: (4, 3),
}
# The energy of harmonic torsions where a force field has them.
_HARMONIC_TORSION = "k*(theta-theta0)^2"


class BondedArrays(NamedTuple):
    """Bonded terms as `openmm_density.kernels.local_dynamics` has them."""

    bonds: Terms
    angles: Terms
    torsions: Terms
    held: Terms
    cmap: MapTerms | None


class BondedTerms:
    """Masses and bonded terms of a System, to be taken apart many times.

    Reading a System term by term takes longer than minimising a few residues: it is read once. What is here can be pickled.

    Attributes: `masses` (N,) in dalton.
    """

    def __init__(self, system: openmm.System) -> None:
        self.masses = np.array([system.getParticleMass(i)._value for i in range(system.getNumParticles())])
        self._forces = [
            _TermsOfForce(force, len(self.masses)) for force in system.getForces() if type(force) in _TERMS
        ]

    def among(self, members: np.ndarray, moves: np.ndarray) -> list[openmm.Force]:
        """Build the forces with the terms among some atoms, of which one or more move, as in a System of these atoms alone.

        `members` int (M,): the atoms, in their order there; `moves` bool (M,).
        """
        place = self._places(members)
        return [force.among(place, moves) for force in self._forces]

    def arrays_among(self, members: np.ndarray, moves: np.ndarray) -> BondedArrays | None:
        """Return the same terms as arrays, or None where some are not of the kinds that `BondedArrays` has."""
        place = self._places(members)
        found: dict[type, list[tuple[np.ndarray, np.ndarray]]] = {kind: [] for kind in _ARRAYS}
        impropers: list[tuple[np.ndarray, np.ndarray]] = []
        cmap: list[MapTerms] = []
        for force in self._forces:
            if force.kind is openmm.CMAPTorsionForce and (maps := force.maps_among(place, moves)) is not None:
                cmap += [maps] if len(maps.members) else []
            elif force.kind in _ARRAYS:
                found[force.kind].append(force.arrays_among(place, moves))
            elif force.is_harmonic_torsion:
                impropers.append(force.arrays_among(place, moves))
            elif len(force.chosen(place, moves)):
                return None
        if len(cmap) > 1:
            return None
        bonds, angles, torsions = (_joined(*_ARRAYS[kind], each) for kind, each in found.items())
        members, parameters = _joined(4, 2, impropers)
        stiffness, targets = parameters.T
        held = Terms(members, np.stack([targets, np.zeros_like(targets), 2 * stiffness], axis=1))
        return BondedArrays(bonds, angles, torsions, held, cmap[0] if cmap else None)

    def _places(self, members: np.ndarray) -> np.ndarray:
        place = np.full(len(self.masses), -1)
        # Atoms behind those of the System, as of symmetry mates, do not move and have no terms.
        own = members < len(self.masses)
        place[members[own]] = np.flatnonzero(own)
        return place


class _TermsOfForce:
    """The terms of one force: the atoms of each, and its other parameters."""

    def __init__(self, force: openmm.Force, n_atoms: int) -> None:
        self._n_atoms = n_atoms
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

    @property
    def kind(self) -> type:
        """Its class."""
        return type(self._empty)

    @property
    def is_harmonic_torsion(self) -> bool:
        """Whether its terms are the improper torsions of CHARMM's force fields."""
        if self.kind is not openmm.CustomTorsionForce:
            return False
        names = [
            self._empty.getPerTorsionParameterName(i) for i in range(self._empty.getNumPerTorsionParameters())
        ]
        return self._empty.getEnergyFunction() == _HARMONIC_TORSION and names == ["k", "theta0"]

    def chosen(self, place: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """Return the numbers of the terms among members, by the place of each atom among them, or -1, of which one moves."""
        atoms = np.flatnonzero(place >= 0)
        begin, terms = self._of_atoms
        moving = [terms[begin[atom] : begin[atom + 1]] for atom in atoms[moves[place[atoms]]].tolist()]
        found = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *moving]))
        return found[(place[self._particles[found]] >= 0).all(axis=1)]

    @cached_property
    def _of_atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """The terms of each atom, those of one after those of another, and where each begins among them."""
        atoms = self._particles.ravel()
        order = np.argsort(atoms, kind="stable")
        begin = np.searchsorted(atoms[order], np.arange(self._n_atoms + 1))
        return begin, order // max(self._particles.shape[1], 1)

    def among(self, place: np.ndarray, moves: np.ndarray) -> openmm.Force:
        """Build the force with these terms."""
        force = copy.deepcopy(self._empty)
        add = getattr(force, self._add)
        particles = place[self._particles]
        for number in self.chosen(place, moves).tolist():
            add(*self._before[number], *particles[number].tolist(), *self._after[number])
        return force

    def arrays_among(self, place: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the members and parameters of these terms."""
        chosen = self.chosen(place, moves)
        return place[self._particles[chosen]], self._numbers[chosen]

    def maps_among(self, place: np.ndarray, moves: np.ndarray) -> MapTerms | None:
        """Return these terms of CMAP; None where maps differ in size, or both torsions are not those of five atoms in a row."""
        if self._map_nodes is None:
            return None
        chosen = self.chosen(place, moves)
        particles = place[self._particles[chosen]]
        of_term = np.array(self._before, dtype=np.int64).reshape(-1)[chosen]
        five = np.concatenate([particles[:, :4], particles[:, 7:]], axis=1)
        return MapTerms(five, of_term, np.ones(len(five)), self._map_nodes)

    @cached_property
    def _numbers(self) -> np.ndarray:
        count = 2 if self.is_harmonic_torsion else _ARRAYS[self.kind][1]
        return np.array(self._after, dtype=np.float64).reshape(len(self._after), count)

    @cached_property
    def _map_nodes(self) -> np.ndarray | None:
        maps = [self._empty.getMapParameters(number) for number in range(self._empty.getNumMaps())]
        sizes = {size for size, _ in maps}
        in_a_row = (self._particles[:, 1:4] == self._particles[:, 4:7]).all()
        if len(sizes) != 1 or not in_a_row or min(sizes) % 2 or min(sizes) < 4:
            return None
        size = min(sizes)
        # φ runs fastest, and both from 0.
        values = np.array([_plain(energies) for _, energies in maps]).reshape(-1, size, size).swapaxes(1, 2)
        return spline_nodes(np.roll(values, size // 2, axis=(1, 2))).numpy()


def _joined(size: int, count: int, found: list[tuple[np.ndarray, np.ndarray]]) -> Terms:
    """Return terms of several forces of one kind, those of the same atoms one after the other."""
    members = np.concatenate([np.zeros((0, size), dtype=np.int64), *(members for members, _ in found)])
    parameters = np.concatenate([np.zeros((0, count)), *(numbers for _, numbers in found)])
    order = np.lexsort(members.T[::-1])
    return Terms(members[order], parameters[order])


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
