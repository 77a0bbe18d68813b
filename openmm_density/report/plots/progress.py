"""How a fit went: correlation, distance to a reference, strength, temperature, planarity and energy over its steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...fitting.fit_result import Row
from ..quantities import CC, CC_OTHER_MAP
from .style import AFTER, BACKGROUND, BEFORE, REFERENCE, STYLE, TEMPERATURE, save

# With up to so many rows each is a dot on the curves: it shows how little they tell.
_MOST_DOTS = 50
# The last row of a log is that of the model, minimised.
_END: dict[str, Any] = {"marker": "o", "markevery": [-1], "markersize": 4.5, "clip_on": False}


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

    The large dots at the end are the minimised model; the small ones are the rows, where there are few. `path`: a PNG. `rows`:
    the log. `stages` of each stage its ``name`` and how many ``steps`` were done in it. `timestep` in fs; None where it
    changed on the way. `cc_initial`: the correlation of the model as it was read, drawn as a line: the log begins after the
    minimisation without density. `cc_reference`: the reference's own correlation, drawn as a line. `rmsd`: what the distance
    to the reference is called, as in ``Cα RMSD``.
    """
    steps = np.array([row.step for row in rows])
    has_rmsd = rows[-1].ca_rmsd is not None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 8.6 if has_rmsd else 7.0), layout="constrained")
        stack = figure.subplots(5 if has_rmsd else 4, 1, sharex=True)
        panels = iter(stack)
        _plot_correlation(next(panels), steps, rows, cc_initial, cc_reference)
        if has_rmsd:
            _plot_rmsd(next(panels), steps, rows, rmsd)
        _plot_drive(next(panels), steps, rows)
        _plot_planarity(next(panels), steps, rows)
        energy = next(panels)
        _plot_energy(energy, steps, rows)
        energy.set_xlabel("step" if timestep is None else f"step of {timestep:g} fs")
        energy.set_xlim(0, max(int(steps[-1]), 1))
        energy.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}".replace(",", " "))
        figure.align_ylabels(stack)
        _mark_stages(stack, stages)
        if len(rows) <= _MOST_DOTS:
            _mark_rows(figure.axes)
        save(figure, path)


def _plot_correlation(
    panel: Axes, steps: np.ndarray, rows: Sequence[Row], cc_initial: float, cc_reference: float | None
) -> None:
    panel.plot(steps, [row.cc for row in rows], color=AFTER, label=CC, linewidth=1.8, **_END)
    panel.plot(
        steps,
        [row.similarity for row in rows],
        color=AFTER,
        alpha=0.4,
        label="similarity, at the\nmap's resolution",
    )
    if rows[-1].cc_free is not None:
        panel.plot(steps, [row.cc_free for row in rows], color=TEMPERATURE, label=CC_OTHER_MAP)
    panel.axhline(cc_initial, color=BEFORE, linestyle=":", label="CC before", zorder=1.5)
    if cc_reference is not None:
        panel.axhline(cc_reference, color=REFERENCE, linestyle=":", label="CC of the reference", zorder=1.5)
    panel.set_ylabel("correlation")
    _legend_beside(panel)


def _plot_rmsd(panel: Axes, steps: np.ndarray, rows: Sequence[Row], rmsd: str) -> None:
    panel.plot(steps, [row.ca_rmsd for row in rows], color=REFERENCE, **_END)
    panel.set_ylabel(f"{rmsd}\nto reference (Å)")
    panel.set_ylim(bottom=0)


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


def _plot_planarity(panel: Axes, steps: np.ndarray, rows: Sequence[Row]) -> None:
    panel.plot(steps, [row.planarity_rms for row in rows], color=AFTER, **_END)
    panel.set_ylabel("RMS deviation\nfrom planarity (Å)")
    panel.set_ylim(bottom=0)


def _plot_energy(panel: Axes, steps: np.ndarray, rows: Sequence[Row]) -> None:
    density = np.array([row.density_energy for row in rows]) / 1000
    force_field = np.array([row.potential_energy for row in rows]) / 1000 - density
    panel.plot(steps, force_field, color=AFTER, label="force field\nand restraints", **_END)
    panel.plot(steps, density, color=REFERENCE, label="density", **_END)
    low, high = np.percentile(force_field, [0, 98])
    low, high = min(low, float(density.min()), 0), max(high, float(density.max()), 1e-3)
    panel.set_ylim(low - 0.05 * abs(low), 1.15 * high)
    panel.set_ylabel("energy (MJ/mol)")
    _legend_beside(panel)


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
                panel.axvspan(begin, end, color=BACKGROUND, zorder=0, linewidth=0)
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
        # Lines of constant value have the panel's own coordinates along it.
        for line in [line for line in panel.lines if line.get_transform() == panel.transData]:
            x, y = (np.asarray(values)[:-1] for values in line.get_data())
            color, alpha = line.get_color(), line.get_alpha()
            panel.plot(x, y, linestyle="", marker="o", markersize=3.0, color=color, alpha=alpha)


def _legend_beside(panel: Axes) -> None:
    """Put a legend where it hides nothing."""
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), handlelength=1.6)
