"""What became of each residue: its correlation and Q-score before and after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from ....validation.stretches import DoubtfulStretch
from .residue_curves import MEASURES, STAGES, ResidueRows, plot_ligands, residue_curves
from .style import DOUBTFUL, REBUILT, STYLE, save

# More chains are drawn as strips of colour, for which one page has room.
_MOST_CURVES = 6


def plot_residues(
    path: Path, residues: Sequence[dict[str, Any]], stretches: Sequence[DoubtfulStretch] = ()
) -> None:
    """Draw correlation and Q-score of each residue before, after, and in a reference.

    Up to six chains are drawn as curves, a chain below the other; more as strips of colour. Ligands and chains of less than
    five residues have a panel of their own. `path`: a PNG. `residues` from
    `openmm_density.validation.model_report.residue_changes`; those that are ``rebuilt`` are marked. `stretches`: what is
    doubtful, to be marked.
    """
    rows = ResidueRows.of(residues, stretches)
    with matplotlib.rc_context(STYLE):
        figure = residue_curves(rows) if len(rows.chains) <= _MOST_CURVES else residue_strips(rows)
        save(figure, path)


# How high a mark is between the strips of two chains, in rows of them.
_MARK = 0.4


def residue_strips(rows: ResidueRows) -> Figure:
    """Return a figure with a panel for correlation and one for Q-score, in which each chain is a strip, and one for ligands."""
    chains, ligands = rows.chains, rows.ligands
    height = 0.13 * (len(rows.stages) + 1) * len(chains)
    figure = Figure(figsize=(11.0, height + 1.3 + (2.0 if ligands else 0.0)), layout="constrained")
    grid = figure.add_gridspec(
        2 if ligands else 1, 2, height_ratios=[height + 1.0, 1.6] if ligands else [1.0]
    )
    for column, (measure, name) in enumerate(MEASURES.items()):
        panel = figure.add_subplot(grid[0, column])
        shown = _plot_strips(panel, rows, measure)
        _mark_strips(panel, rows)
        middles = _pitch(rows) * np.arange(len(chains)) + (len(rows.stages) - 1) / 2
        panel.set_yticks(middles, list(chains) if column == 0 else [])
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel("residue")
        panel.set_title(name, loc="left", fontsize=10)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
        figure.colorbar(shown, ax=panel, location="bottom", shrink=0.6, aspect=30, pad=0.01)
        if column == 0:
            panel.set_ylabel("chain")
    if ligands:
        plot_ligands(figure.add_subplot(grid[1, :]), rows)
    names = ", ".join(STAGES[stage][0] for stage in rows.stages)
    figure.suptitle(f"each chain from top to bottom: {names}", fontsize=10)
    if handles := rows.legend_of_marks():
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _pitch(rows: ResidueRows) -> int:
    """Return how many rows of the image a chain has, with an empty one below it."""
    return len(rows.stages) + 1


def _plot_strips(panel: Axes, rows: ResidueRows, measure: str) -> AxesImage:
    pitch = _pitch(rows)
    numbers = np.array([rows.rows[i]["number"] for members in rows.chains.values() for i in members])
    first, last = int(numbers.min()), int(numbers.max())
    image = np.full((pitch * len(rows.chains) - 1, last - first + 1), np.nan)
    for row, members in enumerate(rows.chains.values()):
        for offset, values in enumerate(rows.values(members, measure).values()):
            at = [rows.rows[i]["number"] - first for i in members]
            # Of residues that share a number, the poorest.
            np.fmin.at(image[pitch * row + offset], at, values)
    known = image[np.isfinite(image)]
    low, high = np.percentile(known, [1, 99]) if len(known) else (0.0, 1.0)
    return panel.imshow(
        image,
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        norm=Normalize(max(float(low), -0.2), float(high)),
        extent=(first - 0.5, last + 0.5, len(image) - 0.5, -0.5),
    )


def _mark_strips(panel: Axes, rows: ResidueRows) -> None:
    """Draw bars above the residues of a strip that were rebuilt, and below those that are doubtful."""
    doubtful = {row for stretch in rows.stretches for row in stretch.rows}
    for number, members in enumerate(rows.chains.values()):
        top = _pitch(rows) * number - 0.5
        marks = (
            (REBUILT, top - _MARK, rows.rebuilt(members)),
            (DOUBTFUL, top + len(rows.stages), [i for i in members if i in doubtful]),
        )
        for color, y, marked in marks:
            panel.broken_barh(
                [(rows.rows[i]["number"] - 0.5, 1) for i in marked],
                (y, _MARK),
                color=color,
                linewidth=0,
                clip_on=False,
            )
