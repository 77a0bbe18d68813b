"""Refined B factors residue by residue."""

from __future__ import annotations

from typing import Any

from openmm import app

from ...models.chemistry.elements import is_hydrogen
from ...models.chemistry.residues import residue_label
from .b_factors import BFactors


def residue_rows(topology: app.Topology, refined: BFactors) -> list[dict[str, Any]]:
    """Return the mean B factor of each residue's non-hydrogen atoms, with how well it is determined.

    Returns ``residue`` (as in ``A HIS 57B``), ``b_factor`` and ``b_factor_deviation`` (Å²), and ``determined`` (0 to
    1).
    """
    rows = []
    for residue in topology.residues():
        every = [atom.index for atom in residue.atoms()]
        atoms = [atom.index for atom in residue.atoms() if not is_hydrogen(atom)] or every
        rows.append(
            {
                "residue": residue_label(residue),
                "b_factor": round(float(refined.b_factors[atoms].mean()), 2),
                "b_factor_deviation": round(float(refined.deviations[atoms].mean()), 2),
                "determined": round(float(refined.determined[atoms].mean()), 3),
            }
        )
    return rows
