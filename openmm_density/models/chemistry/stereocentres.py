"""Stereocentres: of amino acids and nucleotides by their names, of all other residues by bonds and geometry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from openmm import app

from .backbone import NamedAtoms, atoms_by_name
from .elements import is_hydrogen, is_metal
from .residue_names import standard_residue_names
from .topologies import bonded_pairs, found_once, hydrogen_mask
from .torsions import torsion_angles

IDEAL_IMPROPER = np.arcsin(1.0 / np.sqrt(3.0))
"""Improper torsion (35.3°) of an ideal tetrahedral centre and three of its neighbours."""
PYRAMIDAL = np.radians(20.0)
"""The smallest improper torsion of an sp3 centre where only geometry distinguishes it from an sp2 one."""
FLAT = np.radians(10.0)
"""A centre of an amino acid or nucleotide whose improper torsion is smaller than this has no handedness."""
LONGEST_CARBONYL = 1.32
"""Å; the bond of an alcohol or ether is longer by 0.1 Å."""

# Neighbours of each centre, in the order in which the improper torsion (centre, a, b, c) is positive for
# the natural handedness.
_PROTEIN_CENTRES = {"THR": ("CB", "CA", "OG1", "CG2"), "ILE": ("CB", "CA", "CG1", "CG2")}
_ALPHA_CENTRE = ("CA", "N", "C", "CB")
# Two of their neighbours differ by name alone.
_PROCHIRAL = {"LEU": ("CG", "CB", "CD2", "CD1"), "VAL": ("CB", "CA", "CG2", "CG1")}
_SUGAR_CENTRES = (
    ("C1'", "O4'", "C2'", ("N9", "N1")),
    ("C3'", "O3'", "C4'", ("C2'",)),
    ("C4'", "O4'", "C5'", ("C3'",)),
    ("C2'", "O2'", "C3'", ("C1'",)),
)


@found_once
def chiral_centres(topology: app.Topology) -> np.ndarray:
    """Return the chiral centres of amino acids and nucleotides, as the atoms of an improper torsion.

    Cα of amino acids, Cβ of threonine and isoleucine, and C1', C2' (RNA), C3' and C4' of nucleotides. Returns int64 (C, 4),
    centre and neighbours, in the order in which :func:`torsion_angles` is positive for L-amino acids and D-ribose.
    """
    centres = [found for names in atoms_by_name(topology) for found in _centres_of(names)]
    return np.array(centres, dtype=np.int64).reshape(-1, 4)


def prochiral_centres(topology: app.Topology) -> np.ndarray:
    """Return Cγ of leucine and Cβ of valine, whose methyl groups have names by their hand, as `chiral_centres` does others."""
    found = [
        tuple(names[name] for name in _PROCHIRAL[names.residue.name])
        for names in atoms_by_name(topology)
        if names.residue.name in _PROCHIRAL and all(name in names for name in _PROCHIRAL[names.residue.name])
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 4)


def with_hydrogens_opposite(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return positions (N, 3) with hydrogens on atoms with three other neighbours placed opposite to these.

    A hydrogen on their side, as damaged starts may have it, inverts the centre when its angles
    are brought to their ideal values. It is placed opposite to the sum of the three bond vectors, at its own distance.
    """
    light = hydrogen_mask(topology)
    pairs = bonded_pairs(topology)
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    count = np.bincount(ends[:, 0], minlength=len(light))
    n_light = np.bincount(ends[:, 0], weights=light[ends[:, 1]], minlength=len(light))
    centres = np.flatnonzero((count == 4) & (n_light == 1))
    begin = np.concatenate([[0], np.cumsum(count)])[centres]
    around = ends[begin[:, None] + np.arange(4), 1]
    around = np.take_along_axis(around, np.argsort(light[around], axis=1, kind="stable"), axis=1)
    arms = positions[around] - positions[centres][:, None]
    lengths = np.linalg.norm(arms, axis=2)
    outward = -(arms[:, :3] / lengths[:, :3, None]).sum(axis=1)
    inside = np.einsum("ij,ij->i", arms[:, 3], outward) < 0
    if not inside.any():
        return positions
    positions = positions.copy()
    direction = outward[inside] / np.linalg.norm(outward[inside], axis=1)[:, None]
    positions[around[inside, 3]] = positions[centres[inside]] + lengths[inside, 3, None] * direction
    return positions


def d_amino_acids(topology: app.Topology, positions: np.ndarray) -> dict[int, bool]:
    """Return whether amino acids have the D configuration, by residue index; those with a flat Cα are left out."""
    atoms = list(topology.atoms())
    centres = np.array(
        [each for each in chiral_centres(topology) if atoms[each[0]].name == "CA"], dtype=np.int64
    ).reshape(-1, 4)
    improper = torsion_angles(positions, centres)
    return {
        atoms[centre].residue.index: bool(angle < 0)
        for centre, angle in zip(centres[:, 0], improper)
        if abs(angle) >= FLAT
    }


