"""How close atoms that are not bonded come: radii, donors and acceptors, contacts and clashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

import gemmi
import numpy as np
from openmm import app
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from .elements import is_metal
from .pierced_rings import rings_of
from .residues import is_water
from .topologies import bonded_pairs, hydrogen_mask

CLASH_OVERLAP = 0.4
"""Å of overlap from which two atoms clash (as in MolProbity)."""
HYDROGEN_BOND_ALLOWANCE = 0.4
"""Å by which a pair of N, O, F or S may be closer than that where hydrogens are unknown: it may be a hydrogen bond."""
HYDROGEN_BOND = 0.6
"""Å by which a polar hydrogen may overlap its acceptor."""
HEAVY_BONDS_APART, BONDS_APART = 3, 4
"""Pairs separated by this many bonds or fewer are no contacts: heavy atoms, and pairs with a hydrogen."""
FARTHER_OUT = 0.05
"""Å by which hydrogen radii are smaller about their nuclei, which lie 0.1 Å beyond the centres of their electron clouds."""

_POLAR = frozenset({"N", "O", "F", "S"})
_RADII = {
    **{"H": 1.22, "C": 1.70, "N": 1.55, "O": 1.40, "F": 1.30, "P": 1.80, "S": 1.80},
    **{"Cl": 1.77, "As": 2.00, "Se": 1.90, "Br": 1.95, "I": 2.10},
}
_FLAT_HYDROGEN, _AROMATIC, _CARBONYL = 1.05, 1.75, 1.65


class ContactAtoms:
    """What decides contacts in a topology, found once for many positions: Probe's radii, bonds, donors and acceptors."""

    def __init__(self, topology: app.Topology) -> None:
        self._atoms = list(topology.atoms())
        self._bonds = bonded_pairs(topology)
        self._bonded: dict[int, set[int]] = defaultdict(set)
        for first, second in self._bonds.tolist():
            self._bonded[first].add(second)
            self._bonded[second].add(first)
        flat_rings = (
            ring for ring in rings_of(topology) if len(ring) in (5, 6) and all(map(self._is_flat, ring))
        )
        self._rings = {atom: ring for ring in flat_rings for atom in ring}
        self._hydrogen = hydrogen_mask(topology)
        self._symbols = ["" if atom.element is None else atom.element.symbol for atom in self._atoms]
        self._parents = [
            next(iter(self._bonded[index]), None) if light else None
            for index, light in enumerate(self._hydrogen.tolist())
        ]
        flat = self._rings.keys()
        self._radii = np.array([self._radius(atom, flat) for atom in self._atoms], dtype=np.float64)
        self._waters = np.array([is_water(atom.residue.name) for atom in self._atoms], dtype=bool)
        # Hydrogens of waters are not observed: their positions are guesses.
        known = np.array([atom.element is not None for atom in self._atoms], dtype=bool)
        self._counted = known & ~(self._hydrogen & self._waters)

    def near(self, positions: np.ndarray, reach: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (P, 2) that clash at positions (N, 3), or are up to `reach` farther, and clash distances (P,), Å.

        Hydrogens are where their nuclei are. See `openmm_density.validation.all_atom_contacts` for what a clash is; no dots
        are counted here, so pairs hidden behind others are included.
        """
        radii = self._radii - FARTHER_OUT * self._hydrogen
        chosen = np.flatnonzero(self._counted & (self._radii > 0))
        if len(chosen) < 2:
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
        farthest = 2 * radii[chosen].max() - CLASH_OVERLAP + reach
        pairs = chosen[cKDTree(positions[chosen]).query_pairs(farthest, output_type="ndarray")]
        i, j = pairs.T
        gives, takes = self._givers_and_takers
        bonding = (gives[i] & takes[j]) | (takes[i] & gives[j])
        clash = radii[i] + radii[j] - CLASH_OVERLAP - HYDROGEN_BOND * bonding
        near = np.linalg.norm(positions[i] - positions[j], axis=1) < clash + reach
        near[near] = ~self._no_contacts(pairs[near])
        order = np.lexsort((pairs[near, 1], pairs[near, 0]))
        return pairs[near][order], clash[near][order]

    @cached_property
    def _givers_and_takers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which atoms donate hydrogen bonds and which accept them, bool (N,) each."""
        atoms = range(len(self._atoms))
        return np.array([*map(self._gives, atoms)], dtype=bool), np.array(
            [*map(self._takes, atoms)], dtype=bool
        )

    def _no_contacts(self, pairs: np.ndarray) -> np.ndarray:
        """Return which pairs are two waters, or are separated by too few bonds."""
        light = self._hydrogen[pairs].any(axis=1)
        found = self._waters[pairs].all(axis=1)
        for most, chosen in ((HEAVY_BONDS_APART, ~light), (BONDS_APART, light)):
            found[chosen] |= within_bonds(self._bonds, pairs[chosen], len(self._atoms), most)
        return found

    def _is_flat(self, atom: int) -> bool:
        """Return whether an atom of a ring has the neighbours of a flat one."""
        return len(self._bonded[atom]) <= 3

    def _radius(self, atom: app.topology.Atom, flat: Collection[int]) -> float:
        symbol, index = self._symbols[atom.index], atom.index
        if self._hydrogen[index]:
            parent = self._parents[index]
            carbon = parent is None or self._symbols[parent] == "C"
            return _RADII["H"] if carbon and parent not in flat else _FLAT_HYDROGEN
        if symbol == "C" and index in flat:
            return _AROMATIC
        if symbol == "C" and any(
            self._symbols[o] == "O" and len(self._bonded[o]) == 1 for o in self._bonded[index]
        ):
            return _CARBONYL
        # A metal is at bond distance from its ligands, and not every topology has metal bonds.
        if not symbol or is_metal(atom):
            return 0.0
        return _RADII.get(symbol, gemmi.Element(symbol).vdw_r)

    def _gives(self, atom: int) -> bool:
        parent = self._parents[atom]
        return parent is not None and self._symbols[parent] in ("N", "O", "S")

    def _takes(self, atom: int) -> bool:
        symbol = self._symbols[atom]
        return symbol in ("O", "S", "F", "Cl", "Br", "I") or (symbol == "N" and len(self._bonded[atom]) == 2)


def contact_radii(topology: app.Topology) -> tuple[np.ndarray, np.ndarray]:
    """Return van der Waals radii in Å, 0 without an element, and which atoms are N, O, F or S, each of shape (N,)."""
    symbols = [None if atom.element is None else atom.element.symbol for atom in topology.atoms()]
    radii = {symbol: gemmi.Element(symbol).vdw_r for symbol in set(symbols) if symbol is not None}
    return (
        np.array([radii.get(symbol, 0.0) for symbol in symbols], dtype=np.float64),
        np.array([symbol in _POLAR for symbol in symbols], dtype=bool),
    )


def within_bonds(bonds: np.ndarray, pairs: np.ndarray, n_atoms: int, most: int) -> np.ndarray:
    """Return which pairs of atoms are at most so many bonds apart, shape (P,). `bonds`, `pairs` int (B, 2)."""
    if not len(pairs):
        return np.zeros(0, dtype=bool)
    both = np.concatenate([bonds, bonds[:, ::-1]])
    step = csr_array((np.ones(len(both), dtype=np.int32), (both[:, 0], both[:, 1])), shape=(n_atoms,) * 2)
    walks, near = step, step
    for _ in range(most - 1):
        walks = walks @ step
        near = near + walks
    return np.asarray(near[pairs[:, 0], pairs[:, 1]]).ravel() > 0
