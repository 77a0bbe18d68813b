"""What a series leaves in its folder beside the fits: trajectory, models, tables and page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ...base.atomic_files import atomic_write, write_text
from ...base.wording import one_line
from ...models.structure_files import header_of, pdb_limit, write_cif, write_pdb
from ...report.summary import versions
from .frame_fit import faults
from .result import SeriesResult, fit_doubts, fit_notes, frame_values

CSV, JSON, DCD, CIF, PDB, PAGE = (
    f"series.{suffix}" for suffix in ("csv", "json", "dcd", "cif", "pdb", "html")
)
SERIES_FILES = (CSV, JSON, DCD, CIF, PDB, PAGE)

UNITS = {
    "rmsd_to_previous": "Å, of Cα or C1', superposed",
    "rmsd_to_previous_in_place": "Å, where the models are",
    "rmsd_to_first": "Å, superposed",
    "volume_change": "1 - the correlation with the volume before, within 3 Å of both models' Cα or C1'",
    "passes_differ": "Å, RMSD to the best fit from the other side",
    "angle_from_first": "degrees, beside the largest domain",
    "angle_from_previous": "degrees",
    "point": "Å, where the first model is",
    "shift_along_axis": "Å",
}


def write_series(
    folder: Path, result: SeriesResult, seconds: float, command: str | None = None
) -> dict[str, Any]:
    """Write all results of a series; return what ``series.json`` holds."""
    rows = frame_values(result)
    _write_models(folder, result)
    write_text(folder / CSV, _as_csv(rows))
    summary = series_summary(result, rows, seconds, command)
    try:
        # What it takes is loaded at the end.
        from ...report.page import write_page
        from .page import series_page

        write_page(folder / PAGE, series_page(folder, result, rows, command))
    except Exception as error:  # all other results are there
        summary["notes"].append(f"{PAGE} was not written ({one_line(error)}).")
    write_text(folder / JSON, json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return summary


def _write_models(folder: Path, result: SeriesResult) -> None:
    model = result.model
    write_cif(folder / CIF, model.topology, result.positions[0], model.b_factors, header_of(model))
    if pdb_limit(model, result.positions[0]) is None:
        write_pdb(folder / PDB, model, result.positions[0])
    else:
        (folder / PDB).unlink(missing_ok=True)
    with atomic_write(folder / DCD) as temporary, open(temporary, "wb") as file:
        dcd = app.DCDFile(file, model.topology, 1.0)
        for positions in result.positions:
            dcd.writeModel(positions / 10.0)


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _fits(result: SeriesResult) -> Iterator[dict[str, Any]]:
    for frame in result.frames:
        for fit in frame.fits:
            yield {
                "frame": fit.step.frame,
                "from": fit.step.source,
                "way": fit.step.way(result.start.frame),
                "folder": fit.folder.name,
                "protocol": fit.summary["protocol"],
                "cc": fit.cc,
                "cc_free": fit.cc_free,
                "faults": faults(fit.summary["geometry_final"]),
                "kept": fit is frame.kept,
                "wall_seconds": fit.summary["wall_seconds"],
            }


def series_summary(
    result: SeriesResult, rows: Sequence[Mapping[str, Any]], seconds: float, command: str | None = None
) -> dict[str, Any]:
    """Return what ``series.json`` holds."""
    settings, path = result.settings, result.path
    return {
        "model": settings.model,
        "maps": list(settings.maps),
        "free_maps": list(settings.free_maps),
        "resolution": settings.resolution,
        "start": {
            "frame": result.start.frame,
            "correlations": result.start.correlations,
            "placement": None if result.start.placement is None else result.start.placement.as_dict(),
        },
        "protocols": {name: protocol.name for name, protocol in settings.protocols.items()},
        "fit_options": dict(settings.fit_options),
        "frames": list(rows),
        "fits": list(_fits(result)),
        "jumps": [[number + 1, number + 2] for number in path.jumps],
        "volume_jumps": [[number + 1, number + 2] for number in path.volume_jumps],
        "domains": [
            {"domain": number + 1, "residues": stretches, "size": int((path.domains == number).sum())}
            for number, stretches in enumerate(path.domain_stretches)
        ],
        "domain_motions": [motion.as_dict() for motion in path.motions],
        "coordinates": [
            {
                "kind": each.kind,
                "selections": list(each.selections),
                "unit": each.unit,
                "values": np.round(values, 4).tolist(),
            }
            for each, values in path.coordinates
        ],
        "notes": list(result.notes),
        "doubts": list(result.doubts),
        "fit_doubts": [asdict(doubt) for doubt in fit_doubts(result.frames)],
        "fit_notes": [asdict(note) for note in fit_notes(result.frames)],
        "command": command,
        "wall_seconds": round(seconds, 1),
        "versions": versions(),
        "units": UNITS,
    }
