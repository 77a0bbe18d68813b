"""The page of a series: the film of its models in their volumes, and plots that lead to its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.page_blocks import Block, Card, Command, Facts, Item, Items, Page, Plot, Section, Table, Text
from ...base.wording import counted
from ...models.rigid_domains import DomainMotion
from ...report.citations import citations
from ...report.colors import AFTER, BEFORE, DOUBTFUL, OTHER, REBUILT, REFERENCE
from ...report.shown_model import ShownModel, residue_values
from ...report.structures import drawn_models
from ...report.surfaces import MOST_VOXELS, surfaces_of
from .internal_coordinates import InternalCoordinate
from .result import SeriesResult, fit_doubts, fit_notes

_TRAJECTORY = "series.dcd"
MAPS_VOXELS = 2_500_000
"""Of all volumes together; each takes a byte and a third of the page."""
FRAMES_PER_SECOND = 3


def series_page(
    folder: Path, result: SeriesResult, rows: Sequence[Mapping[str, Any]], command: str | None = None
) -> Page:
    """Return the page."""
    models = _shown_models(result)
    residues = _mean_residues(result)
    first, last = rows[0], rows[-1]
    sections = [
        Section("path", "Is it a path?", _path_blocks(result, rows)),
        Section("moves", "What moves?", _motion_blocks(result)),
        Section("volumes", "Each volume", _volume_blocks(rows, result)),
        Section("cite", "How to cite and repeat it", _cite(command)),
    ]
    return Page(
        f"{Path(result.settings.model).name} in {counted(len(rows), 'volume')}",
        f"{first['map']} to {last['map']}, fitted by openmm-density at {result.settings.resolution:g} Å, each from its "
        "neighbour's model",
        _verdict(result, rows),
        bool(result.doubts),
        _cards(result, rows),
        sections,
        {
            "residues": residue_values(residues, models),
            "structures": _with_film(drawn_models(models, residues, folder / _TRAJECTORY), rows),
            "surfaces": _surfaces(result, models),
        },
    )


def _shown_models(result: SeriesResult) -> list[ShownModel]:
    topology, b_factors = result.model.topology, result.model.b_factors
    return [
        ShownModel("after", "last model", topology, result.positions[-1], b_factors),
        ShownModel("before", "first model", topology, result.positions[0], b_factors),
    ]


def _mean_residues(result: SeriesResult) -> list[dict[str, Any]]:
    """Return the residues of a summary with their mean correlations over the volumes."""
    summaries = [frame.kept.summary["residues"] for frame in result.frames]
    found = []
    for row in zip(*summaries):
        known = [each["correlation_final"] for each in row if each.get("correlation_final") is not None]
        kept = {name: row[0][name] for name in ("residue", "chain", "number", "kind") if name in row[0]}
        found.append({**kept, "correlation_final": float(np.mean(known)) if known else None})
    return found


def _with_film(structures: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if structures["film"] is not None:
        structures["film"] |= {
            "title": "Film of the series",
            "names": [f"{row['frame']} · {row['map']}" for row in rows],
            "rate": FRAMES_PER_SECOND,
        }
    return structures


def _surfaces(result: SeriesResult, models: Sequence[ShownModel]) -> dict[str, Any] | None:
    """Return the surface of each volume, around its own model; that of the last stands for all where the film is not shown."""
    settings, each = result.settings, max(MAPS_VOXELS // len(result.frames), 30_000)
    corrections = settings.map_corrections()
    found = []
    for number, positions in enumerate(result.positions, start=1):
        shown = [ShownModel("after", "", result.model.topology, positions)]
        density_map = corrections.apply(settings.read_map(number))
        made = surfaces_of(density_map, shown, settings.resolution, most_voxels=min(each, MOST_VOXELS))
        if made is None:
            return None
        found.append(made.map)
    return {"map": found[-1], "difference": None, "frames": found}


def _verdict(result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> str:
    low, high = (end(row["cc"] for row in rows) for end in (min, max))
    said = f"{counted(len(rows), 'volume')} fitted, with correlations of {low:.3f} to {high:.3f}"
    if result.path.jumps:
        where = ", ".join(f"{number + 1} and {number + 2}" for number in result.path.jumps)
        said += f"; the path is broken between {where}"
    elif not result.doubts:
        said += "; the models form a path, and both passes agree"
    of_fits = fit_doubts(result.frames)
    if of_fits:
        volumes = len({each.frame for each in of_fits})
        said += f". The fits of {counted(volumes, 'volume')} have doubts of their own, under Each volume"
    if not result.doubts:
        return f"{said}."
    one = len(result.doubts) == 1
    return f"{said}. {counted(len(result.doubts), 'doubt')} below {'says' if one else 'say'} what to look at."


def _cards(result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> list[Card]:
    steps = result.path.steps
    cards = [
        Card("Volumes", str(len(rows)), f"from number {result.start.frame} in both directions"),
        Card("Lowest correlation", f"{min(row['cc'] for row in rows):.3f}"),
        Card("Median step", f"{np.median(steps):.2f} Å", f"largest {steps.max():.2f} Å"),
        Card("First to last", f"{result.path.from_first[-1]:.2f} Å", "Cα RMSD"),
    ]
    for motion in result.path.motions[:2]:
        cards.append(Card(f"Domain {motion.domain} turns by", f"{max(motion.angle_from_first):.0f}°"))
    return cards


def _path_blocks(result: SeriesResult, rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    doubts = [Item(doubt) for doubt in result.doubts]
    return [
        Items("", doubts, are_doubts=True)
        if doubts
        else Text(
            "No step is far above the others, and the passes in both directions agree. That is no proof: play the film."
        ),
        Plot(
            "steps",
            "From each model to the next, and from each volume to the next (click to see the volume)",
            "The Cα RMSD between neighbouring models and 1 − the correlation of neighbouring volumes; jumps are red.",
            steps_figure(rows, result.path.volume_changes, result.path.jumps),
        ),
        Plot(
            "correlations",
            "Agreement of each model with its volume",
            "The correlation of the model that was kept and of the one that the other pass ended with.",
            correlation_figure(rows),
        ),
        Items("Notes", [Item(note) for note in result.notes]),
    ]


def _motion_blocks(result: SeriesResult) -> list[Block]:
    path = result.path
    domains = [
        (f"domain {number + 1}", [", ".join(stretches), str(int((path.domains == number).sum()))])
        for number, stretches in enumerate(path.domain_stretches)
    ]
    axes = [
        (
            f"domain {motion.domain}",
            [
                f"{max(motion.angle_from_first):.1f}",
                ", ".join(f"{each:.2f}" for each in motion.axis),
                ", ".join(f"{each:.1f}" for each in motion.point),
                f"{motion.shift_along_axis:.1f}",
            ],
        )
        for motion in path.motions
    ]
    return [
        Table("Parts that move as rigid bodies, found from the path", ["residues", "size"], domains),
        Table(
            "How they turn beside domain 1, from the first volume to where they are turned farthest",
            ["angle (°)", "axis", "through (Å)", "shift along it (Å)"],
            axes,
        ),
        Plot(
            "rotations",
            "Rotation of each domain from the first volume",
            "The angle by which each domain is rotated beside the largest one.",
            rotation_figure(path.motions),
        ),
        Plot(
            "turns",
            "Rotation of each domain from the volume before",
            "The same from one volume to the next.",
            rotation_figure(path.motions, previous=True),
        ),
        *(
            Plot(
                f"coordinate-{number + 1}",
                each.label,
                f"{each.label} in each volume.",
                coordinate_figure(each, values, LINES[number % len(LINES)]),
            )
            for number, (each, values) in enumerate(path.coordinates)
        ),
    ]


def _volume_blocks(rows: Sequence[Mapping[str, Any]], result: SeriesResult) -> list[Block]:
    def text(value: Any, form: str) -> str:
        return "" if value is None else format(value, form)

    columns = [
        ("from", "from", "d"),
        ("way", "way", ""),
        ("CC", "cc", ".3f"),
        ("free CC", "cc_free", ".3f"),
        ("step (Å)", "rmsd_to_previous", ".2f"),
        ("passes differ (Å)", "passes_differ", ".2f"),
        ("CC of other pass", "cc_of_other_pass", ".3f"),
        ("clashscore", "clashscore", ".1f"),
        ("Ramachandran outliers", "ramachandran_outliers", "d"),
        ("doubts", "doubts", "d"),
        ("folder", "folder", ""),
    ]
    shown = [column for column in columns if any(row[column[1]] is not None for row in rows)]
    return [
        Table(
            "Each volume with the fit that was kept",
            [heading for heading, _, _ in shown],
            [
                (f"{row['frame']} · {row['map']}", [text(row[key], form) for _, key, form in shown])
                for row in rows
            ],
        ),
        Text(
            "From: the volume whose model the fit began with. Way: out from volume "
            f"{result.start.frame}, which was fitted first, towards an end of the series, or back from there. The fits that were "
            "not kept are in series.json."
        ),
        Items(
            "Doubts about these fits",
            [Item(f"Volume {each.frame}: {each.sentence}") for each in fit_doubts(result.frames)],
            are_doubts=True,
        ),
        Items(
            "Notes on these fits",
            [Item(_sentence(each.in_words(len(result.frames)))) for each in fit_notes(result.frames)],
        ),
        Text(
            "Each folder is that of a normal fit, with a report.html of its own. series.csv has these figures, series.json all."
        ),
        Facts(
            [
                ("first", f"volume {result.start.frame}"),
                ("protocols", " and ".join(each.name for each in result.settings.protocols.values())),
            ]
        ),
    ]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _cite(command: str | None) -> list[Block]:
    return [
        *([] if command is None else [Command(command)]),
        Items(
            "Please cite",
            [Item(each) for each in citations(("openmm", "ramachandran", "gemmi", "mdtraj", "3dmol"))],
        ),
    ]


LINES = (AFTER, OTHER, REBUILT, "#a98bd1", REFERENCE, DOUBTFUL)


def steps_figure(
    rows: Sequence[Mapping[str, Any]], changes: Sequence[float | None], jumps: Sequence[int]
) -> dict[str, Any]:
    """Return how far it is from each model to the next, and 1 − the correlation of the volumes there (`changes`)."""
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
