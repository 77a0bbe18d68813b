"""Figures of a series, as plotly draws them; a click on a point shows its frame in the film."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..html_report.colors import AFTER, BEFORE, DOUBTFUL, OTHER, REBUILT, REFERENCE
from ..models.rigid_domains import DomainMotion
from .internal_coordinates import InternalCoordinate

LINES = (AFTER, OTHER, REBUILT, "#a98bd1", REFERENCE, DOUBTFUL)


def steps_figure(
    rows: Sequence[Mapping[str, Any]], changes: Sequence[float | None], jumps: Sequence[int]
) -> dict[str, Any]:
    """Return how far it is from each model to the next, and how much the volumes change there.

    Parameters
    ----------
    changes : sequence of float or None
        1 − the correlation of neighbouring volumes.
    """
    later = rows[1:]
    numbers = [row["frame"] for row in later]
    bars = {
        "type": "bar",
        "name": "model",
        "x": numbers,
        "y": [row["rmsd_to_previous"] for row in later],
        "marker": {"color": [REFERENCE if k in jumps else AFTER for k in range(len(later))]},
        "text": ["jump" if k in jumps else "" for k in range(len(later))],
        "hovertemplate": "volume %{x}: %{y:.2f} Å from the one before<extra></extra>",
    }
    line = {
        **_line("volume", numbers, list(changes), BEFORE),
        "yaxis": "y2",
        "hovertemplate": "volume %{x}: 1 − CC %{y:.3f} with the one before<extra></extra>",
    }
    layout = _layout("Cα RMSD to the model before (Å)", len(rows))
    layout["yaxis2"] = {
        "title": {"text": "1 − CC of the volumes"},
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "showgrid": False,
        "tickmode": "auto",
        "nticks": 6,
        "tickformat": ".3~g",
    }
    layout["margin"] = {"r": 60}
    return {"data": [bars, line], "layout": layout, "frames": True}


def correlation_figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the correlation of each model with its volume, and of the other pass."""
    numbers = [row["frame"] for row in rows]
    data = [_line("CC", numbers, [row["cc"] for row in rows], AFTER)]
    if rows[0]["cc_free"] is not None:
        data.append(_line("free CC", numbers, [row["cc_free"] for row in rows], REFERENCE))
    other = _line("other pass", numbers, [row["cc_of_other_pass"] for row in rows], BEFORE)
    data.append({**other, "mode": "markers", "marker": {"symbol": "x", "size": 7}})
    return {"data": data, "layout": _layout("correlation", len(rows), from_zero=False), "frames": True}


def rotation_figure(motions: Sequence[DomainMotion], previous: bool = False) -> dict[str, Any] | None:
    """Return by how much domains are rotated from the first frame, or from the one before; None where there is one domain."""
    if not motions:
        return None
    data = []
    for motion, color in zip(motions, LINES):
        angles = motion.angle_from_previous if previous else motion.angle_from_first
        numbers = list(range(1, len(angles) + 1))
        name = f"domain {motion.domain}: {', '.join(motion.residues[:3])}"
        data.append(_line(name, numbers, angles, color, "%{y:.1f}°"))
    since = "the one before" if previous else "the first"
    return {"data": data, "layout": _layout(f"rotation from {since} (°)", len(angles)), "frames": True}


def coordinate_figure(coordinate: InternalCoordinate, values: np.ndarray, color: str) -> dict[str, Any]:
    """Return an internal coordinate along the path."""
    numbers = list(range(1, len(values) + 1))
    data = [_line(coordinate.label, numbers, np.round(values, 3).tolist(), color)]
    title = f"{coordinate.kind} ({coordinate.unit})"
    return {"data": data, "layout": _layout(title, len(values), from_zero=False), "frames": True}


def _line(
    name: str, numbers: Sequence[int], values: Sequence[float | None], color: str, form: str = "%{y:.3f}"
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(numbers),
        "y": list(values),
        "line": {"color": color, "width": 1.8},
        "hovertemplate": f"volume %{{x}}: {form}<extra></extra>",
    }


def _layout(title: str, n_frames: int, from_zero: bool = True) -> dict[str, Any]:
    axis = {"title": {"text": title}}
    if from_zero:
        axis["rangemode"] = "tozero"
    return {
        "xaxis": {"title": {"text": "volume"}, "range": [0.4, n_frames + 0.6]},
        "yaxis": axis,
        "hovermode": "closest",
        "shapes": [],
    }
