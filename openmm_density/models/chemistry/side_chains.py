"""The torsions of side chains, and the staggered angles of rotamers."""

from __future__ import annotations

import numpy as np
from openmm import app

STAGGERED = (-60.0, 60.0, 180.0)
"""Torsions of rotamers about bonds of two tetrahedral atoms, in degrees (Lovell et al., Proteins 40, 389 (2000))."""
LARGEST_DEVIATION = np.radians(40.0)
"""Deviation from these beyond which a torsion is eclipsed: in less than 1% of side chains of models at about 1 Å resolution."""

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
"""The atoms along each side chain (IUPAC), as long as its torsions are about bonds of tetrahedral atoms: those of aromatic rings,
amides and carboxylates vary too broadly for a limit."""

PLANAR_ENDS = {
    "ARG": "CZ",
    "ASN": "OD1",
    "ASP": "OD1",
    "GLN": "OE1",
    "GLU": "OE1",
    "HIS": "ND1",
    "PHE": "CD1",
    "TRP": "CD1",
    "TYR": "CD1",
}
"""For side chains that end in a planar group: the atom after those of `SIDE_CHAINS` (IUPAC), whose torsion turns the group."""
SYMMETRIC_ENDS = frozenset({"ASP", "GLU", "PHE", "TYR"})
"""Those whose planar group looks the same after half a turn."""


def side_chain_torsions(topology: app.Topology) -> tuple[np.ndarray, np.ndarray]:
    """Return torsions int (T, 4) of tetrahedral side-chain bonds, outwards (IUPAC's χ1, χ2 …), and their residues int (T,)."""
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
    """Return the differences of angles from the nearest staggered one, in radians, -π/3 … π/3."""
    return np.mod(angles, 2 * np.pi / 3) - np.pi / 3
