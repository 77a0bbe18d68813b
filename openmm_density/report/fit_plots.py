"""Figures of a whole fit, as plotly draws them: progress, Fourier shell correlation, geometry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.page_blocks import Card
from ..validation.fsc import HALF_MAP_THRESHOLD
from .colors import AFTER, BEFORE, OF_STAGE, OTHER, REFERENCE

GEOMETRY_TITLE = "Geometry: RMSZ of bonds and angles, MolProbity's clashscore, and the share of outliers"
GEOMETRY = (
    ("bonds (RMSZ)", "bond_rmsz", None),
    ("angles (RMSZ)", "angle_rmsz", None),
    ("clashscore", "clashscore", None),
    ("Ramach. (%)", "ramachandran_outlier_count", "ramachandran_count"),
    ("rotamers (%)", "rotamer_outlier_count", "rotamer_count"),
)
"""What is drawn of the geometry: its name, the key of a report, and that of what it is a part of."""


def clash_cards(geometry: Mapping[str, Any]) -> list[Card]:
    """Return the card of the clashes; none of a model without hydrogens."""
    if geometry["clashscore"] is None:
        return []
    return [Card("Clashscore", f"{geometry['clashscore']:.1f}", f"{geometry['clash_count']} pairs of atoms")]


def progress_figure(
    log: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return correlation, distance to a reference, strength and temperature over the steps of a fit; None without a log."""
    if not log:
        return None
    has_rmsd = log[-1].get("ca_rmsd") is not None
    panels = [
        [("cc", "CC", AFTER), ("similarity", "similarity", OTHER), ("cc_free", "CC, other map", REFERENCE)],
        *([[("ca_rmsd", "RMSD to the reference", REFERENCE)]] if has_rmsd else []),
        [("strength", "strength", AFTER)],
        [("temperature", "temperature", OTHER)],
    ]
    titles = ["correlation", *(["RMSD (Å)"] if has_rmsd else []), "k (kJ/mol<br>per atom)", "temperature (K)"]
    steps = [row["step"] for row in log]
    data, layout = [], {"hovermode": "x", "shapes": [], "annotations": []}
    layout["legend"] = {"y": 1 - 0.4 / len(panels), "yanchor": "top", "x": 0.99, "xanchor": "right"}
    height = 1 / len(panels)
    for number, (curves, title) in enumerate(zip(panels, titles)):
        axis = "" if number == 0 else str(number + 1)
        top = 1 - number * height
        layout[f"yaxis{axis}"] = {"title": {"text": title}, "domain": [top - height + 0.035, top - 0.01]}
        for key, label, color in curves:
            values = [row.get(key) for row in log]
            if all(value is None for value in values):
                continue
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": label,
                    "x": steps,
                    "y": values,
                    "yaxis": f"y{axis}",
                    "line": {"color": color, "width": 1.6},
                    "hovertemplate": f"step %{{x}}: {label} %{{y:.4g}}<extra></extra>",
                    "showlegend": len(curves) > 1,
                }
            )
    layout["xaxis"] = {"title": {"text": "step"}, "anchor": f"y{len(panels)}", "range": [0, max(*steps, 1)]}
    _mark_stages(layout, stages)
    return {"data": data, "layout": layout}


