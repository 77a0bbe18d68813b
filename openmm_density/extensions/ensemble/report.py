"""The part of a fit's page that tells of an ensemble: conformations, weights, what varies, and whether the map asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...report.blocks import Block, Plot, Section, Table, Text
from ...report.residue_plots import value_figure
from .output import ensemble_in_words


def ensemble_section(summary: Mapping[str, Any]) -> Section | None:
    """Return the section; None for a fit of one model alone."""
    told = summary.get("ensemble")
    words = ensemble_in_words(summary)
    if not told or words is None:
        return None
    verdict = told["verdict"]
    agreement = [
        ("with the map", told["cc_single"], told["cc_ensemble"]),
        ("with what was fitted, B by residue", verdict["cc_work_single"], verdict["cc_work_ensemble"]),
        ("free", verdict["cc_free_single"], verdict["cc_free_ensemble"]),
        ("free, B by residue", verdict["cc_free_single_b"], verdict["cc_free_ensemble_b"]),
    ]
    main = verdict.get("main")
    alone = [] if main is None else [Text(_alone(main, verdict))]
    blocks: list[Block] = [
        Text(words),
        Table(
            "Correlation over the voxels near an atom of either",
            ["one model", "ensemble"],
            [(name, [f"{one:.3f}", f"{many:.3f}"]) for name, one, many in agreement],
        ),
        *alone,
        Table(
            "Conformations; ensemble.cif has all replicas as models",
            ["weight", "models", "weight of each"],
            [
                (
                    str(number),
                    [
                        f"{each['weight']:.3f}",
                        ", ".join(map(str, each["models"])),
                        ", ".join(f"{told['weights'][model - 1]:.3f}" for model in each["models"]),
                    ],
                )
                for number, each in enumerate(told["conformations"], start=1)
            ],
        ),
        Plot(
            "rmsf",
            "How far residues vary over the ensemble (click on a residue to see it)",
            "Root mean square fluctuation of each residue over the weighted replicas, in Å.",
            value_figure(summary["residues"], "rmsf", "RMSF", "RMSF (Å)"),
        ),
    ]
    return Section("ensemble", "One model, or many?", blocks)


def _alone(main: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """Return what the heaviest conformation of an ensemble says without the others."""
    gain = verdict["cc_free_ensemble_b"] - main["cc_free_b"]
    return (
        f"The heaviest conformation alone, with B by residue: free {main['cc_free_b']:.3f}. The others add {gain:+.3f} ± "
        f"{main['standard_error']:.3f}; an ensemble is asked for only where that is sure."
    )
