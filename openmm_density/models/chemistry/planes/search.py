"""The search for planes in a topology: how its residues are joined, and which planes follow."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Container, Iterator, Sequence
from typing import Any

import gemmi
import numpy as np
from openmm.app import Topology
from openmm.app import topology as bond_types
from scipy.spatial import cKDTree

from ....base.errors import InputError
from ....base.units import positions_in_angstrom, positive, takes_units
from ....base.wording import residue_label
from ..topologies import openmm_topology
from .dictionaries import Component, read_dictionary
from .flat_groups import AROMATIC, NON_METALS, UNKNOWN_ORDER, BondGraph, ordered_pair
from .patterns import Pattern, alternate_atoms, find_pattern, occurrences_by_name
from .plane_set import SMALLEST_PLANE, Plane, PlaneSet

CLOSEST_GAP = 3.0
"""Å; a C–N pair that the bond list joins but that lies farther apart is a chain break."""

LONGEST_UNLISTED_PEPTIDE_BOND = 2.0
"""Å; consecutive residues closer than this are joined although the bond list does not say so."""

_BOND_TOLERANCE = 0.25

_LONGEST_BOND = 2.6

_ORDER_OF_TYPE = {
    bond_types.Single: 1.0,
    bond_types.Amide: 1.0,
    bond_types.Aromatic: AROMATIC,
    bond_types.Double: 2.0,
    bond_types.Triple: 3.0,
}


@takes_units("positions", "sigma")
def find_planes(
    topology: Topology,
    positions: Any = None,
    sigma: Any = 0.02,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> PlaneSet:
    """Find every group of a model that chemistry holds flat.

    Parameters
    ----------
    topology : openmm.app.Topology
        Bonds join the residues; inside residues that the tables know they are not needed. Atoms that occur
        twice under one name in a residue are taken to be alternate locations, the first of each name with the
        first of the others: each alternate gets its own plane.
    positions : array_like or Quantity, shape (N, 3), optional
        Å, or with a unit. They break the chain at gaps (C–N of 3 Å and more), join consecutive residues that
        the bond list leaves apart (C–N below 2 Å), define the bonds of ligands without any, and the conjugated atoms of
        a ligand without hydrogens by the lengths of their bonds, medians over its copies.
    sigma : float or Quantity
        Å; of every plane to which no dictionary gives one.
    dictionaries : path or sequence of paths
        Restraint dictionaries (CCP4/REFMAC, AceDRG) or wwPDB component files; the last one that names a
        component wins.

    Returns
    -------
    PlaneSet
        In the order of the residues; a peptide group comes after the other groups of the residue that has its carbonyl.

    Raises
    ------
    InputError
        σ is not a positive number; positions do not match the topology; the topology has amino acids but
        neither bonds nor positions; a dictionary cannot be read, defines no component, has a plane that names
        an unknown atom or a σ that is not positive, or does not fit the residue of that name.
    """
    sigma = positive(sigma, "sigma", "Å, such as 0.02")
    topology = openmm_topology(topology)
    coordinates = None if positions is None else positions_in_angstrom(positions, topology.getNumAtoms())
    if isinstance(dictionaries, str | os.PathLike):
        dictionaries = (dictionaries,)
    components: dict[str, Component] = {}
    for path in dictionaries:
        components.update(read_dictionary(path))
    return _Search(topology, coordinates, sigma, components).run()


class _Search:
    """One pass over a topology: the patterns of the residues, the bonds between them, and the planes that follow."""

    def __init__(
        self,
        topology: Topology,
        coordinates: np.ndarray | None,
        sigma: float,
        components: dict[str, Component],
    ) -> None:
        self.coordinates = coordinates
        self.sigma = sigma
        self.residues = list(topology.residues())
        self.elements = [atom.element.symbol if atom.element is not None else "" for atom in topology.atoms()]
        self.elements = ["H" if symbol == "D" else symbol for symbol in self.elements]
        self.residue_of = np.empty(len(self.elements), dtype=np.int64)
        self.indices: list[list[int]] = []
        self.names: list[tuple[str, ...]] = []
        self.patterns: list[Pattern] = []
        self.site: list[int] = []
        seen: dict[tuple[str, tuple[str, ...]], Pattern] = {}
        for number, residue in enumerate(self.residues):
            atoms = list(residue.atoms())
            indices = [atom.index for atom in atoms]
            names = tuple([atom.name for atom in atoms])
            key = (residue.name, names)
            if key not in seen:
                seen[key] = find_pattern(*key, components.get(residue.name))
            self.residue_of[indices] = number
            self.indices.append(indices)
            self.names.append(names)
            self.patterns.append(seen[key])
            self.site.append(self.site[-1] + (not self._shares_site(number)) if number else 0)
        bonds = [(ordered_pair(bond[0].index, bond[1].index), _bond_order(bond)) for bond in topology.bonds()]
        self.order = dict(bonds)
        self.carbonyls = {
            self.indices[r][p.carbon]: r for r, p in enumerate(self.patterns) if p.carbon is not None
        }
        self.amines = {
            self.indices[r][p.nitrogen]: r for r, p in enumerate(self.patterns) if p.nitrogen is not None
        }
        if not bonds and coordinates is None and len(self.carbonyls) > 1:
            raise InputError(
                "must have bonds where there are no positions to tell which residues are joined",
                argument="topology",
                found="neither bonds nor positions",
                remedy="call topology.createStandardBonds() or give positions",
            )

    def run(self) -> PlaneSet:
        unknown = [r for r in range(len(self.residues)) if self._needs_perception(r)]
        self._bond_by_distance(unknown)
        self.crossing = self._crossing_bonds()
        nitrogens = self._peptide_bonds()
        partners: dict[int, list[int]] = {}
        for a, b in self.crossing:
            for atom, other in ((a, b), (b, a)):
                if self.elements[other] in NON_METALS and self.elements[other] != "H":
                    partners.setdefault(atom, []).append(other)
        perceived, undetermined = self._perceive(unknown, nitrogens.keys())
        planes, dropped = [], []
        emitted: set[tuple[int, ...]] = set()
        for r, pattern in enumerate(self.patterns):
            found = self._backbone_planes(r, nitrogens.get(r, ()))
            if pattern.groups:
                found = [*self._pattern_planes(r, partners), *found]
            elif r in perceived:
                found = [*perceived[r], *found]
            if not found:
                continue
            name, label = self.residues[r].name, residue_label(self.residues[r])
            for kind, atoms, sigma in found:
                key = tuple(sorted(atoms))
                if len(atoms) < SMALLEST_PLANE:
                    dropped.append(Plane(kind, name, label, atoms, sigma))
                elif key not in emitted:
                    emitted.add(key)
                    planes.append(Plane(kind, name, label, atoms, sigma))
        return PlaneSet(
            tuple(planes), tuple(dropped), tuple(residue_label(self.residues[r]) for r in undetermined)
        )

    def _shares_site(self, r: int) -> bool:
        """Return whether a residue is an alternate of the one before it (microheterogeneity)."""
        a, b = self.residues[r - 1], self.residues[r]
        return a.id == b.id and a.chain is b.chain and a.insertionCode == b.insertionCode and a.name != b.name

    def _needs_perception(self, r: int) -> bool:
        if self.patterns[r].groups is not None:
            return False
        return sum(self.elements[atom] in NON_METALS for atom in self.indices[r]) >= SMALLEST_PLANE

    def _distance(self, a: int, b: int) -> float:
        return float(np.linalg.norm(self.coordinates[a] - self.coordinates[b]))

    def _bond_by_distance(self, unknown: list[int]) -> None:
        """Add the bonds that positions show to residues that the bond list leaves in pieces."""
        inside: dict[int, list[tuple[int, int]]] = {r: [] for r in unknown}
        if inside:
            for a, b in self.order:
                r = int(self.residue_of[a])
                if r in inside and self.residue_of[b] == r:
                    inside[r].append((a, b))
        self.chosen: dict[int, list[int]] = {}
        self.unbonded: set[int] = set()
        for r in unknown:
            if _is_connected([a for a in self.indices[r] if self.elements[a] in NON_METALS], inside[r]):
                self.chosen[r] = self.indices[r]
                continue
            first_of_name: dict[str, int] = {}
            for name, atom in zip(self.names[r], self.indices[r], strict=True):
                first_of_name.setdefault(name, atom)
            self.chosen[r] = list(first_of_name.values())
            self.unbonded.add(r)
        if not self.unbonded or self.coordinates is None:
            return
        finite = np.isfinite(self.coordinates).all(axis=1)
        bondable = np.array([element in NON_METALS for element in self.elements]) & finite
        everything = np.flatnonzero(bondable)
        chosen = [a for r in sorted(self.unbonded) for a in self.chosen[r] if bondable[a]]
        if not chosen:
            return
        members = np.array(chosen, dtype=np.int64)
        tree, others = cKDTree(self.coordinates[members]), cKDTree(self.coordinates[everything])
        pairs = tree.sparse_distance_matrix(others, _LONGEST_BOND, output_type="ndarray")
        nearest: dict[int, tuple[float, int]] = {}
        for i, j, distance in pairs.tolist():
            a, b = int(members[i]), int(everything[j])
            if not self._may_bond(a, b, distance):
                continue
            if self.elements[a] == "H":
                nearest[a] = min(nearest.get(a, (math.inf, -1)), (distance, b))
            elif self.elements[b] != "H":
                self.order.setdefault(ordered_pair(a, b), UNKNOWN_ORDER)
        for hydrogen, (_, heavy) in nearest.items():
            self.order.setdefault(ordered_pair(hydrogen, heavy), UNKNOWN_ORDER)

    def _may_bond(self, a: int, b: int, distance: float) -> bool:
        first, second = self.elements[a], self.elements[b]
        r, s = int(self.residue_of[a]), int(self.residue_of[b])
        if distance < 0.5 or (first == "H" and second == "H"):
            return False
        if r == s:
            if b not in self.chosen[r]:
                return False
        elif "H" in (first, second) or self.site[r] == self.site[s] or len(self.indices[s]) <= 3:
            return False
        return distance < gemmi.Element(first).covalent_r + gemmi.Element(second).covalent_r + _BOND_TOLERANCE

    def _crossing_bonds(self) -> list[tuple[int, int]]:
        """Return the bonds between residues that are neither gaps nor between alternates."""
        bonds = np.array(list(self.order), dtype=np.int64).reshape(-1, 2)
        site = np.array(self.site, dtype=np.int64)[self.residue_of[bonds]]
        bonds = bonds[site[:, 0] != site[:, 1]]
        if self.coordinates is not None:
            lengths = np.linalg.norm(self.coordinates[bonds[:, 0]] - self.coordinates[bonds[:, 1]], axis=1)
            bonds = bonds[~(lengths >= CLOSEST_GAP)]
        return [(a, b) for a, b in bonds.tolist()]

    def _peptide_bonds(self) -> dict[int, list[int]]:
        """Return the nitrogens that each residue's carbonyl is bonded to."""
        nitrogens: dict[int, list[int]] = {}
        for a, b in self.crossing:
            for carbon, nitrogen in ((a, b), (b, a)):
                if carbon in self.carbonyls and self.elements[nitrogen] == "N":
                    nitrogens.setdefault(self.carbonyls[carbon], []).append(nitrogen)
        if self.coordinates is None:
            return nitrogens
        for carbon, r in self.carbonyls.items():
            for s in self._next_residues(r):
                pattern = self.patterns[s]
                if pattern.nitrogen is None:
                    continue
                nitrogen = self.indices[s][pattern.nitrogen]
                if nitrogen in nitrogens.get(r, ()):
                    continue
                if self._distance(carbon, nitrogen) < LONGEST_UNLISTED_PEPTIDE_BOND:
                    nitrogens.setdefault(r, []).append(nitrogen)
        return nitrogens

    def _next_residues(self, r: int) -> Iterator[int]:
        for s in range(r + 1, len(self.residues)):
            if self.site[s] > self.site[r] + 1 or self.residues[s].chain is not self.residues[r].chain:
                return
            if self.site[s] > self.site[r]:
                yield s

    def _backbone_planes(self, r: int, nitrogens: Sequence[int]) -> list[tuple[str, tuple[int, ...], Any]]:
        pattern, indices = self.patterns[r], self.indices[r]
        if pattern.carbon is None:
            return []
        if not nitrogens:
            # Where no table knows a residue, CA, C and O need not be its backbone: its bonds decide what is flat.
            if pattern.groups is None:
                return []
            return [
                ("terminus", tuple([indices[a] for a in atoms]), self.sigma) for atoms in pattern.terminus
            ]
        planes = []
        for nitrogen in nitrogens:
            amines = self._amines_of(nitrogen, indices[pattern.carbon])
            for k in range(max(len(pattern.acyl), len(amines))):
                acyl = tuple([indices[a] for a in pattern.acyl[min(k, len(pattern.acyl) - 1)]])
                planes.append(("peptide", acyl + amines[min(k, len(amines) - 1)], self.sigma))
        return planes

    def _amines_of(self, nitrogen: int, carbon: int) -> list[tuple[int, ...]]:
        """Return, per alternate, a nitrogen with its substituents other than the carbonyl."""
        s = self.amines.get(nitrogen)
        if s is not None and self.patterns[s].groups is not None:
            return [tuple([self.indices[s][a] for a in atoms]) for atoms in self.patterns[s].amine]
        substituents = [other for other in self._adjacency.get(nitrogen, ()) if other != carbon]
        if s is not None and not substituents:
            return [tuple([self.indices[s][a] for a in atoms]) for atoms in self.patterns[s].amine]
        return [(nitrogen, *substituents)]

    @functools.cached_property
    def _adjacency(self) -> dict[int, list[int]]:
        """Neighbours of atoms in unknown or oddly joined residues, without metals or bonds that are none (gaps, alternates)."""
        wanted = np.zeros(len(self.residues), dtype=bool)
        wanted[list(self.chosen)] = True
        joined = []
        for a, b in self.crossing:
            ends = self.residue_of[[a, b]]
            in_chain = (a in self.carbonyls and b in self.amines) or (
                b in self.carbonyls and a in self.amines
            )
            if not in_chain or wanted[ends].any():
                joined.extend(ends.tolist())
        wanted[joined] = True
        bonds = np.array(list(self.order), dtype=np.int64).reshape(-1, 2)
        owner = self.residue_of[bonds]
        inside = bonds[(owner[:, 0] == owner[:, 1]) & wanted[owner[:, 0]]]
        adjacency: dict[int, list[int]] = {}
        for a, b in sorted([*map(tuple, inside.tolist()), *self.crossing]):
            if self.elements[a] in NON_METALS and self.elements[b] in NON_METALS:
                adjacency.setdefault(a, []).append(b)
                adjacency.setdefault(b, []).append(a)
        return adjacency

    def _pattern_planes(
        self, r: int, partners: dict[int, list[int]]
    ) -> list[tuple[str, tuple[int, ...], float | tuple[float, ...]]]:
        indices = self.indices[r]
        planes = []
        for group in self.patterns[r].groups:
            atoms = tuple([indices[a] for a in group.atoms])
            sigmas = group.sigmas
            if partners and group.centres:
                linked = [other for a in group.centres for other in partners.get(indices[a], ())]
                atoms += tuple(sorted(set(linked) - set(atoms)))
            sigma: float | tuple[float, ...] = self.sigma
            if sigmas is not None:
                values = tuple(self.sigma if value is None else value for value in sigmas)
                sigma = values[0] if len(set(values)) == 1 else values
            planes.append((group.kind, atoms, sigma))
        return planes

    def _perceive(
        self, unknown: list[int], linked: Container[int]
    ) -> tuple[dict[int, list[tuple[str, tuple[int, ...], float]]], list[int]]:
        """Find flat groups of unknown residues, copies together; carbonyls of `linked` ones are left to peptide groups."""
        copies: dict[Any, list[tuple[int, list[int]]]] = {}
        for r in unknown:
            atoms, key = self._surroundings(r)
            copies.setdefault((*key, r in linked), []).append((r, atoms))
        perceived: dict[int, list[tuple[str, tuple[int, ...], float]]] = {}
        undetermined: list[int] = []
        for (_, _, elements, bonds, own, is_linked), members in copies.items():
            coordinates = None
            if self.coordinates is not None:
                stacked = self.coordinates[np.array([atoms for _, atoms in members])]
                stacked = stacked[np.isfinite(stacked).all(axis=(1, 2))]
                coordinates = stacked if len(stacked) else None
            r, atoms = members[0]
            pattern = self.patterns[r]
            carbon = None if pattern.carbon is None else atoms.index(self.indices[r][pattern.carbon])
            handled = frozenset({carbon} if is_linked else ())
            molecule = BondGraph(elements, dict(bonds), handled, own, coordinates)
            groups = molecule.flat_groups()
            for r, atoms in members:
                if not molecule.is_determined or not bonds:
                    undetermined.append(r)
                for centres, group in groups:
                    kind = "terminus" if centres == {carbon} else pattern.kind
                    for plane in self._alternates_of(r, [atoms[a] for a in group]):
                        perceived.setdefault(r, []).append((kind, plane, self.sigma))
        return perceived, sorted(undetermined)

    def _surroundings(self, r: int) -> tuple[list[int], Any]:
        """Return a residue's atoms, then those up to two bonds away, and what its copies share with it."""
        own = self.chosen[r]
        atoms = dict.fromkeys(own)
        for _ in range(2):
            border = [other for atom in atoms for other in self._adjacency.get(atom, ())]
            outer = [other for other in border if self.residue_of[other] != r]
            atoms.update(dict.fromkeys(outer))
        number = {atom: index for index, atom in enumerate(atoms)}
        bonds = {
            (ordered_pair(number[a], number[b]), self.order[ordered_pair(a, b)])
            for a in atoms
            for b in self._adjacency.get(a, ())
            if b in number
        }
        elements = tuple(self.elements[atom] for atom in atoms)
        key = (self.residues[r].name, self.names[r], elements, tuple(sorted(bonds)), len(own))
        return list(atoms), key

    def _alternates_of(self, r: int, atoms: list[int]) -> tuple[tuple[int, ...], ...]:
        if len(self.chosen[r]) == len(self.indices[r]):
            return (tuple(atoms),)
        occurrences = occurrences_by_name(zip(self.names[r], self.indices[r], strict=True))
        name_of = dict(zip(self.indices[r], self.names[r], strict=True))
        return alternate_atoms([occurrences[name_of[atom]] if atom in name_of else [atom] for atom in atoms])


def _bond_order(bond: Any) -> float:
    """Return the order of a topology's bond, 0 where it has none."""
    if bond.type is not None:
        return _ORDER_OF_TYPE.get(bond.type, UNKNOWN_ORDER)
    return float(bond.order) if bond.order is not None else UNKNOWN_ORDER


def _is_connected(atoms: list[int], bonds: list[tuple[int, int]]) -> bool:
    """Return whether bonds join all atoms into one piece."""
    parent = {atom: atom for atom in atoms}

    def root(atom: int) -> int:
        while parent[atom] != atom:
            parent[atom] = atom = parent[parent[atom]]
        return atom

    for a, b in bonds:
        if a in parent and b in parent:
            parent[root(a)] = root(b)
    return len({root(atom) for atom in atoms}) <= 1
