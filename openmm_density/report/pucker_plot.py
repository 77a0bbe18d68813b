"""The plots of sugar puckers, as plotly draws them: of nucleotides δ and Pperp, of pyranoses Cremer and Pople's φ and θ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.page_blocks import Card, Plot
from ..models.chemistry.pyranoses import CHAIR, find_pyranoses
from ..models.chemistry.sugar_puckers import DELTA_C2, DELTA_C3, LONGEST_OF_C2_ENDO, find_sugars
from ..models.chemistry.torsions import torsion_angles
from .ramachandran_plot import traces_by_plot
from .shown_model import ShownModel

NAMES = {"rna": "RNA", "dna": "DNA"}
_DELTAS, _FARTHEST = (50, 190), 6.5  # degrees, and Å: what the axes show


def nucleic_acid_cards(geometry: Mapping[str, Any]) -> list[Card]:
    """Return what matters most of the nucleic acids in a report of a geometry."""
    cards = []
    if geometry["pucker_outlier_count"] is not None:
        count = str(geometry["pucker_outlier_count"])
        cards.append(Card("Sugar pucker outliers", count, f"of {geometry['pucker_count']}"))
    if geometry["suite_count"]:
        count = str(geometry["suite_outlier_count"])
        cards.append(Card("Suite outliers", count, f"of {geometry['suite_count']}"))
    if geometry["base_pair_count"]:
        cards.append(Card("Base pairs", str(geometry["base_pair_count"])))
    return cards


def pucker_plot(models: Sequence[ShownModel], rows: Mapping[str, int]) -> Plot:
    """Return the plot of the puckers of some models, which is left out where these have no nucleic acids."""
    return Plot(
        "puckers",
        "Sugar puckers (click on a nucleotide to see it)",
        "δ of each nucleotide, and the distance of the phosphate behind it from its glycosidic bond, over what is usual in RNA "
        "(Richardson et al. 2008): C3′-endo above, C2′-endo below.",
        pucker_figure(models, rows),
    )


def pucker_figure(models: Sequence[ShownModel], rows: Mapping[str, int]) -> dict[str, Any] | None:
    """Return δ and Pperp of nucleotides, with MolProbity's regions for RNA; None where the fitted model has none."""
    data = [trace for model in reversed(models) for trace in _traces(model, rows)]
    if not _has_fitted(data):
        return None
    layout = {
        "xaxis": {"range": list(_DELTAS), "zeroline": False, "title": {"text": "δ (°)"}},
        "yaxis": {"range": [0, _FARTHEST], "zeroline": False, "title": {"text": "Pperp (Å)"}},
        "hovermode": "closest",
    }
    usual = [(DELTA_C3, LONGEST_OF_C2_ENDO, _FARTHEST), (DELTA_C2, 0, LONGEST_OF_C2_ENDO)]
    path = "".join(
        f"M{left:g},{low:g}L{right:g},{low:g}L{right:g},{high:g}L{left:g},{high:g}Z"
        for (left, right), low, high in usual
    )
    return {
        "data": data,
        "layout": layout,
        "plots": {plot: name for plot, name in NAMES.items() if any(each["plot"] == plot for each in data)},
        "regions": {"rna": {"allowed": path}},
    }


def _traces(model: ShownModel, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    sugars = find_sugars(model.topology)
    if not len(sugars.residues):
        return []
    with np.errstate(invalid="ignore"):
        delta = np.degrees(torsion_angles(model.positions, sugars.delta)) % 360.0
        perpendicular = sugars.perpendiculars(model.positions)
    known = np.isfinite(delta) & np.isfinite(perpendicular) & (sugars.delta >= 0).all(axis=1)
    plots = np.where(known, np.where(sugars.is_rna, "rna", "dna"), "")
    hover = "%{text}<br>δ %{x:.0f}°, Pperp %{y:.1f} Å<extra></extra>"
    return traces_by_plot(model, rows, NAMES, plots, sugars.residues, (delta, perpendicular), hover)


def _has_fitted(traces: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the model that is shown first has some: those of a reference alone say nothing of a fit."""
    return any(trace["visible"] is True for trace in traces)


def pyranose_plot(models: Sequence[ShownModel], rows: Mapping[str, int]) -> Plot:
    """Return the plot of the rings of sugars, which is left out where the models have no pyranoses."""
    return Plot(
        "pyranoses",
        "Rings of sugars (click on one to see it)",
        "Cremer and Pople’s φ and θ of each pyranose: ⁴C₁, the chair of D-sugars, above, ¹C₄ below, boats in the middle.",
        pyranose_figure(models, rows),
    )


def pyranose_figure(models: Sequence[ShownModel], rows: Mapping[str, int]) -> dict[str, Any] | None:
    """Return φ and θ of pyranoses, with the regions of both chairs; None where the fitted model has none."""
    data = [trace for model in reversed(models) for trace in _pyranose_traces(model, rows)]
    if not _has_fitted(data):
        return None
    degrees = {"zeroline": False, "dtick": 60}
    layout = {
        "xaxis": {**degrees, "range": [0, 360], "title": {"text": "φ (°)"}},
        "yaxis": {**degrees, "range": [180, 0], "title": {"text": "θ (°)"}},
        "hovermode": "closest",
    }
    chairs = "".join(
        f"M0,{low:g}L360,{low:g}L360,{high:g}L0,{high:g}Z" for low, high in ((0, CHAIR), (180 - CHAIR, 180))
    )
    return {
        "data": data,
        "layout": layout,
        "plots": {"pyranoses": "sugars"},
        "regions": {"pyranoses": {"allowed": chairs}},
    }


def _pyranose_traces(model: ShownModel, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    sugars = find_pyranoses(model.topology)
    with np.errstate(invalid="ignore"):
        q, phi, theta = sugars.puckers(model.positions)
    plots = np.where(np.isfinite(q), "pyranoses", "")
    hover = "%{text}<br>φ %{x:.0f}°, θ %{y:.0f}°<extra></extra>"
    return traces_by_plot(model, rows, ("pyranoses",), plots, sugars.residues, (phi, theta), hover)
