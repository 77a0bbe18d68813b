"""Where a model looks wrong: residues that fit the map worse than those around them, or have unusual torsions."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from ...validation.geometry import ramachandran
from .molecule import Molecule

FALLEN = 0.1
"""By how much a residue fits worse than is usual there where it is suspicious. Of loops that gained by being turned over, in
EMD-6374-1, all had fallen by 0.19 and more, and none was all in favoured regions; of 280 peptides of the deposited model three
are suspicious, and of 20 loops that fell by 0.05, one."""

# Residues around each that it is compared with, and the part of them that fit worse than what is expected of it: where a map
# shows less, all of them do, and beside what is wrong some are wrong too.
_AROUND, _PART = 30, 0.6


def unusual_torsions(molecule: Molecule, positions: np.ndarray) -> np.ndarray:
    """Return the residues whose φ and ψ are not in a favoured region; all of them without Ramachandran tables."""
    found = ramachandran(molecule.topology, positions)
    result = np.zeros(molecule.topology.getNumResidues(), dtype=bool)
    result[found.residues] = True if found.regions is None else found.regions != "F"
    return result


def falls(molecule: Molecule, positions: np.ndarray, correlations: np.ndarray) -> np.ndarray:
    """Return by how much the correlation of each residue is lower than is usual around it and in the whole model; NaN stays."""
    known = np.flatnonzero(np.isfinite(correlations))
    result = np.full(len(correlations), np.nan)
    if not len(known):
        return result
    counts = np.maximum(np.bincount(molecule.residue_of, minlength=len(correlations)), 1)
    sums = (np.bincount(molecule.residue_of, each, len(correlations)) for each in positions.T)
    centres = np.stack(list(sums), axis=1)[known] / counts[known, None]
    around = cKDTree(centres).query(centres, min(_AROUND, len(known)))[1].reshape(len(known), -1)
    usual = np.quantile(correlations[known][around], _PART, axis=1)
    result[known] = np.minimum(usual, np.median(correlations[known])) - correlations[known]
    return result
