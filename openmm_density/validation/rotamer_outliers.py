"""Rotamer outliers: side-chain torsions that are far from staggered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from ..chemistry.side_chains import LARGEST_DEVIATION, from_staggered, side_chain_torsions
from ..chemistry.torsions import torsion_angles


@dataclass(frozen=True)
class RotamerDeviations:
    """Deviations of the side chains of a model from staggered torsions.

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
        """Whether each residue is a rotamer outlier, shape (R,)."""
        return self.deviations > LARGEST_DEVIATION


def rotamer_deviations(topology: app.Topology, positions: np.ndarray) -> RotamerDeviations:
    """Return the deviations of side chains from staggered torsions.

    Rotamers have their torsions about bonds of tetrahedral atoms near −60°, 60° and 180° (Lovell et al., Proteins 40, 389
    (2000)); a side chain with one more than 40° from all of these is no rotamer. The converse does not hold: MolProbity's
    outliers, from multidimensional tables, include rare combinations of staggered torsions.

    Parameters
    ----------
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    torsions, owners = side_chain_torsions(topology)
    deviations = np.abs(from_staggered(torsion_angles(positions, torsions)))
    residues, which = np.unique(owners, return_inverse=True)
    worst = np.zeros(len(residues))
    np.maximum.at(worst, which, deviations)
    return RotamerDeviations(residues, worst)
