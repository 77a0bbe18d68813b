"""Helices and strands by DSSP: their torsions and their hydrogen bonds."""

from __future__ import annotations

from functools import cached_property

import mdtraj
import numpy as np
from openmm import app

from .backbone import BACKBONE, NamedAtoms, atoms_by_name, peptide_bonds
from .topologies import found_once

LONGEST_HYDROGEN_BOND = 3.6
"""Å from N to O; by DSSP's energy alone, longer ones would count too."""
DSSP_ENERGY = -0.5
"""kcal/mol, below which DSSP counts a hydrogen bond."""

# From Kabsch and Sander, Biopolymers 22, 2577 (1983): the product of the charges in kcal/mol Å; in Å, the shortest distance that
# counts, the length of N–H, and how far apart N and O may be for an energy below `DSSP_ENERGY`.
_CHARGES, _SHORTEST, _NITROGEN_HYDROGEN, _FARTHEST = 27.9, 0.5, 1.01, 5.2
_KILOJOULES_PER_KILOCALORIE = 4.184


def secondary_structure_torsions(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return the atoms of φ and ψ of every residue in a helix or strand (DSSP). `positions` (N, 3) in Å."""
    return _torsions_and_bonds(topology, positions)[0].copy()


def backbone_hydrogen_bonds(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return N and O of every hydrogen bond between the backbones of helices and strands (DSSP). `positions` (N, 3) in Å."""
    return _torsions_and_bonds(topology, positions)[1].copy()


@found_once
def _torsions_and_bonds(topology: app.Topology, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the torsions and the hydrogen bonds of helices and strands; two restraints ask for them."""
    backbone = _Backbone(topology, positions)
    return _torsions(backbone), _bonds(backbone, positions)


def _torsions(backbone: _Backbone) -> np.ndarray:
    phi, psi = [], []
    for before, behind in backbone.bonds:
        for torsions, residue, wanted in (
            (phi, behind, (before["C"], *map(behind.get, ("N", "CA", "C")))),
            (psi, before, (*map(before.get, ("N", "CA", "C")), behind["N"])),
        ):
            if None not in wanted and backbone.is_structured[residue.index]:
                torsions.append(wanted)
    return np.array(sorted(phi) + sorted(psi), dtype=np.int64).reshape(-1, 4)


def _bonds(backbone: _Backbone, positions: np.ndarray) -> np.ndarray:
    bonds = [
        (donor["N"], acceptor["O"])
        for donor, acceptor in backbone.hydrogen_bonds
        if backbone.is_structured[donor.index] and backbone.is_structured[acceptor.index]
    ]
    pairs = np.array(bonds, dtype=np.int64).reshape(-1, 2)
    lengths = np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1)
    return pairs[lengths < LONGEST_HYDROGEN_BOND]


def secondary_structure(topology: app.Topology, positions: np.ndarray) -> list[str]:
    """Return for each residue "H" in a helix, "E" in a strand, or "C" (DSSP). `positions` (N, 3) in Å."""
    return _Backbone(topology, positions).codes


class HydrogenBonds:
    """The hydrogen bonds between backbones, by DSSP's energy."""

    def __init__(self, topology: app.Topology) -> None:
        residues = atoms_by_name(topology)
        bonds = [(a, b) for a, b in peptide_bonds(topology, residues) if "O" in a and "C" in a and "N" in b]
        self._acceptors = np.array([(a["C"], a["O"]) for a, _ in bonds], dtype=np.int64).reshape(-1, 2)
        self._donors = np.array([b["N"] for _, b in bonds], dtype=np.int64)
        self._gives = np.array([b.residue.name != "PRO" for _, b in bonds], dtype=bool)

    def energy(self, positions: np.ndarray, atoms: np.ndarray) -> float:
        """Return the energy in kJ/mol of all bonds that some atoms take part in. `positions` (N, 3) in Å."""
        carbons, oxygens = positions[self._acceptors].transpose(1, 0, 2)
        nitrogens = positions[self._donors]
        moving = np.isin(self._donors, atoms), np.isin(self._acceptors, atoms).any(axis=1)
        donor, acceptor = (
            np.concatenate(pairs)
            for pairs in zip(
                _near_pairs(nitrogens, oxygens, moving[0], np.ones_like(moving[1])),
                # Bonds between two atoms that move are among the others.
                _near_pairs(nitrogens, oxygens, ~moving[0], moving[1]),
            )
        )
        # Neither within a peptide nor between consecutive residues.
        counts = (np.abs(donor - acceptor) > 1) & self._gives[donor]
        donor, acceptor = donor[counts], acceptor[counts]
        if not len(donor):
            return 0.0
        away = carbons - oxygens
        hydrogens = nitrogens + _NITROGEN_HYDROGEN * away / np.linalg.norm(away, axis=1, keepdims=True)

        def inverse(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return 1 / np.maximum(np.linalg.norm(a - b, axis=1), _SHORTEST)

        n, h, c, o = nitrogens[donor], hydrogens[donor], carbons[acceptor], oxygens[acceptor]
        energies = _CHARGES * (inverse(o, n) + inverse(c, h) - inverse(o, h) - inverse(c, n))
        return _KILOJOULES_PER_KILOCALORIE * float(energies[energies < DSSP_ENERGY].sum())


def _near_pairs(
    points: np.ndarray, others: np.ndarray, among: np.ndarray, among_others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of points (n, 3) and others (m, 3) close enough for a hydrogen bond."""
    rows, columns = np.flatnonzero(among), np.flatnonzero(among_others)
    apart = ((points[rows, None] - others[columns]) ** 2).sum(axis=2)
    first, second = np.nonzero(apart < _FARTHEST**2)
    return rows[first], columns[second]


class _Backbone:
    """The input of DSSP: the residues with a whole backbone, whatever their names, in unbroken chains."""

    def __init__(self, topology: app.Topology, positions: np.ndarray) -> None:
        self.residues = atoms_by_name(topology)
        self.bonds = list(peptide_bonds(topology, self.residues))
        self._whole = [names for names in self.residues if names.keys() >= set(BACKBONE)]
        joined = {(before.index, behind.index) for before, behind in self.bonds}
        own = mdtraj.Topology()
        for previous, names in zip([None, *self._whole], self._whole):
            if previous is None or (previous.index, names.index) not in joined:
                chain = own.add_chain()
            residue = own.add_residue("PRO" if names.residue.name == "PRO" else "ALA", chain)
            for name in BACKBONE:
                own.add_atom(name, mdtraj.element.get_by_symbol(name[0]), residue)
        atoms = [names[name] for names in self._whole for name in BACKBONE]
        self._trajectory = mdtraj.Trajectory(positions[atoms] / 10.0, own)

    @cached_property
    def codes(self) -> list[str]:
        """The code of each residue: "H", "E" or "C"."""
        found = ["C"] * len(self.residues)
        if self._whole:
            for names, code in zip(self._whole, mdtraj.compute_dssp(self._trajectory)[0]):
                found[names.index] = str(code) if code in ("H", "E") else "C"
        return found

    @cached_property
    def is_structured(self) -> np.ndarray:
        """Whether each residue is in a helix or strand, shape (R,)."""
        return np.array([code != "C" for code in self.codes], dtype=bool)

    @cached_property
    def hydrogen_bonds(self) -> list[tuple[NamedAtoms, NamedAtoms]]:
        """Donor and acceptor of every bond."""
        if not self._whole:
            return []
        # mdtraj's matrix has acceptors as rows and donors as columns.
        energies = mdtraj.kabsch_sander(self._trajectory)[0].tocoo()
        return [
            (self._whole[donor], self._whole[acceptor])
            for acceptor, donor, energy in sorted(zip(energies.row, energies.col, energies.data))
            if energy < DSSP_ENERGY
        ]
