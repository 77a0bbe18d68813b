"""`GeometryTerms`: ideal values of a model's bonds, angles, planes, chiral volumes and ω, and its deviations from them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ....base.units import positions_in_angstrom, takes_units
from ....base.wording import atom_label, residue_label
from ..backbone import NamedAtoms, atoms_by_name
from ..elements import is_hydrogen, is_metal
from ..planes import Plane, PlaneSet
from ..planes.plane_set import SMALLEST_PLANE
from ..residue_names import name_tables, standard_residue_names
from ..residues import is_water
from ..topologies import bonded_pairs, hydrogen_mask, openmm_topology
from ..torsions import peptide_torsions, torsion_angles
from .library import monomer_library
from .templates import Atom, Template, bond_key
from .volumes import VOLUME_SIGMA, chiral_volumes, ideal_volumes

KINDS = ("bonds", "angles", "torsions", "volumes")


@dataclass(frozen=True)
class IdealTerms:
    """Terms of one kind: `atoms` int64 (T, n), ideal `values` and their standard deviations `sigmas` (T,), Å, radians or Å³."""

    atoms: np.ndarray
    values: np.ndarray
    sigmas: np.ndarray

    def measured(self, positions: np.ndarray) -> np.ndarray:
        """Return the values of the terms at positions in Å, shape (T,)."""
        return _MEASURES[self.atoms.shape[1]](positions, self.atoms)

    def z(self, positions: np.ndarray) -> np.ndarray:
        """Return their deviations in standard deviations, shape (T,)."""
        return (self.measured(positions) - self.values) / self.sigmas

    def among(self, chosen: np.ndarray) -> IdealTerms:
        """Return the terms whose atoms are all chosen. `chosen` bool (N,)."""
        return self.where(chosen[self.atoms].all(axis=1))

    def where(self, kept: np.ndarray) -> IdealTerms:
        """Return the terms for which an array, bool (K,), is true."""
        return type(self)(self.atoms[kept], self.values[kept], self.sigmas[kept])


class Torsions(IdealTerms):
    """Terms with a period of 360°."""

    def measured(self, positions: np.ndarray) -> np.ndarray:
        """Return the torsions within 180° of the ideal ones."""
        turned = torsion_angles(positions, self.atoms) - self.values
        return self.values + np.mod(turned + np.pi, 2 * np.pi) - np.pi


class Volumes(IdealTerms):
    """Chiral volumes: of a centre and three neighbours."""

    def measured(self, positions: np.ndarray) -> np.ndarray:
        """Return the volumes with their signs."""
        return chiral_volumes(positions, self.atoms)


@dataclass(frozen=True)
class GeometryTerms:
    """The ideal geometry of one topology: hydrogens' bond lengths are between nuclei, torsions are ω.

    `unknown`: labels of residues that the library does not have; `contradicted`: those whose bonds differ from the library's,
    left out as well; `unlinked`: bonds between known residues that match no known link;
    `unnamed`: atoms that their residues do not have in the library; `other_hands`: chiral centres with the opposite chirality
    to the library's, which keep theirs; `borrowed`: residue names that the library lacks and the package's table has;
    `source`: folder of the monomer library, None for the package's table.
    """

    bonds: IdealTerms
    angles: IdealTerms
    torsions: Torsions
    volumes: Volumes
    planes: PlaneSet
    unknown: tuple[str, ...]
    contradicted: tuple[str, ...]
    unlinked: tuple[str, ...]
    unnamed: tuple[str, ...]
    other_hands: tuple[str, ...]
    borrowed: tuple[str, ...]
    source: Any


@takes_units("positions")
def find_terms(
    topology: app.Topology,
    positions: Any,
    monomers: str | os.PathLike[str] | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> GeometryTerms:
    """Find the ideal geometry of a model; the bonds of its topology, OpenMM's or mdtraj's, link residues.

    `positions` (N, 3), in Å where plain, decide between cis and trans and define the chirality of centres; `monomers`: folder of
    CCP4's monomer library, by default ``CLIBD_MON``; a table of the package serves where it lacks a residue, and
    `dictionaries` of residue types go before both. Raises InputError if the library or a dictionary
    cannot be read, or the numbers of atoms differ.
    """
    topology = openmm_topology(topology)
    positions = positions_in_angstrom(positions, topology.getNumAtoms())
    return _Search(topology, positions, monomers, dictionaries).found()


@dataclass
class _Found:
    """Terms found so far: rows by kind, and planes."""

    atoms: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    values: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    planes: list[Plane] = field(default_factory=list)

    def add(self, template: Template, columns: dict[Atom, int], index: np.ndarray, labels: list[Any]) -> None:
        """Add terms of residues (or links) of one type whose atoms are all present in `index`, int (R, A), by `columns`."""
        index = np.column_stack([index, np.full(len(index), -1)])
        for kind, table in (
            ("bonds", template.bonds),
            ("angles", template.angles),
            ("torsions", template.torsions),
            ("volumes", {key: (sign, VOLUME_SIGMA) for key, sign in template.chirals.items()}),
        ):
            if not table:
                continue
            local = np.array([[columns.get(atom, -1) for atom in key] for key in table])
            values = np.array(list(table.values()))
            atoms = index[:, local]
            kept = (atoms >= 0).all(axis=2) & (np.isfinite(values).all(axis=1) & (values[:, 1] > 0))
            self.atoms[kind].append(atoms[kept])
            self.values[kind].append(np.broadcast_to(values, (*kept.shape, 2))[kept])
        for sigma, members in template.planes.values():
            local = [columns.get(atom, -1) for atom in members]
            for residue, row in zip(labels, index[:, local].tolist()):
                present = tuple(atom for atom in row if atom >= 0)
                if len(present) >= SMALLEST_PLANE:
                    self.planes.append(
                        Plane("ideal geometry", residue.name, residue_label(residue), present, sigma)
                    )

    def terms(self, kind: str, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return atoms, values and standard deviations of one kind, in the order of their atoms."""
        size = {"bonds": 2, "angles": 3}.get(kind, 4)
        if not self.atoms[kind]:
            return np.zeros((0, size), dtype=np.int64), np.zeros(0), np.zeros(0)
        atoms, values = np.concatenate(self.atoms[kind]), np.concatenate(self.values[kind])
        if size < 4:
            backwards = atoms[:, 0] > atoms[:, -1]
            atoms[backwards] = atoms[backwards, ::-1]
        order = np.lexsort(atoms.T[::-1])
        return atoms[order], scale * values[order, 0], scale * values[order, 1]


