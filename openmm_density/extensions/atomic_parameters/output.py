"""What ``summary.json`` and the page of a fit say of B factors and occupancies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.page_blocks import Block, Plot, Table, Text
from ...fitting.extension import Told
from ...fitting.fit_result import FitResult
from ...fitting.written_atoms import input_b_factors
from ...models.chemistry.elements import is_hydrogen
from ...report.residue_plots import b_factor_figure

_UNITS = {
    **dict.fromkeys(("b_factor", "b_factor_deviation", "mean_b_deviation"), "Å²"),
    **dict.fromkeys(("uniform_b", "mean_b", "least_b", "largest_b"), "Å²"),
    "processor_seconds": "s",
}

# By this part the mean of refined B factors may differ from the best uniform one.
_FAR_FROM_UNIFORM = 0.2
# Of a model where it belongs, with the best uniform B factor, the correlation is above it (0.75 and more on the maps tried).
_LOW_CC = 0.6
_OF = {"atom": "each atom", "residue": "each residue", "group": "each chain"}
_BEFORE_AMPLITUDES = "before they were refined against the amplitudes, "


def atoms_told(result: FitResult) -> Told:
    """Return ``b_factors`` and ``occupancies``, null where they were not refined."""
    found = {"b_factors": result.b_factors, "occupancies": result.occupancies}
    notes = [note for each in found.values() if each is not None for note in each.notes]
    return Told(
        {name: None if each is None else each.as_dict() for name, each in found.items()},
        notes=[*notes, *([] if result.not_refined is None else [result.not_refined])],
        units={} if result.b_factors is result.occupancies is None else _UNITS,
    )


def residue_b_factors(result: FitResult) -> dict[str, list[float | None]]:
    """Return the mean B factor of each residue before and after, and how well it is determined, where they were refined."""
    if result.b_factors is None:
        return {}
    prepared = result.prepared
    has = prepared.prepared_index >= 0
    # Of a prediction there are none before.
    estimated = not prepared.model.known_b_factors.any()
    deviations = np.full(len(has), np.nan)
    deviations[has] = result.b_factors.deviations[prepared.prepared_index[has]]
    values = {
        "b_factor_initial": np.full(len(has), np.nan) if estimated else prepared.model.b_factors,
        "b_factor_final": input_b_factors(result),
        "b_factor_deviation": deviations,
    }
    heavy = [
        [atom.index for atom in residue.atoms() if not is_hydrogen(atom)]
        for residue in prepared.model.topology.residues()
    ]
    return {name: [_mean(each[atoms]) for atoms in heavy] for name, each in values.items()}


def _mean(values: np.ndarray) -> float | None:
    known = [float(value) for value in values if np.isfinite(value)]
    return round(sum(known) / len(known), 2) if known else None


_REFINED = "B factors by residue, refined, with standard deviations (click on a residue to see it)"
_KEPT = "B factors, as they were in the input: this fit does not refine them"
_ESTIMATED = "B factors, estimated from the confidence of the prediction: this fit does not refine them"


def b_factor_blocks(summary: Mapping[str, Any], residues: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return what a page shows of B factors, and of occupancies where they were refined."""
    refined, occupancies = summary.get("b_factors"), summary.get("occupancies")
    estimated = (summary.get("prediction") or {}).get("b_factors") == "estimated from pLDDT"
    blocks: list[Block] = [
        Plot(
            "b-factors",
            _REFINED if refined is not None else _ESTIMATED if estimated else _KEPT,
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


def b_factors_in_words(refined: Mapping[str, Any], of_amplitudes: bool = False) -> str:
    """Return what refined B factors are, and how much better the model agrees with the map by them."""
    least, largest, mean = (refined[name] for name in ("least_b", "largest_b", "mean_b"))
    when = _BEFORE_AMPLITUDES if of_amplitudes else ""
    said = (
        f"A B factor of {_OF[refined['level']]} was refined, from {least:.0f} to {largest:.0f} Å² with a mean of "
        f"{mean:.0f} ± {refined['mean_b_deviation']:.0f} Å²: {when}the correlation of the model's density with the map went from "
        f"{refined['cc_uniform']:.3f} with the best uniform one ({refined['uniform_b']:.0f} Å²) to {refined['cc']:.3f}."
    )
    if abs(mean / refined["uniform_b"] - 1) > _FAR_FROM_UNIFORM:
        said += (
            " Their mean is far from the uniform one: at this resolution the map hardly tells the level of B factors, only which "
            "are larger than others, and the true deviations are larger than those given."
        )
    if refined["cc_given"] is not None:
        said += f" With those of the input it is {refined['cc_given']:.3f}."
    if refined["half_maps"] is None and not of_amplitudes:
        said += " Half maps (--half-map) would tell whether this is a fit of noise."
    if refined["cc_uniform"] < _LOW_CC:
        said = (
            "The model may not be where the map has it, or of another conformation: with the best uniform B factor the "
            f"correlation is {refined['cc_uniform']:.3f}, and B factors then tell where the model is wrong. {said}"
        )
    return " ".join([said, *refined["notes"]])
