"""Bonds and angles of a topology without a term in the force field, and terms that hold them at usual values.

OpenMM omits them silently: where RNA continues as DNA, whose types Amber keeps apart, a phosphate would be free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import openmm
from openmm import app

from ..chemistry.elements import covalent_radius, is_hydrogen, is_metal
from ..chemistry.ideal_geometry import angles_at, bond_angles, ideal_values, lengths_of
from ..chemistry.metal_sites import USUAL, target_distance
from ..chemistry.topologies import are_among, bonded_pairs, pair_keys
from ..merging import call_for_each, constraints_of, terms_of
from .ligand_terms import BOND_LENGTHS

BOND_STIFFNESS, ANGLE_STIFFNESS = 2.5e5, 500.0
"""kJ/mol/nm² and kJ/mol/rad², as in Amber."""
ANGLES = (100.0, 125.0)
"""Degrees between which an angle without an ideal value is held at its present value."""

_BONDS = (openmm.HarmonicBondForce, openmm.CustomBondForce)
_ANGLES = (openmm.HarmonicAngleForce, openmm.CustomAngleForce)


class MissingTerms(NamedTuple):
    """The bonds and angles without a term in the force field."""

    bonds: np.ndarray  # `bonds`, `angles` int (B, 2).
    lengths: np.ndarray  # `lengths`, `degrees` (B,) at which they are held: Å and degrees.
    angles: np.ndarray
    degrees: np.ndarray

    def add_to(self, system: openmm.System) -> None:
        """Add a term for each."""
        if not len(self.bonds) and not len(self.angles):
            return
        bond_force, angle_force = openmm.HarmonicBondForce(), openmm.HarmonicAngleForce()
        for force, name in ((bond_force, "MissingBonds"), (angle_force, "MissingAngles")):
            force.setName(name)
        lengths, angles = self.lengths / 10.0, np.radians(self.degrees)
        call_for_each(bond_force, "addBond", self.bonds, lengths, np.full(len(lengths), BOND_STIFFNESS))
        call_for_each(angle_force, "addAngle", self.angles, angles, np.full(len(angles), ANGLE_STIFFNESS))
        system.addForce(bond_force)
        system.addForce(angle_force)


def missing_terms(
    system: openmm.System,
    topology: app.Topology,
    positions: np.ndarray,
    held: Sequence[np.ndarray] = (),
    links: Iterable[tuple[int, int]] = (),
) -> MissingTerms:
    """Find bonds and angles without a force or constraint; those without a usual value are held as at positions (N, 3) in Å."""
    n = topology.getNumAtoms()
    bonds = bonded_pairs(topology)
    angles = bond_angles(bonds)
    known = _terms(system, _BONDS)
    known_angles = _terms(system, _ANGLES)
    none = MissingTerms(bonds[:0], np.empty(0), angles[:0], np.empty(0))
    if not len(known):  # a force field without bonds
        return none
    constrained, _ = constraints_of(system)
    group = np.full(n, -1)
    for number, atoms in enumerate(held):
        group[atoms] = number
    linked = pair_keys(np.array(list(links), dtype=np.int64).reshape(-1, 2), n)
    held_apart = pair_keys(constrained, n)
    pairs = np.concatenate([pair_keys(known, n), held_apart, linked])
    lacks_bond = ~are_among(pair_keys(bonds, n), pairs) & ~_within(group, bonds)
    ends = pair_keys(angles[:, [0, 2]], n)
    fixed = are_among(ends, held_apart)
    lacks_angle = ~are_among(
        ends * n + angles[:, 1], pair_keys(known_angles[:, [0, 2]], n) * n + known_angles[:, 1]
    )
    lacks_angle &= ~fixed & ~_within(group, angles)
    if not lacks_bond.any() and not lacks_angle.any():
        return none
    # At a bound metal only springs hold the angles.
    metal = np.array([is_metal(atom) for atom in topology.atoms()], dtype=bool)
    lacks_angle &= ~metal[angles].any(axis=1)
    return MissingTerms(*_usual(topology, positions, bonds, lacks_bond, angles[lacks_angle]))


def _usual(
    topology: app.Topology,
    positions: np.ndarray,
    all_bonds: np.ndarray,
    lacking: np.ndarray,
    angles: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the missing bonds with target lengths, and the missing angles with target degrees."""
    # Types depend on bonds elsewhere.
    ideal, degrees = ideal_values(topology, all_bonds, angles)
    bonds, ideal = all_bonds[lacking], ideal[lacking]
    atoms = list(topology.atoms())
    radii = np.array(
        [covalent_radius(atoms[i]) + covalent_radius(atoms[j]) for i, j in bonds.tolist()], dtype=np.float64
    )
    as_is = np.clip(lengths_of(positions, bonds), BOND_LENGTHS[0] * radii, BOND_LENGTHS[1] * radii)
    lengths = np.where(np.isfinite(ideal), ideal, as_is)
    degrees = np.where(np.isfinite(degrees), degrees, np.clip(angles_at(positions, angles), *ANGLES))
    return bonds, lengths, angles, degrees


def _terms(system: openmm.System, kinds: tuple[type, ...]) -> np.ndarray:
    """Return the atoms of the bonds or angles in a System's forces."""
    kind, size = ("Bond", 2) if kinds is _BONDS else ("Angle", 3)
    found = [terms_of(force, kind, size)[0] for force in system.getForces() if isinstance(force, kinds)]
    return np.concatenate([np.empty((0, size), dtype=np.int64), *found])


def _within(group: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return which terms have all atoms in one group."""
    of = group[members]
    return (of[:, 0] >= 0) & (of == of[:, :1]).all(axis=1)


LINK_FORCE_CONSTANT = 1.0e5
"""kJ/mol/nm², of a bond between a rigid residue and its surroundings; a fifth for pairs one bond further."""


def link_pairs(
    i: int, j: int, bonded: dict[int, list[app.topology.Atom]]
) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs one and two bonds apart across a link; hydrogens are excluded but not held."""
    yield i, j, LINK_FORCE_CONSTANT
    for near, far in ((i, j), (j, i)):
        for neighbour in bonded[near]:
            if neighbour.index != far:
                yield neighbour.index, far, 0.0 if is_hydrogen(neighbour) else LINK_FORCE_CONSTANT / 5


def three_apart(i: int, j: int, bonded: dict[int, list[app.topology.Atom]]) -> set[tuple[int, int]]:
    """Return the pairs three bonds apart across a link: their repulsion, which no force field scales down, widens its angles."""
    around = {near: {atom.index for atom in bonded[near]} - {far} for near, far in ((i, j), (j, i))}
    found = {(first, last) for first in around[i] for last in around[j]}
    for near, far in ((i, j), (j, i)):
        found |= {(other.index, far) for neighbour in around[near] for other in bonded[neighbour]} - {
            (near, far)
        }
    return {(min(pair), max(pair)) for pair in found if pair[0] != pair[1]}


def link_length(length: float, a: app.topology.Atom, b: app.topology.Atom) -> float:
    """Return the nearest length in Å that a bond of two atoms usually has."""
    if is_metal(a) or is_metal(b):
        metal, other = (a, b) if is_metal(a) else (b, a)
        low, high = (target_distance(metal, other) + each for each in USUAL)
    else:
        ideal = covalent_radius(a) + covalent_radius(b)
        low, high = (each * ideal for each in BOND_LENGTHS)
    return float(np.clip(length, low, high))
