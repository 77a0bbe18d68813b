"""The pictures of a fit: how it went, and what became of each residue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.figure import Figure

from ..maps.density_map import DensityMap
from ..whole_files import written_whole
from .flexible_fit import Row

BEFORE, AFTER, REFERENCE = "#b0b7c3", "#1f6feb", "#d1495b"


def plot_progress(path: Path, rows: Sequence[Row], timestep: float, cc_reference: float | None) -> None:
    """Draw correlation, deviation from planarity and energy over time.

    Parameters
    ----------
    path : path
        A PNG.
    rows : sequence of Row
        The log.
    timestep : float
        In ps.
    cc_reference : float, optional
        The reference's own correlation, drawn as a line.
    """
    ps = np.array([row.step for row in rows]) * timestep
    has_rmsd = rows[-1].ca_rmsd is not None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 8.0 if has_rmsd else 6.4), layout="constrained")
        panels = figure.subplots(4 if has_rmsd else 3, 1, sharex=True)
        correlation, energy = panels[0], panels[-1]
        correlation.plot(ps, [row.cc for row in rows], color=AFTER, label="CC (mask)")
        correlation.plot(
            ps, [row.similarity for row in rows], color=AFTER, alpha=0.4, label="similarity in the energy"
        )
        if cc_reference is not None:
            correlation.axhline(cc_reference, color=REFERENCE, linestyle=":", label="CC of the reference")
        correlation.set_ylabel("correlation")
        correlation.legend(loc="lower right")
        if has_rmsd:
            panels[1].plot(ps, [row.ca_rmsd for row in rows], color=REFERENCE)
            panels[1].set_ylabel("Cα RMSD (Å)")
            panels[1].set_ylim(bottom=0)
        panels[-2].plot(ps, [row.planarity_rms for row in rows], color=AFTER)
        panels[-2].set_ylabel("RMS deviation\nfrom planarity (Å)")
        panels[-2].set_ylim(bottom=0)
        force_field = np.array([row.potential_energy - row.density_energy for row in rows]) / 1000
        energy.plot(ps, force_field, color=AFTER, label="force field and restraints")
        energy.plot(
            ps, np.array([row.density_energy for row in rows]) / 1000, color=REFERENCE, label="density"
        )
        low, high = np.percentile(force_field, [0, 98])
        energy.set_ylim(min(low, 0) - 0.05 * abs(low), max(high, rows[-1].density_energy / 1000, 1e-3) * 1.4)
        energy.set_ylabel("energy (MJ/mol)")
        energy.set_xlabel("time (ps)")
        energy.legend(loc="upper right")
        _save(figure, path)


def plot_overview(
    path: Path,
    density_map: DensityMap,
    before: Sequence[np.ndarray],
    after: Sequence[np.ndarray],
    reference: Sequence[np.ndarray] = (),
) -> None:
    """Draw the backbone before and after over the map, seen along the map's shortest side.

    Parameters
    ----------
    path : path
        A PNG.
    density_map : DensityMap
        Shown as its projection.
    before, after, reference : sequence of np.ndarray, shape (n, 3)
        The traces of the chains, in Å.
    """
    sides = density_map.size * density_map.voxel_size
    along = int(np.argmin(sides))
    across, up = (axis for axis in range(3) if axis != along)
    clipped = np.clip(density_map.data, np.float32(density_map.data.mean(dtype=np.float64)), None)
    projection = clipped.sum(axis=2 - along, dtype=np.float64)
    rows, columns = np.indices(projection.shape)
    index = np.zeros((*projection.shape, 3))
    index[..., across], index[..., up] = columns, rows
    index[..., along] = density_map.size[along] / 2
    points = index @ density_map.matrix.T + density_map.origin
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 4.8), layout="constrained")
        for panel, traces, color, title in zip(
            figure.subplots(1, 2, sharex=True, sharey=True),
            (before, after),
            (BEFORE, AFTER),
            ("before", "after"),
        ):
            panel.contourf(
                points[..., across], points[..., up], projection, levels=12, cmap="Greys", alpha=0.55
            )
            for trace in reference:
                panel.plot(trace[:, across], trace[:, up], color=REFERENCE, linewidth=1.0, label="reference")
            for trace in traces:
                outline = [patheffects.Stroke(linewidth=3.2, foreground="white"), patheffects.Normal()]
                panel.plot(
                    trace[:, across],
                    trace[:, up],
                    color=color if color != BEFORE else "#6b7280",
                    linewidth=1.8,
                    path_effects=outline,
                    label="model",
                )
            panel.set_aspect("equal")
            panel.set_title(title)
            panel.set_xlabel(f"{'xyz'[across]} (Å)")
            handles, labels = panel.get_legend_handles_labels()
            unique = dict(zip(labels, handles))
            panel.legend(unique.values(), unique.keys(), loc="upper right")
        figure.axes[0].set_ylabel(f"{'xyz'[up]} (Å)")
        _save(figure, path)


def plot_residues(
    path: Path, labels: Sequence[str], before: np.ndarray, after: np.ndarray, chains: Sequence[str]
) -> None:
    """Draw the correlation of each residue before and after, a panel a chain.

    Parameters
    ----------
    path : path
        A PNG.
    labels : sequence of str
        Names of the residues; the poorest are written out.
    before, after : np.ndarray, shape (n_residues,)
    chains : sequence of str
        Each residue's chain.
    """
    names = list(dict.fromkeys(chains))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 0.8 + 2.2 * min(len(names), 12)), layout="constrained")
        panels = figure.subplots(min(len(names), 12), 1, squeeze=False)[:, 0]
        for panel, chain in zip(panels, names):
            members = np.flatnonzero([name == chain for name in chains])
            x = np.arange(len(members))
            panel.fill_between(x, before[members], after[members], color=BEFORE, alpha=0.35, linewidth=0)
            panel.plot(x, before[members], color=BEFORE, label="before")
            panel.plot(x, after[members], color=AFTER, label="after")
            for index in _poorest(members, after, count=3, apart=len(members) // 12):
                panel.annotate(
                    labels[index],
                    (index - members[0], after[index]),
                    fontsize=7,
                    ha="center",
                    va="top",
                    xytext=(0, -3),
                    textcoords="offset points",
                )
            panel.axhline(0, color="black", linewidth=0.5)
            panel.set_ylim(max(-1.0, np.nanmin([*before[members], *after[members], 0]) - 0.15), 1.02)
            panel.set_xlim(0, max(len(members) - 1, 1))
            panel.set_ylabel(f"chain {chain}")
        panels[0].legend(loc="lower right", ncols=2)
        panels[-1].set_xlabel("residue, counted from the chain's first")
        figure.suptitle("correlation with the map, residue by residue")
        _save(figure, path)


def _poorest(members: np.ndarray, values: np.ndarray, count: int, apart: int) -> list[int]:
    """Give the poorest of the members, no two closer than ``apart`` so that their labels do not meet."""
    chosen: list[int] = []
    for index in members[np.argsort(values[members])]:
        if np.isfinite(values[index]) and all(abs(index - other) > apart for other in chosen):
            chosen.append(int(index))
        if len(chosen) == count:
            break
    return chosen


_STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def _save(figure: Figure, path: Path) -> None:
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
