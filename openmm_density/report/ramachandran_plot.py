"""The Ramachandran plot, as plotly draws it: its regions, and the residues of each model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.wording import residue_label
from ..models.chemistry.ramachandran_tables import (
    ALLOWED,
    CELL,
    FAVOURED,
    backbone_torsions,
    ramachandran_tables,
)
from ..models.chemistry.torsions import torsion_angles
from .colors import OF_STAGE
from .shown_model import ShownModel

NAMES = {"general": "all others", "glycine": "glycine", "proline": "proline", "preproline": "before proline"}
_STAGES = {"before": "initial", "kept": "initial", "after": "final", "reference": "reference"}


def ramachandran_figure(models: Sequence[ShownModel], rows: Mapping[str, int]) -> dict[str, Any] | None:
    """Return φ and ψ of the residues of some models, by plot, with its regions; None without a residue that has both.

    Returns ``data`` (traces whose ``plot`` says which plot they belong to), ``layout`` without regions, and
    ``regions``: by plot the SVG paths, in degrees, of what is ``allowed`` and ``favoured``.
    """
    data = [trace for model in reversed(models) for trace in _traces(model, rows)]
    if not data:
        return None
    axis = {
        "range": [-180, 180],
        "tickvals": [-180, -90, 0, 90, 180],
        "zeroline": False,
        "constrain": "domain",
    }
    layout = {
        "xaxis": {**axis, "title": {"text": "φ (°)"}},
        "yaxis": {**axis, "title": {"text": "ψ (°)"}, "scaleanchor": "x"},
        "hovermode": "closest",
    }
    present = [plot for plot in NAMES if any(trace["plot"] == plot for trace in data)]
    return {
        "data": data,
        "layout": layout,
        "plots": {plot: NAMES[plot] for plot in present},
        "regions": {plot: _regions()[plot] for plot in present if plot in _regions()},
    }


def _named(labels: Sequence[str], rows: Mapping[str, int]) -> dict[str, Any]:
    """Return the rows of residues, by which the page names them, and their names where some have none."""
    found = [rows.get(label) for label in labels]
    if None not in found:
        return {"customdata": found}
    return {
        "customdata": found,
        "text": [label.replace("&", "&amp;").replace("<", "&lt;") for label in labels],
    }


def _traces(model: ShownModel, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    torsions = backbone_torsions(model.topology, model.positions)
    if not len(torsions.residues):
        return []
    with np.errstate(invalid="ignore"):
        phi, psi = (
            np.degrees(torsions.handedness * torsion_angles(model.positions, torsions.atoms[:, which]))
            for which in (slice(0, 4), slice(1, 5))
        )
    known = np.isfinite(phi) & np.isfinite(psi)
    plots = np.where(known, torsions.plots, "")
    hover = "%{text}<br>φ %{x:.0f}°, ψ %{y:.0f}°<extra></extra>"
    return traces_by_plot(model, rows, NAMES, plots, torsions.residues, (phi, psi), hover)


def traces_by_plot(
    model: ShownModel,
    rows: Mapping[str, int],
    names: Iterable[str],
    plots: np.ndarray,
    residues: np.ndarray,
    points: tuple[np.ndarray, np.ndarray],
    hover: str,
) -> list[dict[str, Any]]:
    """Return a model's residues (R,) at `points` x and y as a trace for each of the plots (R,) that has some."""
    labels = [residue_label(residue) for residue in model.topology.residues()]
    traces = []
    for plot in names:
        members = np.flatnonzero(plots == plot)
        if not len(members):
            continue
        named = [labels[residues[i]] for i in members]
        is_reference = model.key == "reference"
        x, y = (values[members].round(1).tolist() for values in points)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": model.label,
                "plot": plot,
                "x": x,
                "y": y,
                **_named(named, {} if is_reference else rows),
                "hovertemplate": hover,
                "marker": {
                    "size": 6 if model.key == "after" else 5,
                    "color": OF_STAGE[_STAGES[model.key]],
                    "line": {"width": 0.5, "color": "white"},
                },
                "opacity": 1.0 if model.key == "after" else 0.55,
                "visible": True if model.key == "after" else "legendonly",
            }
        )
    return traces


@lru_cache(maxsize=1)
def _regions() -> dict[str, dict[str, str]]:
    """Return the paths of the regions by plot; empty without the tables."""
    tables = ramachandran_tables() or {}
    return {
        plot: {"allowed": _outlined(table >= ALLOWED[plot]), "favoured": _outlined(table >= FAVOURED)}
        for plot, table in tables.items()
    }


def _outlined(inside: np.ndarray) -> str:
    """Return an SVG path, in degrees, around the cells of φ and ψ that are inside, in rectangles."""
    path, open_runs = [], {}
    columns = [*(_column_runs(column) for column in inside), set()]
    for number, runs in enumerate(columns):
        for run in open_runs.keys() - runs:
            left, right = (-180 + CELL * edge for edge in (open_runs.pop(run), number))
            low, high = (-180 + CELL * edge for edge in run)
            path.append(f"M{left:g},{low:g}L{right:g},{low:g}L{right:g},{high:g}L{left:g},{high:g}Z")
        for run in runs - open_runs.keys():
            open_runs[run] = number
    return "".join(path)


def _column_runs(column: np.ndarray) -> set[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(column, prepend=False, append=False)).tolist()
    return set(zip(edges[::2], edges[1::2]))