def _centres_of(names: NamedAtoms) -> Iterator[tuple[int, ...]]:
    candidates = []
    if "C1'" in names:
        for centre, a, b, choices in _SUGAR_CENTRES:
            candidates += [(centre, a, b, c) for c in choices if c in names][:1]
    else:
        candidates.append(_ALPHA_CENTRE)
        if names.residue.name in _PROTEIN_CENTRES:
            candidates.append(_PROTEIN_CENTRES[names.residue.name])
    for candidate in candidates:
        if all(name in names for name in candidate):
            yield tuple(names[name] for name in candidate)


def other_centres(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return the tetrahedral atoms with four different neighbours in the residues that are not standard.

    A carbon has three heavy neighbours and a hydrogen, or four heavy ones; an atom of N, P, S or Si four. Neighbours
    differ where elements and bonds distinguish them, over the whole molecule; centres that differ only through other
    centres (cis and trans in a ring) are not found. Where a residue has no hydrogens, its carbons with three neighbours are
    tetrahedral if the improper torsion is 20° or more and no oxygen without another neighbour is at the distance of a double
    bond. `positions` (N, 3) in Å. Returns int64 (C, 4), centre and three of its neighbours.
    """
    ligands = _Ligands(topology)
    certain, likely = [], []
    for index in ligands.members:
        heavy = ligands.heavy_neighbours(index)
        if not ligands.are_different(heavy):
            continue
        symbol = ligands.symbol(index)
        attached = len(ligands.neighbours[index]) - len(heavy)
        if symbol == "C" and len(heavy) == 3:
            if not ligands.has_hydrogens(index):
                likely.append((index, *heavy))
            elif attached == 1:
                certain.append((index, *heavy))
        elif symbol in ("C", "N", "P", "S", "Si") and len(heavy) == 4 and not attached:
            certain.append((index, *heavy[:3]))
    by_shape = np.array(likely, dtype=np.int64).reshape(-1, 4)
    steep = np.abs(torsion_angles(positions, by_shape)) >= PYRAMIDAL
    by_shape = [atoms for atoms in by_shape[steep].tolist() if not ligands.is_carbonyl(atoms, positions)]
    return np.array(sorted([*certain, *map(tuple, by_shape)]), dtype=np.int64).reshape(-1, 4)


class _Ligands:
    """Non-standard residues and the atoms bonded to them, as a graph without metals, which do not change hybridisation."""

    def __init__(self, topology: app.Topology) -> None:
        standard = standard_residue_names()
        others = {residue for residue in topology.residues() if residue.name not in standard}
        residues = {
            atom.residue
            for pair in topology.bonds()
            if (pair[0].residue in others or pair[1].residue in others) and not any(map(is_metal, pair))
            for atom in pair
        }
        self.atoms = {
            atom.index: atom
            for residue in topology.residues()
            if residue in residues
            for atom in residue.atoms()
        }
        self.members = [i for i, atom in self.atoms.items() if atom.residue.name not in standard]
        self.neighbours: dict[int, list[int]] = {index: [] for index in self.atoms}
        for a, b in topology.bonds() if self.atoms else ():
            if a.index in self.atoms and b.index in self.atoms and not (is_metal(a) or is_metal(b)):
                self.neighbours[a.index].append(b.index)
                self.neighbours[b.index].append(a.index)
        self._hydrogens = {index for index, atom in self.atoms.items() if is_hydrogen(atom)}
        self._with_hydrogens = {self.atoms[index].residue for index in self._hydrogens}
        self._classes = self._symmetry_classes()

    def symbol(self, index: int) -> str:
        """Return an atom's element."""
        element = self.atoms[index].element
        return "" if element is None else element.symbol

    def heavy_neighbours(self, index: int) -> list[int]:
        """Return the neighbours that are not hydrogen."""
        return sorted(k for k in self.neighbours[index] if k not in self._hydrogens)

    def has_hydrogens(self, index: int) -> bool:
        """Return whether an atom's residue has hydrogens in the model."""
        return self.atoms[index].residue in self._with_hydrogens

    def are_different(self, atoms: list[int]) -> bool:
        """Return whether elements and bonds distinguish these atoms."""
        return len({self._classes[k] for k in atoms}) == len(atoms)

    def is_carbonyl(self, centre: list[int], positions: np.ndarray) -> bool:
        """Return whether the carbon (first argument) has a double bond to the oxygen."""
        return any(
            self.symbol(k) == "O"
            and len(self.neighbours[k]) == 1
            and np.linalg.norm(positions[k] - positions[centre[0]]) < LONGEST_CARBONYL
            for k in centre[1:]
        )

    def _symmetry_classes(self) -> dict[int, int]:
        """Return a class number for each atom, equal where elements and bonds do not distinguish atoms (Morgan's refinement)."""
        labels: dict[int, Any] = {
            index: (self.symbol(index), len(near)) for index, near in self.neighbours.items()
        }
        count = -1
        while True:
            numbers = {label: number for number, label in enumerate(sorted(set(labels.values())))}
            classes = {index: numbers[label] for index, label in labels.items()}
            if len(numbers) == count:
                return classes
            count = len(numbers)
            labels = {
                index: (classes[index], *sorted(classes[k] for k in near))
                for index, near in self.neighbours.items()
            }