def _mark_stages(layout: dict[str, Any], stages: Sequence[Mapping[str, Any]]) -> None:
    """Shade every second stage, and name them."""
    begin, total = 0, sum(stage["steps"] for stage in stages) or 1
    for number, stage in enumerate(stages):
        end = begin + stage["steps"]
        if number % 2 and end > begin:
            box = {"x0": begin, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
            layout["shapes"].append(
                {"type": "rect", **box, "fillcolor": BEFORE, "opacity": 0.12, "line": {"width": 0}}
            )
        if end - begin > 0.03 * total:
            name = str(stage["name"]).replace("&", "&amp;").replace("<", "&lt;")
            place = {"x": (begin + end) / 2, "y": 1, "yref": "paper", "yanchor": "bottom", "textangle": -40}
            layout["annotations"].append(
                {**place, "xanchor": "left", "text": name, "showarrow": False, "font": {"size": 10}}
            )
        begin = end


HALF_MAPS = "half maps"
"""The key of their curve."""
FSC_OF_HALVES = "; that of the half maps around the model, with a line at 0.143"


def fsc_title(with_half_maps: bool) -> str:
    """Return what the plot of Fourier shell correlations is called."""
    return "Fourier shell correlation of map and model" + (", and of the half maps" if with_half_maps else "")


def fsc_figure(curves: Mapping[str, tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any] | None:
    """Return Fourier shell correlations, or None; `curves` by stage, or `HALF_MAPS`: name, frequency (1/Å), correlation."""
    known = {stage: curve for stage, curve in curves.items() if curve[1]}
    if not known:
        return None
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label,
            "x": curve["frequency"],
            "y": curve["correlation"],
            "text": [f"{1 / each:.2f}" for each in curve["frequency"]],
            "hovertemplate": f"{label}: %{{y:.3f}} at %{{text}} Å<extra></extra>",
            "line": {"color": OF_STAGE.get(stage, OTHER), "width": 1.8},
        }
        for stage, (label, curve) in known.items()
    ]
    longest = max((curve["frequency"] for _, curve in known.values()), key=len)
    resolutions = [
        each
        for each in (20, 10, 6, 5, 4, 3.5, 3, 2.5, 2, 1.5, 1.2, 1)
        if longest[0] <= 1 / each <= longest[-1]
    ]
    lines = [0.5, *([HALF_MAP_THRESHOLD] if HALF_MAPS in known else [])]
    across = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "line": {"width": 1, "dash": "dot"}}
    return {
        "data": data,
        "layout": {
            "xaxis": {
                "title": {"text": "resolution (Å)"},
                "tickvals": [1 / each for each in resolutions],
                "ticktext": [f"{each:g}" for each in resolutions],
                "range": [0, longest[-1]],
            },
            "yaxis": {"title": {"text": "Fourier shell correlation"}, "range": [-0.1, 1.03]},
            "shapes": [{**across, "y0": each, "y1": each} for each in lines],
            "hovermode": "closest",
        },
    }


def geometry_figure(reports: Mapping[str, tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any] | None:
    """Return bars of the geometry at each stage, a panel for each measure; `reports`: name and a summary's geometry by stage."""
    known = {stage: report for stage, report in reports.items() if report[1]}
    measures = [
        measure
        for measure in GEOMETRY
        if any(_share(report, measure) is not None for _, report in known.values())
    ]
    if not measures:
        return None
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": [], "hovermode": "closest", "bargap": 0.15}
    columns = min(len(measures), 3)
    lines = -(-len(measures) // columns)
    for number, measure in enumerate(measures):
        axis = "" if number == 0 else str(number + 1)
        left, top = number % columns / columns, 1 - number // columns / lines
        across, up = [left + 0.03, left + 1 / columns - 0.03], [top - 1 / lines + 0.04, top - 0.12]
        layout[f"xaxis{axis}"] = {
            "domain": across,
            "anchor": f"y{axis}",
            "visible": False,
            "fixedrange": True,
        }
        layout[f"yaxis{axis}"] = {
            "domain": up,
            "anchor": f"x{axis}",
            "rangemode": "tozero",
            "fixedrange": True,
        }
        data += _bars(known, measure, axis, number == 0)
        title = {
            "x": across[0],
            "y": up[1] + 0.02,
            "text": measure[0],
            "font": {"size": 12},
            "showarrow": False,
        }
        above = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        layout["annotations"].append({**above, **title})
    return {"data": data, "layout": layout}


def _bars(
    known: Mapping[str, tuple[str, Mapping[str, Any]]],
    measure: tuple[str, str, str | None],
    axis: str,
    in_legend: bool,
) -> Iterator[dict[str, Any]]:
    """Yield a bar for each stage."""
    for stage, (label, report) in known.items():
        value = _share(report, measure)
        yield {
            "type": "bar",
            "name": label,
            "legendgroup": stage,
            "showlegend": in_legend,
            "x": [label],
            "y": [value],
            "xaxis": f"x{axis}",
            "yaxis": f"y{axis}",
            "text": ["" if value is None else f"{value:.3g}"],
            "textangle": 0,
            "textposition": "outside",
            "cliponaxis": False,
            "marker": {"color": OF_STAGE[stage]},
            "hovertemplate": f"{measure[0]}, {label}: %{{y:.4g}}<extra></extra>",
        }


def _share(report: Mapping[str, Any], measure: tuple[str, str, str | None]) -> float | None:
    _, key, of = measure
    value = report.get(key)
    if value is None or of is None:
        return value
    return 100 * value / report[of] if report.get(of) else None
