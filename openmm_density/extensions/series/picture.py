"""The picture of a series: how far from one model to the next, how well each fits, and how domains turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...report.plots.style import AFTER, BEFORE, REFERENCE, STYLE, save
from .result import SeriesResult

LINES = ("#1f6feb", "#e8590c", "#2b8a3e", "#a98bd1", "#d1495b", "#f08c00")
"""Of domains and internal coordinates, in their order."""


def draw_series(path: Path, result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the picture as a PNG."""
    panels = [_steps, _correlations]
    if result.path.motions:
        panels.append(_turns)
    panels += [_coordinate(number) for number in range(len(result.path.coordinates))]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 1.9 * len(panels)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
        for draw, panel in zip(panels, axes):
            draw(panel, result, rows)
        axes[-1].set_xlabel("volume")
        axes[-1].set_xlim(0.5, len(rows) + 0.5)
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        save(figure, path)


def _steps(panel: Axes, result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> None:
    steps, jumps = result.path.steps, result.path.jumps
    colors = [REFERENCE if number in jumps else AFTER for number in range(len(steps))]
    panel.bar(np.arange(2, len(rows) + 1), steps, color=colors, width=0.6)
    panel.set_ylabel("Cα RMSD to the\nmodel before (Å)")
    changes = [np.nan if each is None else each for each in result.path.volume_changes]
    beside = panel.twinx()
    beside.plot(np.arange(2, len(rows) + 1), changes, "o-", color=BEFORE, markersize=3, linewidth=1)
    beside.set_ylim(bottom=0)
    beside.set_ylabel("1 − CC of\nthe volumes", color="#495057")
    for number in jumps:
        panel.annotate("jump", (number + 2, steps[number]), ha="center", va="bottom", color=REFERENCE)


def _correlations(panel: Axes, result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> None:
    numbers = [row["frame"] for row in rows]
    panel.plot(numbers, [row["cc"] for row in rows], "o-", color=AFTER, markersize=4, label="CC")
    if rows[0]["cc_free"] is not None:
        panel.plot(
            numbers, [row["cc_free"] for row in rows], "o-", color=REFERENCE, markersize=4, label="free CC"
        )
    others = [np.nan if row["cc_of_other_pass"] is None else row["cc_of_other_pass"] for row in rows]
    panel.plot(numbers, others, "x", color=BEFORE, markersize=5, label="other pass")
    panel.set_ylabel("correlation")
    panel.legend(ncols=3, loc="best", fontsize=8)


def _turns(panel: Axes, result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> None:
    numbers = [row["frame"] for row in rows]
    for motion, color in zip(result.path.motions, LINES):
        label = f"domain {motion.domain}: {', '.join(motion.residues[:3])}"
        panel.plot(numbers, motion.angle_from_first, "o-", color=color, markersize=4, label=label)
    panel.set_ylabel("rotation from\nthe first (°)")
    panel.legend(fontsize=8)


def _coordinate(number: int) -> Any:
    def draw(panel: Axes, result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> None:
        coordinate, values = result.path.coordinates[number]
        panel.plot(
            [row["frame"] for row in rows], values, "o-", color=LINES[number % len(LINES)], markersize=4
        )
        panel.set_ylabel(f"{coordinate.kind} ({coordinate.unit})")
        panel.set_title(" – ".join(coordinate.selections), fontsize=8, loc="left")

    return draw
