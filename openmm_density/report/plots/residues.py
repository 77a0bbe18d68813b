"""What became of each residue: its correlation and Q-score before and after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...validation.stretches import DoubtfulStretch
from ..quantities import CORRELATION, Q_SCORE
from .style import (
    AFTER,
    BEFORE,
    BETTER,
    DOUBTFUL,
    GRID,
    REBUILT,
    REFERENCE,
    STYLE,
    WORSE,
    save,
    white_outline,
)

# Shorter chains are drawn among the ligands.
_SHORTEST_CHAIN = 5

STAGES = {"initial": ("before", BEFORE), "final": ("after", AFTER), "reference": ("reference", REFERENCE)}
"""The models that are compared: name and colour by the ending of what is known of them."""
MEASURES = {"correlation": CORRELATION, "q_score": Q_SCORE}
"""What is drawn of each residue: its name by the key of a row."""


@dataclass(frozen=True)
class ResidueRows:
    """The residues of a fit as its picture shows them."""

    rows: Sequence[dict[str, Any]]  # From `openmm_density.validation.model_report.residue_changes`
    chains: dict[str, list[int]]  # The polymers: indices of their rows by the name of the chain
    ligands: list[int]  # Indices of the rows of ligands, and of the residues of short chains
    stages: list[str]  # Those of `STAGES` that are known
    stretches: Sequence[DoubtfulStretch]  # What is doubtful

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], stretches: Sequence[DoubtfulStretch]) -> ResidueRows:
        """Return rows sorted into polymers and what else there is but water."""
        chains: dict[str, list[int]] = {}
        others = []
        for place, row in enumerate(rows):
            if row["kind"] == "polymer":
                chains.setdefault(row["chain"], []).append(place)
            elif row["kind"] != "water":
                others.append(place)
        for chain in [chain for chain, members in chains.items() if len(members) < _SHORTEST_CHAIN]:
            others.extend(chains.pop(chain))
        stages = [stage for stage in STAGES if f"correlation_{stage}" in rows[0]]
        return cls(rows, chains, sorted(others), stages, stretches)

    def values(
        self, members: Sequence[int], measure: str, stages: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return a measure of some residues at each stage; NaN where it is not known."""
        return {
            stage: np.array(
                [
                    np.nan if value is None else value
                    for value in (self.rows[i][f"{measure}_{stage}"] for i in members)
                ],
                dtype=np.float64,
            )
            for stage in (self.stages if stages is None else stages)
        }

    def rebuilt(self, members: Sequence[int]) -> list[int]:
        """Return those of some residues that a search rebuilt."""
        return [i for i in members if self.rows[i].get("rebuilt")]

    def legend_of_marks(self) -> list[Line2D]:
        """Return the entries of a legend for what is marked somewhere."""
        rebuilt = any(self.rebuilt(members) for members in self.chains.values())
        marks = (("doubtful", DOUBTFUL, self.stretches), ("shifted or built anew", REBUILT, rebuilt))
        return [Line2D([], [], color=color, linewidth=8, label=label) for label, color, any_ in marks if any_]


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


WIDEST_GAP = 12
"""A gap in the numbering is drawn as wide as it is up to this, and no wider."""


