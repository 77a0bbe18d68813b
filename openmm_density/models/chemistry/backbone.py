"""Residues by the names of their atoms, and the bonds that join them into chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gemmi
import numpy as np
from openmm import app

BACKBONE = ("N", "CA", "C", "O")
"""Heavy backbone atoms of an amino acid; a C-terminal one also has OXT."""


class NamedAtoms(dict[str, int]):
    """Atom indices of one residue by name."""

    residue: app.topology.Residue
    index: int

    def first_of(self, *names: str) -> int | None:
        """Return the first of these atoms that the residue has."""
        return next((self[name] for name in names if name in self), None)


def atoms_by_name(topology: app.Topology) -> list[NamedAtoms]:
    """Return every residue's atoms by name, in the order of the residues."""
    result = []
    for index, residue in enumerate(topology.residues()):
        names = NamedAtoms()
        names.residue, names.index = residue, index
        for atom in residue.atoms():
            names.setdefault(atom.name, atom.index)
        result.append(names)
    return result


def named_atom_table(topology: app.Topology, names: Sequence[str]) -> np.ndarray:
    """Return the atoms of these names in each residue, int (R, K), -1 where it has none; C1* stands for C1'."""
    columns = {name: column for column, name in enumerate(names)}
    table = np.full((topology.getNumResidues(), len(names)), -1)
    found = [
        (atom.residue.index, column, atom.index)
        for atom in topology.atoms()
        if (column := columns.get(atom.name.replace("*", "'"))) is not None
    ]
    # Of two atoms with one name in a residue the first counts.
    rows, where, atoms = np.array(found[::-1], dtype=np.int64).reshape(-1, 3).T
    table[rows, where] = atoms
    return table


def peptide_bonds(
    topology: app.Topology, residues: list[NamedAtoms]
) -> Iterator[tuple[NamedAtoms, NamedAtoms]]:
    """Yield the residues before and after each C–N bond between residues; no pair spans a gap."""
    by_residue = {names.residue: names for names in residues}
    for a, b in topology.bonds():
        if a.residue is not b.residue and {a.name, b.name} == {"C", "N"}:
            carbon, nitrogen = (a, b) if a.name == "C" else (b, a)
            yield by_residue[carbon.residue], by_residue[nitrogen.residue]


def peptide_chains(topology: app.Topology) -> tuple[dict[int, list[int]], list[np.ndarray]]:
    """Return the atoms N, CA and C of each residue that has them, by its index, and the chains of these, of two and more."""
    named = atoms_by_name(topology)
    frames = {
        names.index: [names[n] for n in ("N", "CA", "C")]
        for names in named
        if {"N", "CA", "C"} <= names.keys()
    }
    following = {
        before.index: behind.index
        for before, behind in peptide_bonds(topology, named)
        if before.index in frames and behind.index in frames
    }
    found = []
    for start in sorted(frames.keys() - set(following.values())):
        chain = [start]
        while chain[-1] in following and len(chain) <= len(named):
            chain.append(following[chain[-1]])
        if len(chain) > 1:
            found.append(np.array(chain))
    return frames, found


def trace_atom(names: NamedAtoms) -> int | None:
    """Return the atom that represents a residue of a polymer: Cα, or C1' of a nucleotide; None for others."""
    if "CA" in names and (len(names) > 1 or gemmi.find_tabulated_residue(names.residue.name).is_amino_acid()):
        return names["CA"]  # a calcium ion is also named CA
    return names.first_of("C1'", "C1*") if is_nucleotide(names) else None


def is_nucleotide(names: NamedAtoms) -> bool:
    """Return whether a residue has a nucleotide's sugar, judged by its atoms, since its name can be anything."""
    return ("C1'" in names and "C4'" in names) or ("C1*" in names and "C4*" in names)


def chains(residues: list[NamedAtoms]) -> list[np.ndarray]:
    """Return the residues of each polymer chain; chains with one id count as one as long as no residue number repeats."""
    found: dict[tuple[str, int], list[int]] = {}
    taken: dict[str, list[set[tuple[str, str]]]] = {}
    for names in residues:
        if trace_atom(names) is None:
            continue
        residue = names.residue
        number = residue.id, residue.insertionCode
        copies = taken.setdefault(residue.chain.id or "", [set()])
        if number in copies[-1]:
            copies.append(set())
        copies[-1].add(number)
        found.setdefault((residue.chain.id or "", len(copies)), []).append(names.index)
    return [np.array(chain) for chain in found.values()]
