"""The pictures of a fit: how it went, and what became of each residue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .fitting import Row

BEFORE, AFTER, REFERENCE = "#b0b7c3", "#1f6feb", "#d1495b"


def plot_progress(path: Path, rows: Sequence[Row], timestep: float, cc_reference: float | None) -> None:
    """Draw correlation and energy over time.

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
        figure = Figure(figsize=(7.2, 6.4 if has_rmsd else 4.8), layout="constrained")
        panels = figure.subplots(3 if has_rmsd else 2, 1, sharex=True)
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
        force_field = np.array([row.potential_energy - row.density_energy for row in rows]) / 1000
        energy.plot(ps, force_field, color=AFTER, label="force field and restraints")
        energy.plot(
            ps, np.array([row.density_energy for row in rows]) / 1000, color=REFERENCE, label="density"
        )
        low, high = np.percentile(force_field, [0, 98])
        energy.set_ylim(min(low, 0) - 0.05 * abs(low), max(high, rows[-1].density_energy / 1000, 1e-3) * 1.2)
        energy.set_ylabel("energy (MJ/mol)")
        energy.set_xlabel("time (ps)")
        energy.legend(loc="upper right")
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
            known = members[np.isfinite(after[members])]
            for index in known[np.argsort(after[known])[:3]]:
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
        panels[-1].set_xlabel("residue")
        figure.suptitle("correlation with the map, residue by residue")
        _save(figure, path)


_STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def _save(figure: Figure, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, dpi=150, format="png")
    os.replace(temporary, path)
