"""The pictures of a fit: how it went, where the model came to lie, and what became of each residue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...atomic_files import atomic_write
from ...errors import InputError
from ...maps.density_map import DensityMap
from ...validation.stretches import Stretch
from ..fit_result import Row

BEFORE, AFTER, REFERENCE = "#8b95a5", "#1f6feb", "#d1495b"
BETTER, WORSE, DOUBTFUL = "#1f6feb", "#e8590c", "#f08c00"
TEMPERATURE, REBUILT = "#e8590c", "#2b8a3e"

# Chains beyond these are drawn as strips of colour, for which one page has room.
MOST_CURVES = 6
# Shorter chains are drawn among the ligands.
SHORTEST_CHAIN = 5
# Of ligands and short chains, the poorest.
MOST_LIGANDS = 30
# A gap in the numbering is drawn as wide as it is up to this, and no wider.
WIDEST_GAP = 12
# Å around the models that the overview shows.
MARGIN = 5.0
# Of its width: residues that are nearer to one another are named together; beyond the other, names stand to the left.
APART, RIGHT = 0.1, 0.9
# Up to so many rows of a log are dots on its curves: without, nobody sees how little these tell.
MOST_DOTS = 50

_STAGES = {"initial": ("before", BEFORE), "final": ("after", AFTER), "reference": ("reference", REFERENCE)}
_MEASURES = {"correlation": "correlation", "q_score": "Q-score"}


@dataclass(frozen=True)
class View:
    """A model as the overview shows it.

    Attributes
    ----------
    title : str
    traces : list of np.ndarray, shape (n, 3)
        The backbone of each chain, in Å.
    marks : list of (str, np.ndarray)
        Names, as in ``A 17``, and places of residues to point at.
    atoms : np.ndarray, shape (m, 3)
        Its atoms in Å; of a crystal's map only what is near those of a view is shown.
    """

    title: str
    traces: list[np.ndarray]
    marks: list[tuple[str, np.ndarray]]
    atoms: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))


def plot_progress(
    path: Path,
    rows: Sequence[Row],
    stages: Sequence[dict[str, Any]],
    timestep: float | None,
    cc_initial: float,
    cc_reference: float | None,
    rmsd: str = "RMSD",
) -> None:
    """Draw correlation, RMSD, strength, temperature and energy over the stages of a fit.

    The large dots at the end are the minimised model; the small ones are the rows, where there are few.

    Parameters
    ----------
    path : path
        A PNG.
    rows : sequence of Row
        The log.
    stages : sequence of dict
        Of each stage its ``name`` and how many ``steps`` were done in it.
    timestep : float, optional
        In fs; None where it changed on the way.
    cc_initial : float
        The correlation of the model as it was read, drawn as a line: the log begins after the minimisation without density.
    cc_reference : float, optional
        The reference's own correlation, drawn as a line.
    rmsd : str
        What the distance to the reference is called, as in ``Cα RMSD``.
    """
    steps = np.array([row.step for row in rows])
    has_rmsd = rows[-1].ca_rmsd is not None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10.5, 8.6 if has_rmsd else 7.0), layout="constrained")
        stack = figure.subplots(5 if has_rmsd else 4, 1, sharex=True)
        panels = iter(stack)
        correlation = next(panels)
        correlation.plot(
            steps, [row.cc for row in rows], color=AFTER, label="CC (mask)", linewidth=1.8, **_END
        )
        correlation.plot(
            steps,
            [row.similarity for row in rows],
            color=AFTER,
            alpha=0.4,
            label="similarity in the\nenergy, at the\nstage's resolution",
        )
        if rows[-1].cc_free is not None:
            correlation.plot(steps, [row.cc_free for row in rows], color=TEMPERATURE, label="CC, other map")
        correlation.axhline(cc_initial, color=BEFORE, linestyle=":", label="CC before", zorder=1.5)
        if cc_reference is not None:
            correlation.axhline(
                cc_reference, color=REFERENCE, linestyle=":", label="CC of the reference", zorder=1.5
            )
        correlation.set_ylabel("correlation")
        _legend_beside(correlation)
        if has_rmsd:
            distance = next(panels)
            distance.plot(steps, [row.ca_rmsd for row in rows], color=REFERENCE, **_END)
            distance.set_ylabel(f"{rmsd}\nto reference (Å)")
            distance.set_ylim(bottom=0)
        _plot_drive(next(panels), steps, rows)
        planarity = next(panels)
        planarity.plot(steps, [row.planarity_rms for row in rows], color=AFTER, **_END)
        planarity.set_ylabel("RMS deviation\nfrom planarity (Å)")
        planarity.set_ylim(bottom=0)
        energy = next(panels)
        density = np.array([row.density_energy for row in rows]) / 1000
        force_field = np.array([row.potential_energy for row in rows]) / 1000 - density
        energy.plot(steps, force_field, color=AFTER, label="force field\nand restraints", **_END)
        energy.plot(steps, density, color=REFERENCE, label="density", **_END)
        low, high = np.percentile(force_field, [0, 98])
        low, high = min(low, float(density.min()), 0), max(high, float(density.max()), 1e-3)
        energy.set_ylim(low - 0.05 * abs(low), 1.15 * high)
        energy.set_ylabel("energy (MJ/mol)")
        _legend_beside(energy)
        energy.set_xlabel("step" if timestep is None else f"step of {timestep:g} fs")
        energy.set_xlim(0, max(int(steps[-1]), 1))
        energy.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}".replace(",", " "))
        figure.align_ylabels(stack)
        _mark_stages(stack, stages)
        if len(rows) <= MOST_DOTS:
            _mark_rows(figure.axes)
        _save(figure, path)


def plot_overview(
    path: Path,
    density_map: DensityMap,
    before: View,
    after: View,
    reference: Sequence[np.ndarray] = (),
) -> None:
    """Draw the backbone before and after over the density around it, seen along the models' shortest side.

    Of a crystal's map, which is full of solvent and of mates, only the density near the models is shown.

    Parameters
    ----------
    path : path
        A PNG.
    density_map : DensityMap
        Shown as its projection.
    before, after : View
    reference : sequence of np.ndarray, shape (n, 3)
        The traces of a reference's chains, in Å, drawn on top.
    """
    everything = [*before.traces, *after.traces, *reference]
    is_crystal = density_map.periodic
    if everything:
        with suppress(InputError):  # a model outside the map, all of which is then shown
            density_map = density_map.crop(np.concatenate(everything), MARGIN)
    sides = density_map.size * density_map.voxel_size
    along = int(np.argmin(sides))
    across, up = (axis for axis in range(3) if axis != along)
    mean = np.float32(density_map.data.mean(dtype=np.float64))
    clipped = np.clip(density_map.data, mean, None)
    if is_crystal and everything:
        near = density_map.mask_around(np.concatenate([before.atoms, after.atoms, *everything]), MARGIN)
        clipped[~near] = mean
    projection = clipped.sum(axis=2 - along, dtype=np.float64)
    rows, columns = np.indices(projection.shape)
    index = np.zeros((*projection.shape, 3))
    index[..., across], index[..., up] = columns, rows
    index[..., along] = density_map.size[along] / 2
    points = index @ density_map.matrix.T + density_map.origin
    width, height = (max(float(np.ptp(points[..., axis])), 1.0) for axis in (across, up))
    shape = np.clip(height / width, 0.5, 1.6)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 5.2 * shape + 1.0), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for panel, view, color in zip(panels, (before, after), ("#495057", AFTER)):
            if min(projection.shape) > 1:
                panel.contourf(
                    points[..., across], points[..., up], projection, levels=14, cmap="Greys", alpha=0.75
                )
            for trace in view.traces:
                outline = [patheffects.Stroke(linewidth=4.4, foreground="white"), patheffects.Normal()]
                panel.plot(trace[:, across], trace[:, up], color=color, linewidth=2.6, path_effects=outline)
            for trace in reference:
                panel.plot(trace[:, across], trace[:, up], color=REFERENCE, linewidth=1.1)
            left = points[..., across].min()
            for label, places in _clustered(view.marks, (across, up), APART * width):
                for place in places:
                    panel.plot(
                        place[across],
                        place[up],
                        marker="o",
                        markersize=13,
                        markerfacecolor="none",
                        markeredgecolor=WORSE,
                        markeredgewidth=1.6,
                    )
                places.sort(key=lambda place: place[across])
                is_right = places[-1][across] > left + RIGHT * width
                beside = places[0] if is_right else places[-1]
                panel.annotate(
                    label,
                    (beside[across], beside[up]),
                    xytext=(-8 if is_right else 8, 8),
                    textcoords="offset points",
                    ha="right" if is_right else "left",
                    color=WORSE,
                    fontweight="bold",
                    path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")],
                )
            panel.set_aspect("equal")
            panel.set_title(view.title, fontsize=11)
            panel.set_xlabel(f"{'xyz'[across]} (Å)")
        panels[0].set_ylabel(f"{'xyz'[up]} (Å)")
        handles = [
            Line2D([], [], color="#495057", linewidth=2.6, label="model before"),
            Line2D([], [], color=AFTER, linewidth=2.6, label="model after"),
        ]
        if reference:
            handles.append(Line2D([], [], color=REFERENCE, linewidth=1.1, label="reference"))
        if before.marks or after.marks:
            ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": WORSE}
            handles.append(Line2D([], [], linestyle="", label="lowest correlation", **ring))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        _save(figure, path)


def plot_residues(path: Path, residues: Sequence[dict[str, Any]], stretches: Sequence[Stretch] = ()) -> None:
    """Draw correlation and Q-score of each residue before, after, and in a reference.

    Up to six chains are drawn as curves, a chain below the other; more as strips of colour. Ligands and chains of less than
    five residues have a panel of their own.

    Parameters
    ----------
    path : path
        A PNG.
    residues : sequence of dict
        From `openmm_density.validation.model_report.residue_changes`; marked are those that are ``rebuilt``, where that is told.
    stretches : sequence of Stretch
        What is doubtful, to be marked.
    """
    chains, ligands = _sorted_out(residues)
    stages = [stage for stage in _STAGES if f"correlation_{stage}" in residues[0]]
    with matplotlib.rc_context(_STYLE):
        if len(chains) <= MOST_CURVES:
            figure = _curves(residues, chains, ligands, stages, stretches)
        else:
            figure = _strips(residues, chains, ligands, stages, stretches)
        _save(figure, path)


def _mark_stages(panels: Sequence[Axes], stages: Sequence[dict[str, Any]]) -> None:
    """Shade every second stage, and write their names over the first panel."""
    begin = 0
    total = max(sum(stage["steps"] for stage in stages), 1)
    for number, stage in enumerate(stages):
        end = begin + stage["steps"]
        if end == begin:
            continue
        for panel in panels:
            if number % 2:
                panel.axvspan(begin, end, color="#f1f3f5", zorder=0, linewidth=0)
            panel.axvline(end, color="#ced4da", linewidth=0.8, zorder=0)
        narrow = (end - begin) / total < 0.012 * len(stage["name"]) + 0.02
        panels[0].annotate(
            stage["name"],
            ((begin + end) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="left" if narrow else "center",
            va="bottom",
            rotation=35 if narrow else 0,
            rotation_mode="anchor",
        )
        begin = end


def _mark_rows(panels: Sequence[Axes]) -> None:
    """Put a dot on each row but the last, which is the minimised model."""
    for panel in panels:
        # Others are as long as a panel is wide or high.
        for line in [line for line in panel.lines if line.get_transform() == panel.transData]:
            x, y = (np.asarray(values)[:-1] for values in line.get_data())
            color, alpha = line.get_color(), line.get_alpha()
            panel.plot(x, y, linestyle="", marker="o", markersize=3.0, color=color, alpha=alpha)


def _legend_beside(panel: Axes) -> None:
    """Put a legend where it hides nothing."""
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), handlelength=1.6)


def _plot_drive(panel: Axes, steps: np.ndarray, rows: Sequence[Row]) -> None:
    """Draw what drives a fit: the strength, and the temperature."""
    strength = np.array([row.strength for row in rows])
    panel.plot(steps, strength, color=AFTER)
    panel.set_ylim(0, max(float(strength.max()), 1e-3) * 1.1)
    panel.set_ylabel("strength\n(kJ/mol per atom)", color=AFTER)
    twin = panel.twinx()
    twin.plot(steps, [row.temperature for row in rows], color=TEMPERATURE, alpha=0.8)
    twin.set_ylabel("temperature (K)", color=TEMPERATURE)
    twin.set_ylim(bottom=0)
    twin.spines["right"].set_visible(True)


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


def _sorted_out(residues: Sequence[dict[str, Any]]) -> tuple[dict[str, list[int]], list[int]]:
    """Return the polymers by chain, and what else there is but water."""
    chains: dict[str, list[int]] = {}
    others = []
    for place, row in enumerate(residues):
        if row["kind"] == "polymer":
            chains.setdefault(row["chain"], []).append(place)
        elif row["kind"] != "water":
            others.append(place)
    for chain in [chain for chain, members in chains.items() if len(members) < SHORTEST_CHAIN]:
        others.extend(chains.pop(chain))
    return chains, sorted(others)


def _curves(
    residues: Sequence[dict[str, Any]],
    chains: dict[str, list[int]],
    ligands: list[int],
    stages: Sequence[str],
    stretches: Sequence[Stretch],
) -> Figure:
    heights = [1.5, 1.0] * len(chains) + ([1.3] if ligands or not chains else [])
    figure = Figure(figsize=(10.5, 0.9 + 1.25 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for number, (chain, members) in enumerate(chains.items()):
        places = _places([residues[i]["number"] for i in members])
        pair = panels[2 * number : 2 * number + 2]
        pair[1].sharex(pair[0])
        for panel, (measure, name) in zip(pair, _MEASURES.items()):
            _plot_curves(panel, places, _curves_of(residues, members, measure, stages))
            panel.set_ylabel(name)
        pair[0].set_title(_chain_title(chain, residues, members, stages), loc="left", fontsize=10, pad=9)
        pair[0].tick_params(labelbottom=False)
        pair[0].set_xlim(places[0] - 1, places[-1] + 1)
        step = _tick_step(places[-1] - places[0] + 1)
        ticks = [k for k, i in enumerate(members) if residues[i]["number"] % step == 0]
        pair[1].set_xticks([places[k] for k in ticks], [str(residues[members[k]]["number"]) for k in ticks])
        _mark_stretches(pair, dict(zip(members, places)), stretches)
        _mark_rebuilt(pair[0], places[[bool(residues[i].get("rebuilt")) for i in members]])
    if chains:
        panels[2 * len(chains) - 1].set_xlabel("residue")
    if ligands or not chains:
        _plot_ligands(panels[-1], residues, ligands, stages)
    handles = [Line2D([], [], color=_STAGES[stage][1], label=_STAGES[stage][0]) for stage in stages]
    handles += [
        Line2D([], [], color=color, alpha=0.25, linewidth=8, label=label)
        for label, color in (("better than before", BETTER), ("worse than before", WORSE))
    ]
    handles += _legend_of_marks(residues, chains, stretches)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.align_ylabels(panels)
    return figure


def _plot_curves(panel: Axes, places: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    gaps = np.flatnonzero(np.diff(places) > 1) + 1
    x = np.insert(places.astype(np.float64), gaps, np.nan)
    broken = {stage: np.insert(values, gaps, np.nan) for stage, values in curves.items()}
    before, after = broken["initial"], broken["final"]
    for better, color in ((True, BETTER), (False, WORSE)):
        panel.fill_between(
            x,
            before,
            after,
            where=(after >= before) == better,
            interpolate=True,
            color=color,
            alpha=0.2,
            linewidth=0,
        )
    for stage, width in (("initial", 1.0), ("reference", 0.9), ("final", 1.6)):
        if stage in broken:
            color = _STAGES[stage][1]
            panel.plot(x, broken[stage], color=color, linewidth=width)
            alone = _isolated(broken[stage])
            if alone.any():
                panel.plot(x[alone], broken[stage][alone], "o", color=color, markersize=1.8 * width)
    panel.axhline(0, color="#868e96", linewidth=0.5)
    known = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    lowest, highest = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    panel.set_ylim(max(-1.0, min(0.0, float(lowest) - 0.05)), min(1.0, float(highest) + 0.05))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.grid(axis="y", color="#e9ecef", linewidth=0.6)


def _isolated(values: np.ndarray) -> np.ndarray:
    """Tell which values stand between two that are unknown: a line through them alone shows nothing."""
    known = np.pad(np.isfinite(values), 1)
    return known[1:-1] & ~known[:-2] & ~known[2:]


def _legend_of_marks(
    residues: Sequence[dict[str, Any]], chains: dict[str, list[int]], stretches: Sequence[Stretch]
) -> list[Line2D]:
    rebuilt = any(residues[i].get("rebuilt") for members in chains.values() for i in members)
    marks = (("doubtful", DOUBTFUL, stretches), ("shifted or built anew", REBUILT, rebuilt))
    return [Line2D([], [], color=color, linewidth=8, label=label) for label, color, any_ in marks if any_]


def _mark_stretches(panels: Sequence[Axes], places: dict[int, float], stretches: Sequence[Stretch]) -> None:
    left, right = panels[0].get_xlim()
    # Where labels would meet, every second one is a line higher.
    taken, raised = left - (right - left), False
    found = [([places[row] for row in stretch.rows if row in places], stretch) for stretch in stretches]
    for here, stretch in sorted(((here, each) for here, each in found if here), key=lambda pair: pair[0]):
        first, last = min(here) - 0.5, max(here) + 0.5
        for panel in panels:
            panel.axvspan(first, last, color="#eceff2", zorder=0, linewidth=0)
            panel.axvspan(first, last, ymax=0.035, color=DOUBTFUL, zorder=3, linewidth=0)
        centre = np.clip((first + last) / 2, left + 0.02 * (right - left), right - 0.02 * (right - left))
        raised = not raised and centre - taken < 0.06 * (right - left)
        taken = centre
        panels[0].annotate(
            stretch.first if stretch.first == stretch.last else f"{stretch.first}–{stretch.last}",
            (centre, 0.15 if raised else 0.05),
            xycoords=("data", "axes fraction"),
            fontsize=7.5,
            ha="center",
            va="bottom",
            color="#a34100",
            path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")],
        )


def _mark_rebuilt(panel: Axes, places: np.ndarray) -> None:
    """Draw a bar above the residues that a search laid elsewhere."""
    for place in places:
        panel.axvspan(
            place - 0.5, place + 0.5, ymin=1.0, ymax=1.03, color=REBUILT, linewidth=0, clip_on=False
        )


def _plot_ligands(
    panel: Axes, residues: Sequence[dict[str, Any]], ligands: list[int], stages: Sequence[str]
) -> None:
    after = _curves_of(residues, ligands, "correlation", ["final"])["final"]
    poorest = sorted(np.argsort(after)[:MOST_LIGANDS].tolist())
    shown = [ligands[k] for k in poorest]
    curves = _curves_of(residues, shown, "correlation", stages)
    # Dots in one place stay visible, one inside the other.
    for stage, size in (("initial", 9), ("final", 6.5), ("reference", 3.5)):
        if stage in curves:
            panel.plot(curves[stage], linestyle="", marker="o", markersize=size, color=_STAGES[stage][1])
    panel.set_xticks(range(len(shown)), [residues[i]["residue"] for i in shown])
    if len(shown) > 8:
        panel.tick_params(axis="x", rotation=90, labelsize=7)
    panel.set_xlim(-0.8, max(len(shown), 8) - 0.2)
    panel.set_ylim(min(0.0, np.nanmin([*np.ravel(list(curves.values())), 0.0]) - 0.05), 1.0)
    panel.grid(axis="y", color="#e9ecef", linewidth=0.6)
    panel.set_ylabel("correlation")
    left = f" (the poorest {len(shown)} of {len(ligands)})" if len(ligands) > len(shown) else ""
    panel.set_title(f"ligands and short chains{left}", loc="left", fontsize=10)


def _strips(
    residues: Sequence[dict[str, Any]],
    chains: dict[str, list[int]],
    ligands: list[int],
    stages: Sequence[str],
    stretches: Sequence[Stretch],
) -> Figure:
    doubtful = {row for stretch in stretches for row in stretch.rows}
    height = 0.13 * (len(stages) + 1) * len(chains)
    figure = Figure(figsize=(11.0, height + 1.3 + (2.0 if ligands else 0.0)), layout="constrained")
    grid = figure.add_gridspec(
        2 if ligands else 1, 2, height_ratios=[height + 1.0, 1.6] if ligands else [1.0]
    )
    numbers = np.array([residues[i]["number"] for members in chains.values() for i in members])
    first, last = int(numbers.min()), int(numbers.max())
    pitch = len(stages) + 1
    for column, (measure, name) in enumerate(_MEASURES.items()):
        image = np.full((pitch * len(chains) - 1, last - first + 1), np.nan)
        for row, members in enumerate(chains.values()):
            for offset, values in enumerate(_curves_of(residues, members, measure, stages).values()):
                at = [residues[i]["number"] - first for i in members]
                # Of residues that share a number, the poorest.
                np.fmin.at(image[pitch * row + offset], at, values)
        panel = figure.add_subplot(grid[0, column])
        known = image[np.isfinite(image)]
        low, high = np.percentile(known, [1, 99]) if len(known) else (0.0, 1.0)
        shown = panel.imshow(
            image,
            aspect="auto",
            interpolation="nearest",
            cmap="viridis",
            norm=Normalize(max(float(low), -0.2), float(high)),
            extent=(first - 0.5, last + 0.5, len(image) - 0.5, -0.5),
        )
        for row, members in enumerate(chains.values()):
            top = pitch * row - 0.5
            marks = (
                (REBUILT, top - _MARK, [i for i in members if residues[i].get("rebuilt")]),
                (DOUBTFUL, top + len(stages), [i for i in members if i in doubtful]),
            )
            for color, y, marked in marks:
                panel.broken_barh(
                    [(residues[i]["number"] - 0.5, 1) for i in marked],
                    (y, _MARK),
                    color=color,
                    linewidth=0,
                    clip_on=False,
                )
        panel.set_yticks(
            pitch * np.arange(len(chains)) + (len(stages) - 1) / 2, list(chains) if column == 0 else []
        )
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel("residue")
        panel.set_title(name, loc="left", fontsize=10)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
        figure.colorbar(shown, ax=panel, location="bottom", shrink=0.6, aspect=30, pad=0.01)
        if column == 0:
            panel.set_ylabel("chain")
    if ligands:
        _plot_ligands(figure.add_subplot(grid[1, :]), residues, ligands, stages)
    figure.suptitle(
        f"each chain from top to bottom: {', '.join(_STAGES[stage][0] for stage in stages)}", fontsize=10
    )
    if handles := _legend_of_marks(residues, chains, stretches):
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


# How high a mark is between the strips of two chains, in rows of them.
_MARK = 0.4


def _curves_of(
    residues: Sequence[dict[str, Any]], members: Sequence[int], measure: str, stages: Sequence[str]
) -> dict[str, np.ndarray]:
    return {
        stage: np.array(
            [
                np.nan if value is None else value
                for value in (residues[i][f"{measure}_{stage}"] for i in members)
            ],
            dtype=np.float64,
        )
        for stage in stages
    }


def _places(numbers: Sequence[int]) -> np.ndarray:
    """Return where residues of these numbers are drawn: in their order, gaps as wide as they are unless too wide."""
    steps = np.diff(np.asarray(numbers))
    # Insertions share a number, and in some files numbers fall.
    steps = np.where(steps < 0, WIDEST_GAP, np.clip(steps, 1, WIDEST_GAP))
    return numbers[0] + np.concatenate([[0], np.cumsum(steps)])


def _tick_step(span: int) -> int:
    """Return the numbers of which multiples are written out, for 10 to 30 of them."""
    return next((step for step in (5, 10, 20, 50, 100, 200, 500) if span / step <= 26), 1000)


def _chain_title(
    chain: str, residues: Sequence[dict[str, Any]], members: Sequence[int], stages: Sequence[str]
) -> str:
    medians = []
    for measure, name in _MEASURES.items():
        curves = _curves_of(residues, members, measure, stages)
        known = {stage: values[np.isfinite(values)] for stage, values in curves.items()}
        figures = ", ".join(
            f"{_STAGES[stage][0]} {np.median(values):.2f}" for stage, values in known.items() if len(values)
        )
        medians.append(f"{name} {figures}")
    whose = f"chain {chain}: " if chain else ""
    return f"{whose}median {'; '.join(medians)}"


# The last row of a log is that of the model, minimised.
_END: dict[str, Any] = {"marker": "o", "markevery": [-1], "markersize": 4.5, "clip_on": False}

_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.edgecolor": "#868e96",
    "xtick.color": "#495057",
    "ytick.color": "#495057",
}


def _save(figure: Figure, path: Path) -> None:
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
