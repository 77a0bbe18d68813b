"""Torsion angles, among them those of peptide bonds."""

from __future__ import annotations

import numpy as np
from openmm import app

from .backbone import atoms_by_name, peptide_bonds
from .topologies import found_once


def torsion_angles(positions: np.ndarray, torsions: np.ndarray) -> np.ndarray:
    """Return the angles (T,) of torsions int (T, 4) with OpenMM's (IUPAC's) sign, radians in (-π, π]; `positions` (N, 3)."""
    a, b, c, d = (positions[torsions[:, k]] for k in range(4))
    axis = c - b
    first = np.cross(b - a, axis)
    second = np.cross(axis, d - c)
    sine = np.einsum("ij,ij->i", np.cross(first, second), axis) / np.maximum(
        np.linalg.norm(axis, axis=1), 1e-12
    )
    return np.arctan2(sine, np.einsum("ij,ij->i", first, second))


@found_once
def peptide_torsions(topology: app.Topology) -> np.ndarray:
    """Return the atoms Cα, C, N, Cα of every peptide bond (CH3 in place of a cap's Cα), int64 (P, 4)."""
    residues = atoms_by_name(topology)
    torsions = []
    for before, behind in peptide_bonds(topology, residues):
        first, last = before.first_of("CA", "CH3"), behind.first_of("CA", "CH3")
        if behind.residue.name == "NME":
            last = behind.first_of("CH3", "C")
        if first is not None and last is not None:
            torsions.append((first, before["C"], behind["N"], last))
    return np.array(sorted(torsions), dtype=np.int64).reshape(-1, 4)
