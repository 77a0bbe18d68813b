"""The residues of a picture: sorted into chains and ligands, with their values at each stage and what is marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ....validation.stretches import DoubtfulStretch
from ..quantities import CORRELATION, Q_SCORE
from .style import AFTER, BEFORE, DOUBTFUL, GRID, REBUILT, REFERENCE

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
