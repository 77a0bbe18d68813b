"""Rows of the benchmark of strengths: read, tabulated, plotted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from openmm_density.validation.geometry import GeometryReport

KEYS = ("case", "resolution", "strength", "protocol", "steps", "search", "seed")
"""What tells a row from others."""

WITHIN = 0.05
"""Of the best fixed strength's RMSD: by how much more the automatic one may end at."""

Row = dict[str, Any]


def figures_of_geometry(report: GeometryReport) -> dict[str, Any]:
    """Return the figures of a geometry report that a strength can spoil."""
    return {
        "bond_rmsd": report.bond_rmsd,
        "angle_rmsd": report.angle_rmsd,
        "clashes": report.clash_count,
        "ramachandran_outliers": report.ramachandran_outlier_count,
        "rotamer_outliers": report.rotamer_outlier_count,
        "twisted_peptides": report.twisted_count,
    }


def read_rows(files: Iterable[Path]) -> list[Row]:
    """Read files of rows, one in a line or all in a list; of rows of one fit the last counts, and a line cut short counts not."""
    rows: dict[tuple[Any, ...], Row] = {}
    for file in files:
        if not file.exists():
            continue
        text = file.read_text(encoding="utf-8")
        found = json.loads(text) if text.startswith("[") else [_parsed(line) for line in text.splitlines()]
        for row in found:
            if row is not None:
                rows[tuple(row[name] for name in KEYS)] = row
    return sorted(rows.values(), key=lambda row: (row["case"], row["resolution"], _number(row)))


def _parsed(line: str) -> Row | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _number(row: Row) -> float:
    final = row["strength"].rpartition(">")[2]
    return float("inf") if final == "auto" else float(final)


def is_fixed(row: Row) -> bool:
    """Whether the fit had one strength from beginning to end that was given."""
    return row["strength"].replace(".", "", 1).isdigit()


def best_fixed(rows: list[Row]) -> dict[tuple[str, float], float]:
    """Return the least RMSD of all atoms to the truth among fixed strengths, by case and resolution."""
    best: dict[tuple[str, float], float] = {}
    for row in rows:
        if is_fixed(row):
            key = row["case"], row["resolution"]
            best[key] = min(best.get(key, float("inf")), row["rmsd"][1])
    return best


_CAPTION = (
    "RMSD in Å to the truth, of all non-hydrogen atoms and of Cα, from start to end; ratio: to the best fixed strength; CC: with "
    "the map, with the noiseless map, with an unseen half map (in brackets: of the truth); angles, bonds: RMSD over that of the "
    "relaxed start; then numbers in the relaxed start and at the end"
)


def table(rows: list[Row], caption: str = _CAPTION) -> Table:
    """Return one line for each fit."""
    best = best_fixed(rows)
    shown = Table(caption=caption)
    headings = "case, Å, strength, RMSD, ratio, Cα RMSD, CC, noiseless, free, angles, bonds, clashes, Rama., twisted, s"
    for heading in headings.split(", "):
        shown.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    for row in rows:
        relaxed, final = row["relaxed"], row["final"]
        fixed = best.get((row["case"], row["resolution"]))
        strength = row["strength"]
        if not is_fixed(row):
            strength += f" ({row['found_strength']:.0f}, {row['final_strength']:.3g})"
        shown.add_row(
            row["case"],
            f"{row['resolution']:g}",
            strength,
            "{:.2f} → {:.2f}".format(*row["rmsd"]),
            "" if fixed is None else f"{row['rmsd'][1] / fixed:.2f}",
            "{:.2f} → {:.2f}".format(*row["ca_rmsd"]),
            *("{:.3f} ({:.3f})".format(*row[name][1:]) for name in ("cc", "cc_noiseless", "cc_free")),
            *(f"{final[name] / relaxed[name]:.2f}" for name in ("angle_rmsd", "bond_rmsd")),
            *(
                f"{relaxed[name]} → {final[name]}"
                for name in ("clashes", "ramachandran_outliers", "twisted_peptides")
            ),
            f"{row['seconds']:.0f}",
        )
    return shown


def summary(rows: list[Row]) -> Table:
    """Return one line for each strength: what it made of all cases that were also fitted at fixed ones."""
    best = best_fixed(rows)
    by_strength: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_number):
        if (row["case"], row["resolution"]) in best:
            by_strength[row["strength"]].append(row)
    shown = Table(
        caption="Ratio: RMSD to the truth over that of the best fixed strength; angles, bonds: over those of the relaxed start; "
        "free CC: less that of the truth; medians and worst of all fits, and in how many there is more than in the relaxed start"
    )
    headings = "strength, fits, ratio, worst, within 5%, angles, worst, bonds, worst, free CC, more clashes, more Rama."
    for heading in headings.split(", "):
        shown.add_column(heading, justify="left" if heading == "strength" else "right")
    for strength, found in by_strength.items():
        ratios = np.array([row["rmsd"][1] / best[row["case"], row["resolution"]] for row in found])
        angles, bonds = (
            np.array([row["final"][name] / row["relaxed"][name] for row in found])
            for name in ("angle_rmsd", "bond_rmsd")
        )
        free = np.median([row["cc_free"][1] - row["cc_free"][2] for row in found])
        more = [
            sum(row["final"][name] > row["relaxed"][name] for row in found)
            for name in ("clashes", "ramachandran_outliers")
        ]
        shown.add_row(
            strength,
            str(len(found)),
            *(f"{value:.2f}" for value in (np.median(ratios), ratios.max())),
            str(int((ratios <= 1 + WITHIN).sum())),
            *(f"{value:.2f}" for each in (angles, bonds) for value in (np.median(each), each.max())),
            f"{free:+.3f}",
            *map(str, more),
        )
    return shown


def plot(rows: list[Row], path: Path) -> None:
    """Draw RMSD, correlations and angles by strength: a row of panels for each case, a colour for each resolution."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    series: dict[str, dict[float, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        series[row["case"]][row["resolution"]].append(row)
    panels = {
        "RMSD to the truth (Å)": lambda row: row["rmsd"][1],
        "CC, noiseless map": lambda row: row["cc_noiseless"][1],
        "free CC": lambda row: row["cc_free"][1],
        "angle RMSD / relaxed": lambda row: row["final"]["angle_rmsd"] / row["relaxed"]["angle_rmsd"],
    }
    figure, axes = pyplot.subplots(
        max(len(series), 1), len(panels), figsize=(16, 3.2 * max(len(series), 1)), squeeze=False
    )
    colours = pyplot.get_cmap("viridis")
    for line, (case, by_resolution) in zip(axes, series.items()):
        for axis, (title, value) in zip(line, panels.items()):
            for number, (resolution, found) in enumerate(sorted(by_resolution.items())):
                colour = colours(number / max(len(by_resolution) - 1, 1))
                fixed = sorted((row for row in found if is_fixed(row)), key=_number)
                where = [_number(row) for row in fixed]
                axis.plot(where, [value(row) for row in fixed], ".-", color=colour, label=f"{resolution:g} Å")
                for row in found:
                    if not is_fixed(row):
                        axis.plot(row["final_strength"], value(row), "*", color=colour, markersize=13)
            axis.set(xscale="log", title=f"{case}: {title}", xlabel="strength (kJ/mol per atom)")
    axes[0, 0].legend(title="★ automatic", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
