"""Figures by residue, as plotly draws them: agreement with the map, and B factors. Each point knows its residue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .colors import DOUBTFUL, OF_STAGE, REBUILT

MEASURES = {"correlation": "correlation", "q_score": "Q-score"}
_TICKS = 9
_CHANGES = ("rebuilt", "turned", "flipped")


def agreement_figure(
    residues: Sequence[Mapping[str, Any]], stages: Mapping[str, str], doubtful: Sequence[Sequence[int]]
) -> dict[str, Any] | None:
    """Return correlation and Q-score by residue; None where nothing is known."""
    rows = [i for i, residue in enumerate(residues) if residue["kind"] != "water"]
    x = {row: place for place, row in enumerate(rows)}
    measures = [
        measure
        for measure in MEASURES
        if any(residues[row].get(f"{measure}_final") is not None for row in rows)
    ]
    if not measures:
        return None
    data = []
    for number, measure in enumerate(measures):
        for stage, label in stages.items():
            values = [residues[row].get(f"{measure}_{stage}") for row in rows]
            if any(value is not None for value in values):
                axis = "" if number == 0 else str(number + 1)
                trace = _trace(rows, residues, values, MEASURES[measure], label, OF_STAGE[stage])
                data.append({**trace, "yaxis": f"y{axis}", "showlegend": number == 0})
    layout = _along_residues([residues[row] for row in rows])
    heights = np.linspace(1, 0, len(measures) + 1)
    for number, measure in enumerate(measures):
        gap = 0.04 if len(measures) > 1 else 0.0
        domain = [
            float(heights[number + 1]) + gap * (number == 0),
            float(heights[number]) - gap * (number == 1),
        ]
        layout[f"yaxis{'' if number == 0 else number + 1}"] = {
            "title": {"text": MEASURES[measure]},
            "domain": domain,
            "zeroline": False,
        }
    layout["shapes"] += [_band(x[group[0]], x[group[-1]], DOUBTFUL, 0, 1) for group in _runs(doubtful, x)]
    rebuilt = [[i] for i in rows if any(residues[i].get(change) for change in _CHANGES)]
    layout["shapes"] += [_band(x[i], x[i], REBUILT, 1.0, 1.015) for [i] in rebuilt]
    layout["xaxis"]["anchor"] = "y" if len(measures) == 1 else f"y{len(measures)}"
    return {"data": data, "layout": layout}


def value_figure(
    residues: Sequence[Mapping[str, Any]], name: str, label: str, title: str
) -> dict[str, Any] | None:
    """Return a value by residue, such as the RMSF over an ensemble; None where there is none."""
    rows = [i for i, residue in enumerate(residues) if residue.get(name) is not None]
    rows = [i for i in rows if residues[i]["kind"] != "water"]
    if not rows:
        return None
    layout = _along_residues([residues[row] for row in rows])
    layout["yaxis"] = {"title": {"text": title}, "rangemode": "tozero"}
    values = [residues[row][name] for row in rows]
    trace = _trace(rows, residues, values, label, label, OF_STAGE["final"], ".2f")
    return {"data": [trace], "layout": layout}


def b_factor_figure(
    residues: Sequence[Mapping[str, Any]], b_factors: Sequence[float | None]
) -> dict[str, Any] | None:
    """Return mean B factors by residue (Å² or None) and those before, if refined; None where all are the same."""
    rows = [i for i, value in enumerate(b_factors) if value is not None and residues[i]["kind"] != "water"]
    values = [b_factors[row] for row in rows]
    if not values or max(values) - min(values) < 1e-3:
        return None
    layout = _along_residues([residues[row] for row in rows])
    layout["yaxis"] = {"title": {"text": "B factor (Å²)"}, "rangemode": "tozero"}
    before = [residues[row].get("b_factor_initial") for row in rows]
    if all(value is None for value in before):
        trace = _trace(rows, residues, values, "B factor", "B factor", OF_STAGE["final"], ".1f")
        return {"data": [trace], "layout": layout}
    trace = _trace(rows, residues, values, "B factor", "refined", OF_STAGE["final"], ".1f")
    deviations = [residues[row].get("b_factor_deviation") for row in rows]
    trace["error_y"] = {"type": "data", "array": deviations, "thickness": 0.6, "width": 0}
    traces = [_trace(rows, residues, before, "B factor", "input", OF_STAGE["initial"], ".1f"), trace]
    return {"data": traces, "layout": layout}


def spread_figure(residues: Sequence[Mapping[str, Any]], agreed: float) -> dict[str, Any] | None:
    """Return models' ``spread`` and ``spread_backbone`` by residue (Å, or None) with a line at `agreed`; None if unknown."""
    rows = [i for i, residue in enumerate(residues) if residue["spread"] is not None]
    if not rows:
        return None
    layout = _along_residues([residues[row] for row in rows])
    layout["yaxis"] = {"title": {"text": "spread (Å)"}, "rangemode": "tozero"}
    line = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": agreed, "y1": agreed}
    layout["shapes"].append({**line, "line": {"width": 1, "dash": "dash"}})
    traces = [
        _trace(rows, residues, [residues[row][key] for row in rows], "spread", label, color, ".2f")
        for key, label, color in (
            ("spread", "all atoms", OF_STAGE["final"]),
            ("spread_backbone", "backbone", OF_STAGE["initial"]),
        )
    ]
    return {"data": traces, "layout": layout}


