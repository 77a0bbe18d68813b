"""What the report of an earlier fit is made from: its folder, and the files that it names."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.wording import listing, residue_label
from ...fitting.placement import Placement
from ...maps.corrections import MapCorrections
from ...maps.density_map import DensityMap
from ...models.model import Model
from ...models.structures import read_model
from ..shown_model import ShownModel
from ..viewers.shown_files import BEFORE, REFERENCE, SHOWN_MAP, SUFFIXES
from .contents import FitContents, labels, shown_copies

# What a folder holds, since it does, of what was fitted: as the fit had it, corrected and placed.
_BEFORE, _REFERENCE = (tuple(f"{name}{suffix}" for suffix in SUFFIXES) for name in (BEFORE, REFERENCE))
_MAP = (SHOWN_MAP,)

_STAGES = ("initial", "final", "reference")
# What the page is made of.
_NEEDED = (
    *(f"{name}_{stage}" for stage in _STAGES for name in ("cc", "q_score", "geometry", "fsc_resolution", "fsc_falls")),
    *(f"{name}_{stage}" for stage in _STAGES[:2] for name in ("ca_rmsd", "similarity")),
    "geometry_relaxed", "ca_rmsd_of", "similarity", "worst_residues", "doubts", "located_doubts", "notes", "stages",
    "versions", "model", "map", "reference", "resolution", "map_voxel_size", "n_fitted_atoms", "interrupted", "blow_ups",
    "protocol", "steps", "steps_planned", "seed", "strength", "final_strength", "platform", "forcefield", "wall_seconds",
    "seconds_by_part",
)  # fmt: skip


def read_contents(
    folder: Path, model: str | None = None, density_map: str | None = None, reference: str | None = None
) -> FitContents:
    """Read what the report of an earlier fit is made from.

    `folder` of its results. `model`, `density_map`, `reference`: where the files that were fitted are now; by default
    where the summary says, from here or from the folder. Raises InputError if the folder holds no results, or a file
    that was given cannot be read.
    """
    summary = _read_summary(folder)
    missing: list[str] = []
    fitted = read_model(folder / ("after.cif" if summary.get("simulated") else "fitted.cif"))
    after_label, before_label = labels(summary)
    models = [ShownModel("after", after_label, fitted.topology, fitted.positions, fitted.b_factors)]
    path, is_placed = _found(folder, model, summary["model"], _BEFORE, "model", missing)
    if path is not None:
        before = read_model(path)
        positions = before.positions if is_placed else _placed(before, summary)
        models.append(
            ShownModel("before", before_label, fitted.topology, _matched(fitted, before, positions))
        )
    if summary["reference"] is not None:
        path, _ = _found(folder, reference, summary["reference"], _REFERENCE, "reference", missing)
        if path is not None:
            target = read_model(path)
            models.append(ShownModel("reference", "reference", target.topology, target.positions))
    copies = shown_copies(summary, models[0])
    models += [] if copies is None else [copies]
    path, is_corrected = _found(folder, density_map, summary["map"], _MAP, "map", missing)
    shown = None
    if path is not None:
        shown = DensityMap.from_file(path)
        if not is_corrected:
            shown = corrections_of(summary).apply(shown)
    return FitContents(folder, summary, models, _read_log(folder), shown, missing)


def _read_summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            "it holds no results of a fit", source=folder, remedy="give the folder that fit wrote"
        ) from error
    except ValueError as error:
        raise InputError(
            f"it cannot be read ({error})", source=path, remedy="give the folder that fit wrote"
        ) from error
    if not isinstance(summary, dict) or "residues" not in summary:
        raise InputError(
            "it is not the summary of a fit", source=path, remedy="give the folder that fit wrote"
        )
    lacking = [name for name in _NEEDED if name not in summary]
    if lacking:
        raise InputError(f"it lacks {listing(lacking, 5)}", source=path, remedy="start the fit again")
    return summary


def _found(
    folder: Path, given: str | None, named: str, own: tuple[str, ...], what: str, missing: list[str]
) -> tuple[Path | None, bool]:
    """Return a file, and whether the fit itself wrote it; note one that is not there."""
    if given is not None:
        return Path(given), False
    for name in own:
        if (folder / name).is_file():
            return folder / name, True
    for path in (Path(named), folder / Path(named).name, folder / named):
        if path.is_file():
            return path, False
    missing.append(f"The {what} {named} is no longer where it was, and so is not shown.")
    return None, False


def _placed(model: Model, summary: Mapping[str, Any]) -> np.ndarray:
    """Return a model's positions where the fit began."""
    placement = summary.get("placement")
    return model.positions if placement is None else Placement(**placement).moved(model.positions)


def _matched(fitted: Model, before: Model, positions: np.ndarray) -> np.ndarray:
    """Return the positions of the fitted model's atoms in another model, by their names; nan for those that it lacks."""
    places = {
        (residue_label(atom.residue), atom.name): position
        for atom, position in zip(before.topology.atoms(), positions)
    }
    unknown = np.full(3, np.nan)
    return np.array(
        [places.get((residue_label(atom.residue), atom.name), unknown) for atom in fitted.topology.atoms()]
    )


def corrections_of(summary: Mapping[str, Any]) -> MapCorrections:
    """Return what the map of an earlier fit was corrected for, from its summary."""
    found = dict(summary.get("map_corrections") or {})
    if isinstance(found.get("voxel_size"), list):
        found["voxel_size"] = tuple(found["voxel_size"])
    return MapCorrections(**found)


def _read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the log, without what is no number in them; none where there is no log."""
    try:
        with open(folder / "log.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            {
                name: value if name == "stage" else float(value) if value else None
                for name, value in row.items()
            }
            for row in rows
        ]
    except (OSError, ValueError, TypeError):
        return []