def residue_curves(rows: ResidueRows) -> Figure:
    """Return a figure with two panels for each chain, correlation and Q-score, and one for ligands."""
    chains = rows.chains
    has_ligands = bool(rows.ligands or not chains)
    heights = [1.5, 1.0] * len(chains) + [1.3] * has_ligands
    figure = Figure(figsize=(10.5, 0.9 + 1.25 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for number, chain in enumerate(chains):
        _plot_chain(panels[2 * number : 2 * number + 2], rows, chain)
    if chains:
        panels[2 * len(chains) - 1].set_xlabel("residue")
    if has_ligands:
        plot_ligands(panels[-1], rows)
    handles = [Line2D([], [], color=STAGES[stage][1], label=STAGES[stage][0]) for stage in rows.stages]
    handles += [
        Line2D([], [], color=color, alpha=0.25, linewidth=8, label=label)
        for label, color in (("better than before", BETTER), ("worse than before", WORSE))
    ]
    handles += rows.legend_of_marks()
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.align_ylabels(panels)
    return figure


def _plot_chain(pair: Sequence[Axes], rows: ResidueRows, chain: str) -> None:
    members = rows.chains[chain]
    numbers = [rows.rows[i]["number"] for i in members]
    x = _positions_along(numbers)
    pair[1].sharex(pair[0])
    for panel, (measure, name) in zip(pair, MEASURES.items()):
        _plot_curves(panel, x, rows.values(members, measure))
        panel.set_ylabel(name)
    pair[0].set_title(_chain_title(rows, chain), loc="left", fontsize=10, pad=9)
    pair[0].tick_params(labelbottom=False)
    pair[0].set_xlim(x[0] - 1, x[-1] + 1)
    step = _tick_step(x[-1] - x[0] + 1)
    ticks = [k for k, number in enumerate(numbers) if number % step == 0]
    pair[1].set_xticks([x[k] for k in ticks], [str(numbers[k]) for k in ticks])
    x_of = dict(zip(members, x))
    _mark_stretches(pair, x_of, rows.stretches)
    _mark_rebuilt(pair[0], [x_of[i] for i in rows.rebuilt(members)])


def _plot_curves(panel: Axes, along: np.ndarray, values: dict[str, np.ndarray]) -> None:
    gaps = np.flatnonzero(np.diff(along) > 1) + 1
    x = np.insert(along.astype(np.float64), gaps, np.nan)
    broken = {stage: np.insert(each, gaps, np.nan) for stage, each in values.items()}
    before, after = broken["initial"], broken["final"]
    for better, color in ((True, BETTER), (False, WORSE)):
        panel.fill_between(
            x,
            before,
            after,
            where=(after >= before) == better,
            interpolate=True,
            color=color,
            alpha=0.2,
            linewidth=0,
        )
    for stage, width in (("initial", 1.0), ("reference", 0.9), ("final", 1.6)):
        if stage in broken:
            color = STAGES[stage][1]
            panel.plot(x, broken[stage], color=color, linewidth=width)
            alone = _isolated(broken[stage])
            if alone.any():
                panel.plot(x[alone], broken[stage][alone], "o", color=color, markersize=1.8 * width)
    panel.axhline(0, color="#868e96", linewidth=0.5)
    known = np.concatenate([each[np.isfinite(each)] for each in values.values()])
    lowest, highest = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    panel.set_ylim(max(-1.0, min(0.0, float(lowest) - 0.05)), min(1.0, float(highest) + 0.05))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.grid(axis="y", color=GRID, linewidth=0.6)


def _isolated(values: np.ndarray) -> np.ndarray:
    """Return which values stand between two that are unknown: a line through them alone shows nothing."""
    known = np.pad(np.isfinite(values), 1)
    return known[1:-1] & ~known[:-2] & ~known[2:]


def _mark_stretches(
    panels: Sequence[Axes], x_of: dict[int, float], stretches: Sequence[DoubtfulStretch]
) -> None:
    left, right = panels[0].get_xlim()
    # Where labels would meet, every second one is a line higher.
    taken, raised = left - (right - left), False
    found = [([x_of[row] for row in stretch.rows if row in x_of], stretch) for stretch in stretches]
    for here, stretch in sorted(((here, each) for here, each in found if here), key=lambda pair: pair[0]):
        first, last = min(here) - 0.5, max(here) + 0.5
        for panel in panels:
            panel.axvspan(first, last, color="#eceff2", zorder=0, linewidth=0)
            panel.axvspan(first, last, ymax=0.035, color=DOUBTFUL, zorder=3, linewidth=0)
        centre = np.clip((first + last) / 2, left + 0.02 * (right - left), right - 0.02 * (right - left))
        raised = not raised and centre - taken < 0.06 * (right - left)
        taken = centre
        panels[0].annotate(
            stretch.first if stretch.first == stretch.last else f"{stretch.first}–{stretch.last}",
            (centre, 0.15 if raised else 0.05),
            xycoords=("data", "axes fraction"),
            fontsize=7.5,
            ha="center",
            va="bottom",
            color="#a34100",
            path_effects=white_outline(),
        )


def _mark_rebuilt(panel: Axes, along: Sequence[float]) -> None:
    """Draw a bar above the residues that a search rebuilt."""
    for x in along:
        panel.axvspan(x - 0.5, x + 0.5, ymin=1.0, ymax=1.03, color=REBUILT, linewidth=0, clip_on=False)


def _positions_along(numbers: Sequence[int]) -> np.ndarray:
    """Return where residues of these numbers are drawn: in their order, gaps as wide as they are unless too wide."""
    steps = np.diff(np.asarray(numbers))
    # Insertions share a number, and in some files numbers fall.
    steps = np.where(steps < 0, WIDEST_GAP, np.clip(steps, 1, WIDEST_GAP))
    return numbers[0] + np.concatenate([[0], np.cumsum(steps)])


def _tick_step(span: int) -> int:
    """Return the numbers of which multiples are written out, for 10 to 30 of them."""
    return next((step for step in (5, 10, 20, 50, 100, 200, 500) if span / step <= 26), 1000)


def _chain_title(rows: ResidueRows, chain: str) -> str:
    medians = []
    for measure, name in MEASURES.items():
        values = rows.values(rows.chains[chain], measure)
        known = {stage: each[np.isfinite(each)] for stage, each in values.items()}
        figures = ", ".join(
            f"{STAGES[stage][0]} {np.median(each):.2f}" for stage, each in known.items() if len(each)
        )
        medians.append(f"{name} {figures}")
    whose = f"chain {chain}: " if chain else ""
    return f"{whose}median {'; '.join(medians)}"


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
