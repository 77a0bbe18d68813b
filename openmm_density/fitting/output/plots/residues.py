"""What became of each residue: its correlation and Q-score before and after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from ....validation.stretches import Stretch
from .residue_curves import residue_curves
from .residue_rows import ResidueRows
from .residue_strips import residue_strips
from .style import STYLE, save

# More chains are drawn as strips of colour, for which one page has room.
_MOST_CURVES = 6


def plot_residues(path: Path, residues: Sequence[dict[str, Any]], stretches: Sequence[Stretch] = ()) -> None:
    """Draw correlation and Q-score of each residue before, after, and in a reference.

    Up to six chains are drawn as curves, a chain below the other; more as strips of colour. Ligands and chains of less than
    five residues have a panel of their own.

    Parameters
    ----------
    path : path
        A PNG.
    residues : sequence of dict
        From `openmm_density.validation.model_report.residue_changes`; those that are ``rebuilt`` are marked.
    stretches : sequence of Stretch
        What is doubtful, to be marked.
    """
    rows = ResidueRows.of(residues, stretches)
    with matplotlib.rc_context(STYLE):
        figure = residue_curves(rows) if len(rows.chains) <= _MOST_CURVES else residue_strips(rows)
        save(figure, path)
