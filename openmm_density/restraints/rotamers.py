"""`RotamerRestraint`: side chains stay in, or come back to, staggered torsions."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from .restraint import Restraint, Violation
from .torsions import torsion_angles

ROTAMER_STRENGTH = 20.0
"""kJ/mol: what a torsion 40° from staggered costs. An eclipsed one costs 45 kJ/mol."""
STAGGERED = np.radians((-60.0, 60.0, 180.0))
"""Torsions about bonds of two tetrahedral atoms in rotamers (Lovell et al., Proteins 40, 389 (2000))."""
LARGEST_DEVIATION = np.radians(40.0)
"""From these: beyond it a torsion is eclipsed. Of the side chains in models at about 1 Å resolution less than 1% are."""
ROTAMERS_HELD = (
    "Side chains are held staggered at the end, so that few rotamer outliers are no sign of a good fit."
)

SIDE_CHAINS = {
    "ARG": ("N", "CA", "CB", "CG", "CD", "NE"),
    "ASN": ("N", "CA", "CB", "CG"),
    "ASP": ("N", "CA", "CB", "CG"),
    "CYS": ("N", "CA", "CB", "SG"),
    "GLN": ("N", "CA", "CB", "CG", "CD"),
    "GLU": ("N", "CA", "CB", "CG", "CD"),
    "HIS": ("N", "CA", "CB", "CG"),
    "ILE": ("N", "CA", "CB", "CG1", "CD1"),
    "LEU": ("N", "CA", "CB", "CG", "CD1"),
    "LYS": ("N", "CA", "CB", "CG", "CD", "CE", "NZ"),
    "MET": ("N", "CA", "CB", "CG", "SD", "CE"),
    "PHE": ("N", "CA", "CB", "CG"),
    "SER": ("N", "CA", "CB", "OG"),
    "THR": ("N", "CA", "CB", "OG1"),
    "TRP": ("N", "CA", "CB", "CG"),
    "TYR": ("N", "CA", "CB", "CG"),
    "VAL": ("N", "CA", "CB", "CG1"),
}
"""The atoms along each side chain (IUPAC), as far as its torsions are about bonds of tetrahedral atoms: those of aromatic rings,
amides and carboxylates vary too broadly for a limit."""


class RotamerRestraint(Restraint):
    """Push the torsions of side chains about bonds of two tetrahedral atoms towards staggered ones.

    E = k max(0, 1 + cos 3χ - ½)², with k the Context parameter: no force within 20° of -60°, 60° and 180°, and none at 0°, 120°
    and -120°, between which the density chooses. A torsion counts as violated more than 40° from staggered.

    Do not use it where side chains have to change their rotamer: it raises the barriers between them.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Standard amino acids have such torsions.
    positions : Quantity or array_like of shape (N, 3)
        Å where plain. Nothing is kept of them.
    strength, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`; k is in kJ/mol.

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """

    name = "rotamers"
    usual_strength = ROTAMER_STRENGTH
    strength_unit = unit.kilojoule_per_mole
    usual_parameter_name = "rotamer_strength"

    def __init__(self, topology: app.Topology, positions: Any, strength: Any = None, **common: Any) -> None:
        super().__init__(topology, positions, strength, **common)
        self.torsions = side_chain_torsions(self.topology)[0]
        if self.n_terms:
            self.notes.append(ROTAMERS_HELD)

    @property
    def n_terms(self) -> int:
        """Number of torsions."""
        return len(self.torsions)

    def create_force(self) -> openmm.CustomTorsionForce:
        """Make the force that ``System.addForce`` takes; each call makes another."""
        force = openmm.CustomTorsionForce(f"{self.parameter_name}*max(0, 0.5 + cos(3*theta))^2")
        for atoms in self.torsions.tolist():
            force.addTorsion(*atoms, [])
        return self._finish(force)

    def violations(self, positions: Any) -> list[Violation]:
        """List the eclipsed torsions, the worst first; see `Restraint.violations`."""
        angles = torsion_angles(self._checked(positions), self.torsions)
        deviations = from_staggered(angles)
        return self._violated(
            self.torsions,
            np.degrees(angles),
            np.degrees(angles - deviations),
            float(np.degrees(LARGEST_DEVIATION)),
            ["side-chain torsion"] * len(angles),
            "°",
        )


def side_chain_torsions(topology: app.Topology) -> tuple[np.ndarray, np.ndarray]:
    """Find the torsions about bonds of two tetrahedral atoms in side chains.

    Parameters
    ----------
    topology : openmm.app.Topology
        Standard amino acids are looked at; atoms that are missing end a side chain.

    Returns
    -------
    torsions : np.ndarray of int, shape (T, 4)
        Outwards from the backbone (IUPAC's χ1, χ2 …).
    residues : np.ndarray of int, shape (T,)
    """
    torsions: list[tuple[int, ...]] = []
    owners: list[int] = []
    for residue in topology.residues():
        indices = {atom.name: atom.index for atom in residue.atoms()}
        names = SIDE_CHAINS.get(residue.name, ())
        for first in range(len(names) - 3):
            quadruple = names[first : first + 4]
            if not all(name in indices for name in quadruple):
                break
            torsions.append(tuple(indices[name] for name in quadruple))
            owners.append(residue.index)
    return np.array(torsions, dtype=np.int64).reshape(-1, 4), np.array(owners, dtype=np.int64)


def from_staggered(angles: np.ndarray) -> np.ndarray:
    """Return how far angles are from the nearest staggered one, in radians, -π/3 … π/3."""
    return np.mod(angles, 2 * np.pi / 3) - np.pi / 3
