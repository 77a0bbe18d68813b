"""The panel of ligands and short chains: a dot for each model."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from .residue_rows import MEASURES, STAGES, ResidueRows
from .style import GRID

# The poorest are shown.
_MOST_LIGANDS = 30


def plot_ligands(panel: Axes, rows: ResidueRows) -> None:
    """Draw the correlations of ligands and of the residues of short chains, before, after, and in a reference."""
    ligands = rows.ligands
    after = rows.values(ligands, "correlation", ["final"])["final"]
    poorest = sorted(np.argsort(after)[:_MOST_LIGANDS].tolist())
    shown = [ligands[k] for k in poorest]
    values = rows.values(shown, "correlation")
    # Dots at one height stay visible, one inside the other.
    for stage, size in (("initial", 9), ("final", 6.5), ("reference", 3.5)):
        if stage in values:
            panel.plot(values[stage], linestyle="", marker="o", markersize=size, color=STAGES[stage][1])
    panel.set_xticks(range(len(shown)), [rows.rows[i]["residue"] for i in shown])
    if len(shown) > 8:
        panel.tick_params(axis="x", rotation=90, labelsize=7)
    panel.set_xlim(-0.8, max(len(shown), 8) - 0.2)
    panel.set_ylim(min(0.0, np.nanmin([*np.ravel(list(values.values())), 0.0]) - 0.05), 1.0)
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    panel.set_ylabel(MEASURES["correlation"])
    left = f" (the poorest {len(shown)} of {len(ligands)})" if len(ligands) > len(shown) else ""
    panel.set_title(f"ligands and short chains{left}", loc="left", fontsize=10)
