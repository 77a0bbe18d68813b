"""Where a model's residues lie in the Ramachandran plot, by the tables of pyrama."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from ..chemistry.ramachandran_tables import (
    ALLOWED,
    CELL,
    CENTRES,
    FAVOURED,
    backbone_torsions,
    ramachandran_tables,
)
from ..chemistry.torsions import torsion_angles

TABLES_MISSING = (
    "The Ramachandran plot was left out, because the tables of pyrama were not found or not readable; to have them: "
    "pip install pyrama"
)
"""What to tell a user for whom `Ramachandran.regions` is None."""


@dataclass(frozen=True)
class Ramachandran:
    """The backbone torsions of a model's residues, and the regions that they lie in.

    Attributes
    ----------
    residues : np.ndarray of int, shape (R,)
        Indices of the residues that have both torsions.
    phi, psi : np.ndarray, shape (R,)
        Radians; of D-amino acids with the opposite sign.
    regions : np.ndarray of str, shape (R,), or None
        "F" for favoured, "a" for allowed, "." for neither; None without the tables, see `TABLES_MISSING`.
    """

    residues: np.ndarray
    phi: np.ndarray
    psi: np.ndarray
    regions: np.ndarray | None


def ramachandran(topology: app.Topology, positions: np.ndarray) -> Ramachandran:
    """Find where the residues of a model lie in the Ramachandran plot.

    The regions are those of Lovell et al., Proteins 50, 437 (2003), from the Top500 structures, for glycine, proline, residues
    before proline and all others. Their tables, in cells of 2°, come with the package ``pyrama``. MolProbity now has
    newer ones, from 8000 structures, and interpolates: near a border a residue can come out otherwise there.

    Parameters
    ----------
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    found = backbone_torsions(topology, positions)
    phi = found.handedness * torsion_angles(positions, found.atoms[:, :4])
    psi = found.handedness * torsion_angles(positions, found.atoms[:, 1:])
    return Ramachandran(found.residues, phi, psi, _regions(found.plots, phi, psi))


def _regions(plots: np.ndarray, phi: np.ndarray, psi: np.ndarray) -> np.ndarray | None:
    tables = ramachandran_tables()
    if tables is None:
        return None
    phi_cells, psi_cells = (
        np.floor((np.degrees(angle) + 180.0) / CELL).astype(np.int64) % len(CENTRES) for angle in (phi, psi)
    )
    regions = np.full(len(plots), ".", dtype="<U1")
    for plot, allowed in ALLOWED.items():
        members = np.flatnonzero(plots == plot)
        usual = tables[plot][phi_cells[members], psi_cells[members]]
        regions[members[usual >= allowed]] = "a"
        regions[members[usual >= FAVOURED]] = "F"
    return regions
