"""A model as the page shows it, and what the page knows of each residue: its name, and the figures that colour it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.wording import residue_label

COPIES = "copies"
"""The key of what follows from the first model by symmetry."""


@dataclass(frozen=True)
class ShownModel:
    """A model as the page shows it, under its `label`.

    `key`: "after", "before", "reference" or `COPIES`: by it the page knows its colour, unless `color` is one as ``#rrggbb``,
    and which figures of a residue are its own; `topology` with bonds; `positions` (N, 3) in Å, nan for atoms that it does not
    have; `b_factors` (N,) in Å².
    """

    key: str
    label: str
    topology: app.Topology
    positions: np.ndarray
    b_factors: np.ndarray | None = None
    color: str | None = None


_TRACE = ("CA", "P", "C1'")


def rows_by_label(residues: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the place of each residue by its label; of several with one label that of the first."""
    rows: dict[str, int] = {}
    for row, residue in enumerate(residues):
        rows.setdefault(residue["residue"], row)
    return rows


def residue_values(
    residues: Sequence[Mapping[str, Any]], models: Sequence[ShownModel]
) -> list[dict[str, Any]]:
    """Return the residues of a summary with how far each was moved, and its B factor.

    Returns ``residue``, ``chain``, ``number``, ``kind``, the values of the summary (rounded), ``shift`` (Å, of the atom
    that stands for the residue) and ``b_factor`` (Å², the mean), each None where it is not known.
    """
    by_key = {model.key: model for model in models}
    shifts, b_factors = _of_models(by_key.get("after"), by_key.get("before"), rows_by_label(residues))
    kept = ("residue", "chain", "number", "insertion_code", "kind", "rebuilt", "turned")
    return [
        {
            **{name: residue[name] for name in kept if name in residue},
            **{
                name: None if value is None else round(value, 3)
                for name, value in residue.items()
                if name.startswith(("correlation_", "q_score_"))
            },
            "shift": shifts.get(row),
            "b_factor": b_factors.get(row),
        }
        for row, residue in enumerate(residues)
    ]


def _of_models(
    after: ShownModel | None, before: ShownModel | None, rows: Mapping[str, int]
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the shift and the B factor of each residue, by its row."""
    shifts: dict[int, float] = {}
    b_factors: dict[int, float] = {}
    if after is None:
        return shifts, b_factors
    for residue in after.topology.residues():
        row = rows.get(residue_label(residue))
        if row is None:
            continue
        heavy = [atom for atom in residue.atoms() if atom.element is None or atom.element.atomic_number > 1]
        standing = [atom.index for name in _TRACE for atom in heavy if atom.name == name][:1]
        atoms = standing or [atom.index for atom in heavy]
        if before is not None and atoms:
            moved = float(
                np.linalg.norm(after.positions[atoms].mean(axis=0) - before.positions[atoms].mean(axis=0))
            )
            if np.isfinite(moved):
                shifts[row] = round(moved, 2)
        if after.b_factors is not None and heavy:
            b_factors[row] = round(float(after.b_factors[[atom.index for atom in heavy]].mean()), 1)
    return shifts, b_factors
