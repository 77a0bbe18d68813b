"""Which side-chain torsions are usual: staggered ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from openmm_density.restraints import torsion_angles

LARGEST_DEVIATION = np.radians(40.0)
"""From −60°, 60° or 180°: beyond it a torsion about a bond of two tetrahedral atoms is eclipsed. Of the side chains in models at
about 1 Å resolution less than 1% are."""

# The torsions about bonds between tetrahedral atoms, outwards from the backbone (IUPAC's χ1, χ2 …). Those of aromatic rings,
# amides and carboxylates vary too broadly for a limit.
_ATOMS = {
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


@dataclass(frozen=True)
class SideChains:
    """How far the side chains of a model are from staggered.

    Attributes
    ----------
    residues : np.ndarray of int, shape (R,)
        Indices of the residues that have a torsion between tetrahedral atoms.
    deviations : np.ndarray, shape (R,)
        Radians from staggered, 0 … π/3, of the worst such torsion of each.
    """

    residues: np.ndarray
    deviations: np.ndarray

    @property
    def eclipsed(self) -> np.ndarray:
        """Which of the residues are rotamer outliers, shape (R,)."""
        return self.deviations > LARGEST_DEVIATION


def side_chains(topology: app.Topology, positions: np.ndarray) -> SideChains:
    """Find how far the side chains of a model are from staggered.

    Rotamers have their torsions about bonds of tetrahedral atoms near −60°, 60° and 180° (Lovell et al., Proteins 40, 389
    (2000)); a side chain with one more than 40° from all of these is no rotamer. The converse does not hold: MolProbity's
    outliers, from multidimensional tables, include rare combinations of staggered torsions.

    Parameters
    ----------
    topology : openmm.app.Topology
        Standard amino acids are looked at; atoms that are missing end a side chain.
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    torsions: list[tuple[int, ...]] = []
    owners: list[int] = []
    for residue in topology.residues():
        indices = {atom.name: atom.index for atom in residue.atoms()}
        names = _ATOMS.get(residue.name, ())
        for first in range(len(names) - 3):
            quadruple = names[first : first + 4]
            if not all(name in indices for name in quadruple):
                break
            torsions.append(tuple(indices[name] for name in quadruple))
            owners.append(residue.index)
    angles = torsion_angles(positions, np.array(torsions, dtype=np.int64).reshape(-1, 4))
    deviations = np.abs(np.mod(angles, 2 * np.pi / 3) - np.pi / 3)
    residues, which = np.unique(np.array(owners, dtype=np.int64), return_inverse=True)
    worst = np.zeros(len(residues))
    np.maximum.at(worst, which, deviations)
    return SideChains(residues, worst)
