"""Helices and strands, as DSSP finds them: their torsions and their hydrogen bonds."""

from __future__ import annotations

from functools import cached_property

import mdtraj
import numpy as np
from openmm import app

from .backbone import BACKBONE, NamedAtoms, atoms_by_name, peptide_bonds

LONGEST_HYDROGEN_BOND = 3.6
"""Å from N to O; DSSP's energy alone also counts longer ones."""
DSSP_ENERGY = -0.5
"""kcal/mol, below which DSSP counts a hydrogen bond."""


def secondary_structure_torsions(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return the atoms of φ and ψ of every residue in a helix or strand (DSSP).

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : np.ndarray, shape (N, 3)
        Å.

    Returns
    -------
    np.ndarray of int, shape (n, 4)
    """
    backbone = _Backbone(topology, positions)
    phi, psi = [], []
    for before, behind in backbone.bonds:
        for torsions, residue, wanted in (
            (phi, behind, (before["C"], *map(behind.get, ("N", "CA", "C")))),
            (psi, before, (*map(before.get, ("N", "CA", "C")), behind["N"])),
        ):
            if None not in wanted and backbone.is_structured[residue.index]:
                torsions.append(wanted)
    return np.array(sorted(phi) + sorted(psi), dtype=np.int64).reshape(-1, 4)


def backbone_hydrogen_bonds(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return N and O of every hydrogen bond between the backbones of helices and strands (DSSP).

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : np.ndarray, shape (N, 3)
        Å.

    Returns
    -------
    np.ndarray of int, shape (n, 2)
    """
    backbone = _Backbone(topology, positions)
    return np.array(
        [
            (donor["N"], acceptor["O"])
            for donor, acceptor in backbone.hydrogen_bonds
            if backbone.is_structured[donor.index]
            and backbone.is_structured[acceptor.index]
            and np.linalg.norm(positions[donor["N"]] - positions[acceptor["O"]]) < LONGEST_HYDROGEN_BOND
        ],
        dtype=np.int64,
    ).reshape(-1, 2)


def secondary_structure(topology: app.Topology, positions: np.ndarray) -> list[str]:
    """Return for each residue "H" in a helix, "E" in a strand, or "C" (DSSP).

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    return _Backbone(topology, positions).codes


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
        """Of each residue "H", "E" or "C"."""
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
