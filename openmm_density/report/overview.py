"""Where the model came to lie: its backbone before and after a fit over the map's projection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..base.atomic_files import atomic_write
from ..base.errors import InputError
from ..maps.density_map import DensityMap
from .colors import AFTER, OTHER, REFERENCE

MARGIN = 5.0
"""Å around the models that the overview shows."""

# In parts of its width: residues that are nearer to one another share a label; beyond the other, labels stand to the left.
_APART, _RIGHT = 0.1, 0.9
_BEFORE, _WORSE = "#495057", OTHER
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.edgecolor": "#868e96",
    "xtick.color": "#495057",
    "ytick.color": "#495057",
}


@dataclass(frozen=True)
class View:
    """A model as the picture shows it."""

    title: str
    traces: list[np.ndarray]  # (n, 3), the backbone of each chain, in Å
    marks: list[tuple[str, np.ndarray]]  # Names, as in ``A 17``, and places of residues to point at
    # (m, 3), its atoms in Å; of a crystal's map only what is near those of a view is shown
    atoms: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))


class _Projection(NamedTuple):
    """The map summed along an axis: its values and where its pixels are (Å), and the axes across and up the picture."""

    values: np.ndarray
    points: np.ndarray
    across: int
    up: int

    def extent(self, axis: int) -> float:
        """Return its length in Å along an axis."""
        return max(float(np.ptp(self.points[..., axis])), 1.0)


def plot_overview(
    path: Path,
    density_map: DensityMap,
    before: View,
    after: View,
    reference: Sequence[np.ndarray] = (),
) -> None:
    """Draw the backbone before and after over the density around it, seen along the models' shortest side.

    Of a crystal's map, which is full of solvent and of mates, only the density near the models is shown. `path`: a PNG;
    `density_map`: shown as its projection; `reference` (n, 3): the traces of a reference's chains, in Å, drawn on top.
    """
    projection = _project(density_map, (before, after), reference)
    width, height = projection.extent(projection.across), projection.extent(projection.up)
    shape = np.clip(height / width, 0.5, 1.6)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 5.2 * shape + 1.0), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for panel, view, color in zip(panels, (before, after), (_BEFORE, AFTER)):
            _plot_view(panel, projection, view, color, reference)
        panels[0].set_ylabel(f"{'xyz'[projection.up]} (Å)")
        handles = [
            Line2D([], [], color=_BEFORE, linewidth=2.6, label="model before"),
            Line2D([], [], color=AFTER, linewidth=2.6, label="model after"),
        ]
        if reference:
            handles.append(Line2D([], [], color=REFERENCE, linewidth=1.1, label="reference"))
        if before.marks or after.marks:
            ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": _WORSE}
            handles.append(Line2D([], [], linestyle="", label="lowest correlation", **ring))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=150, format="png")


def _project(density_map: DensityMap, views: Sequence[View], reference: Sequence[np.ndarray]) -> _Projection:
    """Return what is above the mean of the map near the models, summed along the shortest side."""
    traces = [*(trace for view in views for trace in view.traces), *reference]
    is_crystal = density_map.periodic
    if traces:
        with suppress(InputError):  # a model outside the map, all of which is then shown
            density_map = density_map.crop(np.concatenate(traces), MARGIN)
    sides = density_map.size * density_map.voxel_size
    along = int(np.argmin(sides))
    across, up = (axis for axis in range(3) if axis != along)
    mean = np.float32(density_map.data.mean(dtype=np.float64))
    clipped = np.clip(density_map.data, mean, None)
    if is_crystal and traces:
        atoms = np.concatenate([*(view.atoms for view in views), *traces])
        clipped[~density_map.mask_around(atoms, MARGIN)] = mean
    values = clipped.sum(axis=2 - along, dtype=np.float64)
    rows, columns = np.indices(values.shape)
    index = np.zeros((*values.shape, 3))
    index[..., across], index[..., up] = columns, rows
    index[..., along] = density_map.size[along] / 2
    return _Projection(values, index @ density_map.matrix.T + density_map.origin, across, up)


def _plot_view(
    panel: Axes, projection: _Projection, view: View, color: str, reference: Sequence[np.ndarray]
) -> None:
    values, points, across, up = projection
    if min(values.shape) > 1:
        panel.contourf(points[..., across], points[..., up], values, levels=14, cmap="Greys", alpha=0.75)
    for trace in view.traces:
        outline = [patheffects.Stroke(linewidth=4.4, foreground="white"), patheffects.Normal()]
        panel.plot(trace[:, across], trace[:, up], color=color, linewidth=2.6, path_effects=outline)
    for trace in reference:
        panel.plot(trace[:, across], trace[:, up], color=REFERENCE, linewidth=1.1)
    _plot_marks(panel, projection, view.marks)
    panel.set_aspect("equal")
    panel.set_title(view.title, fontsize=11)
    panel.set_xlabel(f"{'xyz'[across]} (Å)")


def _plot_marks(panel: Axes, projection: _Projection, marks: Sequence[tuple[str, np.ndarray]]) -> None:
    """Draw rings around residues, with a label for each group of neighbours."""
    _, points, across, up = projection
    left, width = points[..., across].min(), projection.extent(across)
    for label, places in _clustered(marks, (across, up), _APART * width):
        for place in places:
            panel.plot(
                place[across],
                place[up],
                marker="o",
                markersize=13,
                markerfacecolor="none",
                markeredgecolor=_WORSE,
                markeredgewidth=1.6,
            )
        places.sort(key=lambda place: place[across])
        is_right = places[-1][across] > left + _RIGHT * width
        beside = places[0] if is_right else places[-1]
        panel.annotate(
            label,
            (beside[across], beside[up]),
            xytext=(-8 if is_right else 8, 8),
            textcoords="offset points",
            ha="right" if is_right else "left",
            color=_WORSE,
            fontweight="bold",
            path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")],
        )


def _clustered(
    marks: Sequence[tuple[str, np.ndarray]], axes: tuple[int, int], apart: float
) -> list[tuple[str, list[np.ndarray]]]:
    """Join marks that are within a distance in the picture, so that their names do not cover each other."""
    clusters: list[list[tuple[str, np.ndarray]]] = []
    for mark in marks:
        joined, others = [mark], []
        for cluster in clusters:
            if any(np.linalg.norm((mark[1] - place)[list(axes)]) <= apart for _, place in cluster):
                joined += cluster
            else:
                others.append(cluster)
        clusters = [*others, joined]
    return [
        (_joined([label for label, _ in cluster]), [place for _, place in cluster]) for cluster in clusters
    ]


def _joined(labels: Sequence[str]) -> str:
    """Return names such as ``A 17`` in order, neighbours as one and the chain once: as in ``A 17–19, 22, B 4``."""
    named = []
    for label in labels:
        chain, _, text = label.rpartition(" ")
        named.append((chain, int(re.match(r"-?\d+", text)[0]), text))
    runs: list[list[tuple[str, int, str]]] = []
    for residue in sorted(named):
        if runs and runs[-1][-1][0] == residue[0] and residue[1] - runs[-1][-1][1] in (0, 1):
            runs[-1].append(residue)
        else:
            runs.append([residue])
    parts, previous = [], None
    for run in runs:
        chain, first, last = run[0][0], run[0][2], run[-1][2]
        numbers = first if len(run) == 1 else f"{first}–{last}"
        parts.append(numbers if chain in ("", previous) else f"{chain} {numbers}")
        previous = chain
    return ", ".join(parts)
