"""What a viewer is to show of a fit: which files of its folder, at what level, and the doubts with their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...validation.named_residues import LocatedDoubt, doubts_in
from . import shown_files
from .shown_files import SHOWN_MAP, SUFFIXES

BEFORE, FITTED, AFTER, REFERENCE = "before", "fitted", "after", "reference"
MODELS = {BEFORE: shown_files.BEFORE, FITTED: "fitted", AFTER: "after", REFERENCE: shown_files.REFERENCE}
"""What the files of each begin with."""


@dataclass(frozen=True)
class SceneModel:
    """A model of the folder."""

    role: str  # One of `MODELS`
    file: str  # In the folder
    title: str  # What the viewer calls it


@dataclass(frozen=True)
class Scene:
    """What is shown of a fit."""

    models: tuple[SceneModel, ...]  # Those that are there, in the order of `MODELS`; the fitted one always is
    # `map_file`, `map_title`: the map in the folder; None where a stopped fit left it out.
    map_file: str | None
    map_title: str
    # At which its surface is drawn, in the map's own units, see
    # `openmm_density.validation.density_level.density_level`
    level: float | None
    doubts: tuple[LocatedDoubt, ...]
    # Those that the doubts are about, each with ``chain``, ``number`` and ``insertion_code``
    residues: tuple[Mapping[str, Any], ...]


def read_scene(folder: Path, summary: Mapping[str, Any]) -> Scene:
    """Return what there is to show in the folder of a fit. `summary`: what its ``summary.json`` holds."""
    models = []
    for role, name in MODELS.items():
        found = [f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
        if found:
            models.append(SceneModel(role, found[0], _title(role, summary)))
    has_map = (folder / SHOWN_MAP).is_file()
    return Scene(
        tuple(models),
        SHOWN_MAP if has_map else None,
        f"map: {_name(summary['map'])}",
        summary.get("contour_level"),
        tuple(doubts_in(summary)),
        tuple(summary["residues"]),
    )


def _title(role: str, summary: Mapping[str, Any]) -> str:
    """Return what a model is called, as in ``before: model.pdb``."""
    kept_before = summary.get("kept") == "before"
    return {
        BEFORE: f"before: {_name(summary['model'])}",
        FITTED: "kept, as it was before" if kept_before else "fitted",
        AFTER: "after the simulation, not kept",
        REFERENCE: f"reference: {_name(summary['reference'])}",
    }[role]


def _name(path: str | None) -> str:
    """Return the last part of a path, whatever the system that it is of."""
    return "" if path is None else path.replace("\\", "/").rstrip("/").rpartition("/")[2]
