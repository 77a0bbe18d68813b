"""Files and scripts of viewers for a fit that an earlier version wrote, which has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app, unit

from ....maps.density_map import DensityMap
from ....models.structure_files import write_cif
from ....report.shown_model import ShownModel
from ....validation.density_level import density_level
from .scripts import write_viewer_scripts
from .shown_files import BEFORE, REFERENCE, SHOWN_MAP, SUFFIXES, write_shown_map


def write_for_viewers(
    folder: Path, summary: Mapping[str, Any], models: Iterable[ShownModel], density_map: DensityMap | None
) -> list[Path]:
    """Write the scripts of viewers, and of the files that they open those that are not there; return the scripts.

    `summary`: what its ``summary.json`` holds; `models`: what is known of the fit: after, before, and the reference;
    `density_map`: corrected as for the fit.
    """
    known = {model.key: model for model in models}
    for key, name in (("before", BEFORE), ("reference", REFERENCE)):
        if key in known and not any((folder / f"{name}{suffix}").exists() for suffix in SUFFIXES):
            write_cif(folder / f"{name}{SUFFIXES[1]}", *_with_positions(known[key]))
    if density_map is not None:
        if not (folder / SHOWN_MAP).exists():
            write_shown_map(folder, density_map, [_with_positions(model)[1] for model in known.values()])
        after = known["after"]
        level = density_level(density_map, after.topology, after.positions, summary["resolution"])
        summary = {"contour_level": level, **summary}
    return write_viewer_scripts(folder, summary)


def _with_positions(model: ShownModel) -> tuple[app.Topology, np.ndarray]:
    """Return the atoms of a model that have a position, and these in Å."""
    is_missing = ~np.isfinite(model.positions).all(axis=1)
    if not is_missing.any():
        return model.topology, model.positions
    modeller = app.Modeller(
        model.topology, np.where(is_missing[:, None], 0.0, model.positions) * unit.angstrom
    )
    modeller.delete([atom for atom in model.topology.atoms() if is_missing[atom.index]])
    return modeller.topology, model.positions[~is_missing]