def _trace(
    rows: Sequence[int],
    residues: Sequence[Mapping[str, Any]],
    values: Sequence[float | None],
    measure: str,
    label: str,
    color: str,
    form: str = ".3f",
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "x": list(range(len(rows))),
        "y": [None if value is None else round(value, 4) for value in values],
        "customdata": list(rows),
        "hovertemplate": f"%{{text}}<br>{measure} {label}: %{{y:{form}}}<extra></extra>",
        "line": {"color": color, "width": 1.5},
        "marker": {"size": 4, "color": color},
    }


def _along_residues(residues: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a layout whose axis is labelled with the residues' numbers, and at each chain's begin with its name."""
    begins = [i for i in range(len(residues)) if i == 0 or residues[i]["chain"] != residues[i - 1]["chain"]]
    step = max(len(residues) // _TICKS, 1)
    ticks = sorted({*begins[:40], *range(step // 2, len(residues), step)})
    many = len(begins) > 1
    texts = [
        _plain(
            f"{residues[i]['chain']} {residues[i]['number']}"
            if many and i in begins
            else residues[i]["number"]
        )
        for i in ticks
    ]
    lines = [
        {
            "type": "line",
            "x0": i - 0.5,
            "x1": i - 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"width": 1, "dash": "dot"},
        }
        for i in begins[1:]
    ]
    axis = {"tickvals": ticks, "ticktext": texts, "title": {"text": "residue"}, "zeroline": False}
    return {"xaxis": axis, "shapes": lines, "hovermode": "closest"}


def _band(first: int, last: int, color: str, low: float, high: float) -> dict[str, Any]:
    ends = {"x0": first - 0.5, "x1": last + 0.5, "y0": low, "y1": high, "yref": "paper"}
    return {
        "type": "rect",
        **ends,
        "fillcolor": color,
        "opacity": 0.25 if low < 1 else 1,
        "line": {"width": 0},
        "layer": "below",
    }


def _runs(groups: Sequence[Sequence[int]], x: Mapping[int, int]) -> list[list[int]]:
    """Return the runs of neighbours among the residues of all groups, in order."""
    runs: list[list[int]] = []
    for row in sorted({row for group in groups for row in group if row in x}):
        if runs and x[row] == x[runs[-1][-1]] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _plain(text: Any) -> str:
    """Return a text that plotly shows as it is: it reads some HTML."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
