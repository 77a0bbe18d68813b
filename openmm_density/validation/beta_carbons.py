"""How far each Cβ is from where the backbone says that it is: what distorts a residue as a whole shows here."""

from __future__ import annotations

import numpy as np
from openmm import app

from ..models.chemistry.backbone import named_atom_table
from ..models.chemistry.hydrogen_places import directions_at, units
from ..models.chemistry.residues import is_d_amino_acid

LARGE_DEVIATION = 0.25
"""Å from which a Cβ is an outlier (as MolProbity)."""

# Lovell et al., Proteins 50, 437 (2003): Cα-Cβ in Å, the angles C-Cα-Cβ and N-Cα-Cβ, and the torsions N-C-Cα-Cβ and C-N-Cα-Cβ
# of an L-amino acid in degrees.
_USUAL = (1.530, 110.1, 110.5, 122.8, -122.6)
_BRANCHED = (1.540, 109.1, 111.5, 123.4, -122.0)
_IDEAL = {
    "ALA": (1.536, 110.1, 110.6, 122.9, -122.6),
    "PRO": (1.530, 112.2, 103.0, 115.1, -120.7),
    **dict.fromkeys(("ILE", "THR", "VAL"), _BRANCHED),
}


class BetaCarbons:
    """The Cβ of a topology.

    `residues` int (R,): the indices of those that have it and N, Cα and C; `atoms` int (R, 4): these, Cβ last; `torsions` (2, R):
    what N-C-Cα-Cβ and C-N-Cα-Cβ ideally are, in radians.
    """

    def __init__(self, topology: app.Topology) -> None:
        table = named_atom_table(topology, ("N", "CA", "C", "CB"))
        self.residues = np.flatnonzero((table >= 0).all(axis=1))
        self.atoms = table[self.residues]
        kinds = [residue.name for residue in topology.residues()]
        ideal = np.array([_IDEAL.get(kinds[i], _USUAL) for i in self.residues]).reshape(-1, 5)
        hands = np.array([-1.0 if is_d_amino_acid(kinds[i]) else 1.0 for i in self.residues])
        self._length, angles, torsions = ideal[:, 0], np.radians(ideal[:, 1:3]), np.radians(ideal[:, 3:])
        self._angles, self.torsions = angles.T, (hands[:, None] * torsions).T

    def deviations(self, positions: np.ndarray) -> np.ndarray:
        """Return how far each Cβ is from its ideal place at positions (N, 3) in Å, shape (R,).

        The ideal place is in the mean of the directions that follow from N and from C, so that an unusual angle between them does
        not count.
        """
        n, alpha, c, beta = positions[self.atoms].transpose(1, 0, 2)
        directions = [
            directions_at(units(alpha - near), far - near, angles[:, None, None], torsions[:, None])[:, 0]
            for near, far, angles, torsions in zip((c, n), (n, c), self._angles, self.torsions)
        ]
        ideal = alpha + self._length[:, None] * units(sum(directions))
        return np.linalg.norm(beta - ideal, axis=1)