class _Search:
    """The search for the terms of one topology."""

    def __init__(
        self, topology: app.Topology, positions: np.ndarray, monomers: Any, dictionaries: Any
    ) -> None:
        self._topology, self._positions = topology, positions
        self._atoms = list(topology.atoms())
        self._residues = atoms_by_name(topology)
        aliases, self._atom_aliases = name_tables()
        self._names = [aliases.get(r.residue.name, r.residue.name) for r in self._residues]
        self._library = monomer_library(self._names, monomers, dictionaries)
        self._pairs = bonded_pairs(topology)
        self._carriers = self._find_carriers()
        self._unnamed: list[int] = []
        self._contradicted = self._find_contradicted()

    def found(self) -> GeometryTerms:
        changes: list[tuple[str, ...]] = [
            self._library.end(name, atoms) if name in self._library else ()
            for name, atoms in zip(self._names, self._residues)
        ]
        links, unlinked = self._find_links(changes)
        found = _Found()
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        unknown = []
        for index, (name, atoms) in enumerate(zip(self._names, self._residues)):
            if index in self._contradicted:
                continue
            if name in self._library:
                groups[(name, *changes[index])].append(index)
            elif len(atoms) > 1 and not is_water(name):
                unknown.append(residue_label(atoms.residue))
        places: dict[int, tuple[dict[Atom, int], np.ndarray]] = {}
        for (name, *mods), members in groups.items():
            template = self._library.template(name, tuple(mods))
            columns = {atom: column for column, atom in enumerate(template.atoms)}
            matrix = np.array([self._matched(template, name, self._residues[k]) for k in members])
            found.add(template, columns, matrix, [self._residues[k].residue for k in members])
            places.update((k, (columns, row)) for k, row in zip(members, matrix))
        self._add_links(links, places, found)
        return self._assembled(found, tuple(unknown), unlinked)

    def _find_contradicted(self) -> set[int]:
        """Return the residues that differ from the library's entry of their name in heavy atoms or bonds."""
        asked = {
            k: {
                atom.index: self._canonical(atom.index)
                for atom in self._residues[k].residue.atoms()
                if not (is_hydrogen(atom) or is_metal(atom))
            }
            for k, name in enumerate(self._names)
            if name in self._library and name not in standard_residue_names()
        }
        bonds: dict[int, set[Any]] = defaultdict(set)
        for i, j in self._pairs.tolist():
            members = asked.get(self._atoms[i].residue.index, {})
            if i in members and j in members:
                bonds[self._atoms[i].residue.index].add(bond_key(members[i], members[j]))
        return {
            k
            for k, members in asked.items()
            if bonds[k] != self._library.bonds(self._names[k], set(members.values()))
        }

    def _find_carriers(self) -> dict[int, str]:
        """Return for each hydrogen the name of the atom that it is bonded to."""
        hydrogens = hydrogen_mask(self._topology)
        both = np.concatenate([self._pairs, self._pairs[:, ::-1]])
        return {int(h): self._atoms[k].name for h, k in both[hydrogens[both[:, 0]]].tolist()}

    def _find_links(self, changes: list[tuple[str, ...]]) -> tuple[dict[Any, list[Any]], tuple[str, ...]]:
        """Return pairs of residues by link, and unknown bonds; add to `changes` what links change in residues."""
        torsions = peptide_torsions(self._topology)
        cis = {(c, n) for _, c, n, _ in torsions[is_cis(self._positions, torsions)].tolist()}
        links: dict[Any, list[Any]] = defaultdict(list)
        unlinked = []
        owner = np.array([atom.residue.index for atom in self._atoms], dtype=np.int64)
        across = self._pairs[owner[self._pairs[:, 0]] != owner[self._pairs[:, 1]]]
        for i, j in across.tolist():
            first, second = int(owner[i]), int(owner[j])
            known_ends = all(
                self._names[k] in self._library
                and not is_water(self._names[k])
                and k not in self._contradicted
                for k in (first, second)
            )
            if not known_ends or is_metal(self._atoms[i]) or is_metal(self._atoms[j]):
                continue
            ends = [(self._names[owner[k]], self._canonical(k)) for k in (i, j)]
            known = [
                (link, (second, first) if swapped else (first, second))
                for link, swapped in self._library.links_of(*ends, (i, j) in cis or (j, i) in cis)
            ]
            if not known:
                unlinked.append(f"{atom_label(self._atoms[i])} to {atom_label(self._atoms[j])}")
                continue
            link, pair = known[0]
            if len(known) > 1:  # the handedness of the anomeric carbon tells α links from β links
                link, pair = next((each for each in known if self._has_hands(*each)), known[0])
            for residue, side in zip(pair, (link.side1, link.side2)):
                if side.mod:
                    changes[residue] = (*changes[residue], side.mod)
            links[link.id].append((link, pair))
        return links, tuple(unlinked)

    def _has_hands(self, link: gemmi.ChemLink, pair: tuple[int, int]) -> bool:
        """Return whether the chiral centres of a link have its handedness between two residues."""
        for key, sign in Template.of_restraints(link.rt).chirals.items():
            atoms = [self._residues[pair[side - 1]].get(name, -1) for side, name in key]
            if min(atoms) >= 0 and sign * chiral_volumes(self._positions, np.array([atoms]))[0] < 0:
                return False
        return True

    def _canonical(self, atom: int) -> str:
        """Return the library's name for an atom."""
        residue, name = self._atoms[atom].residue, self._atoms[atom].name
        known = self._names[residue.index]
        if (1, name) in self._library.template(known).atoms:
            return name
        return self._atom_aliases.get(known, {}).get(name, name)

    def _matched(self, template: Template, name: str, atoms: NamedAtoms) -> list[int]:
        """Return the atoms of a residue in the template's order, -1 for missing ones."""
        aliases = self._atom_aliases.get(name, {})
        place: dict[str, int] = {}
        others = []
        for own, index in atoms.items():
            if (1, own) in template.atoms:
                place[own] = index
            else:
                others.append((own, index))
        left = []
        for own, index in others:
            alias = aliases.get(own)
            if alias not in place and (1, alias) in template.atoms and index not in self._carriers:
                place[alias] = index
            else:
                left.append(index)
        # Hydrogens with other names take unused names on the atom that carries them.
        free = {}
        for index in left:
            carrier = aliases.get(self._carriers.get(index, ""), self._carriers.get(index))
            if carrier not in free:
                free[carrier] = sorted(h for h in template.hydrogens().get(carrier, ()) if h not in place)
            if free[carrier]:
                place[free[carrier].pop(0)] = index
            else:
                self._unnamed.append(index)
        return [place.get(atom, -1) for _, atom in template.atoms]

    def _add_links(self, links: dict[Any, list[Any]], places: dict[int, Any], found: _Found) -> None:
        for members in links.values():
            template = Template.of_restraints(members[0][0].rt)
            needed = list(
                dict.fromkeys(
                    atom
                    for keys in (template.bonds, template.angles, template.torsions, template.chirals)
                    for key in keys
                    for atom in key
                )
            )
            needed += [a for _, plane in template.planes.values() for a in plane if a not in needed]
            rows = []
            for _, pair in members:
                row = []
                for side, name in needed:
                    columns, matrix = places[pair[side - 1]]
                    column = columns.get((1, name), -1)
                    row.append(int(matrix[column]) if column >= 0 else -1)
                rows.append(row)
            columns = {atom: column for column, atom in enumerate(needed)}
            labels = [self._residues[pair[0]].residue for _, pair in members]
            found.add(template, columns, np.array(rows), labels)

    def _assembled(self, found: _Found, unknown: tuple[str, ...], unlinked: tuple[str, ...]) -> GeometryTerms:
        bonds = IdealTerms(*found.terms("bonds"))
        angles = IdealTerms(*found.terms("angles", np.pi / 180.0))
        centres, signs, sigmas = found.terms("volumes")
        ideal = ideal_volumes(centres, bonds, angles, len(self._atoms))
        has_ideal = np.isfinite(ideal)
        centres, ideal, sigmas = centres[has_ideal], (signs * ideal)[has_ideal], sigmas[has_ideal]
        # A centre that is not flat keeps its handedness: a harmonic energy must not invert it.
        start = chiral_volumes(self._positions, centres)
        other = (start * ideal < 0) & (np.abs(start) > np.abs(ideal) / 4)
        return GeometryTerms(
            bonds,
            angles,
            Torsions(*found.terms("torsions", np.pi / 180.0)),
            Volumes(centres, np.where(other, -ideal, ideal), sigmas),
            PlaneSet(tuple(found.planes)),
            unknown,
            tuple(residue_label(self._residues[k].residue) for k in sorted(self._contradicted)),
            unlinked,
            tuple(atom_label(self._atoms[k]) for k in sorted(self._unnamed)),
            tuple(atom_label(self._atoms[k]) for k in centres[other, 0].tolist()),
            tuple(sorted(self._library.borrowed.intersection(self._names))),
            self._library.source,
        )


def is_cis(positions: np.ndarray, peptides: np.ndarray) -> np.ndarray:
    """Return which peptides take the ideal values of cis peptides, bool (P,). `peptides` int (P, 4): the atoms of ω."""
    return np.abs(torsion_angles(positions, peptides)) < np.pi / 3


def _lengths(positions: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    return np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)


def _angles(positions: np.ndarray, triples: np.ndarray) -> np.ndarray:
    first = positions[triples[:, 0]] - positions[triples[:, 1]]
    last = positions[triples[:, 2]] - positions[triples[:, 1]]
    sines = np.linalg.norm(np.cross(first, last), axis=1)
    return np.arctan2(sines, np.einsum("ij,ij->i", first, last))


_MEASURES = {2: _lengths, 3: _angles}
