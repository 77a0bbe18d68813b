"""The part of a fit's page on B factors and occupancies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...energies.atomic_parameters.in_words import b_factors_in_words
from ...report.blocks import Block, Plot, Table, Text
from ...report.residue_plots import b_factor_figure

_REFINED = "B factors by residue, refined, with standard deviations (click on a residue to see it)"
_KEPT = "B factors, as they were in the input: this fit does not refine them"


def b_factor_blocks(summary: Mapping[str, Any], residues: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return what a page shows of B factors, and of occupancies where they were refined."""
    refined, occupancies = summary.get("b_factors"), summary.get("occupancies")
    blocks: list[Block] = [
        Plot(
            "b-factors",
            _KEPT if refined is None else _REFINED,
            "The mean B factor of each residue.",
            b_factor_figure(summary["residues"], [residue["b_factor"] for residue in residues]),
        )
    ]
    if refined is not None:
        blocks.append(Text(b_factors_in_words(refined, of_amplitudes=bool(summary.get("crystal")))))
    if occupancies is not None:
        rows = [
            (name, [f"{value:.2f}", f"{occupancies['deviations'][name]:.2f}"])
            for name, value in occupancies["values"].items()
        ]
        blocks.append(Table("Occupancies, refined", ["occupancy", "standard deviation"], rows))
    return blocks
