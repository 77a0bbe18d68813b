"""What ``summary.json`` says of ligands that have a learned potential."""

from __future__ import annotations

from typing import Any

from ...units import ANGSTROM_PER_NANOMETER
from ..fit_result import FitResult


def ligand_figures(result: FitResult) -> list[dict[str, Any]]:
    """Return for each ligand with a potential of its own what that is, how strained it is by it, and how well it knew it.

    Returns
    -------
    list of dict
        ``residue``, ``smiles``, ``potential``, ``file``, ``sha256``; ``strain_initial`` and ``strain_final``, the energy in
        kJ/mol above that of the relaxed molecule; ``disagreement_worst`` and ``disagreement_bound`` in kcal/mol/Å, of the
        students' forces; ``looks``, ``unknown`` (of these), ``first_unknown`` (the step) and ``held_times``.
    """
    figures = []
    watched = {ligand["label"]: ligand for ligand in result.ligands}
    for placed in result.prepared.potentials:
        potential, seen = placed.potential, watched.get(placed.label, {})
        strain = {
            f"strain_{stage}": round(potential.energy(positions[placed.atoms] / ANGSTROM_PER_NANOMETER), 3)
            for stage, positions in (("initial", result.initial), ("final", result.final))
        }
        figures.append(
            {
                "residue": placed.label,
                "smiles": potential.smiles,
                "potential": potential.version,
                "file": None if potential.path is None else str(potential.path),
                "sha256": potential.sha256 or None,
                **strain,
                "disagreement_worst": seen.get("worst"),
                "disagreement_bound": potential.bound,
                "looks": seen.get("looks", 0),
                "unknown": seen.get("unknown", 0),
                "first_unknown": seen.get("first_unknown"),
                "held_times": seen.get("held_times", 0),
            }
        )
    return figures
