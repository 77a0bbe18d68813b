"""What viewers open beside the fitted model: the model before, the reference, and the map around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import ndimage

from ...base.errors import InputError
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...maps.density_map import DensityMap
from ...maps.map_files import WHOLE_STEPS
from ...models.structure_files import pdb_limit, write_model_cif, write_pdb
from ...models.structures import Model

SHOWN_MAP = "fitted_map.mrc"
BEFORE, REFERENCE = "fitted_before", "fitted_reference"
"""What the files begin with: a folder may hold a user's own ``before.pdb`` or ``reference.pdb``."""
SUFFIXES = (".pdb", "_input.cif")
"""The formats: CIF where PDB cannot hold a model."""

MARGIN = 8.0
"""Å around the models that the map reaches."""


def write_shown_files(folder: Path, fit: FlexibleFit, result: FitResult) -> None:
    """Write the model where the fit began, the reference, and the map as it was fitted into, around them.

    All that is needed to look at a fit is then in its folder, which can be moved and sent. The map is corrected as for the fit
    (voxel size, handedness, sign), and on grid points that are whole steps from the origin of coordinates: ChimeraX places a
    map by ORIGIN, Coot by NSTART only. Where the grid lies between them it is interpolated by cubic splines.
    """
    prepared = result.prepared
    before = prepared.input_positions(result.initial)
    _write_model(folder, BEFORE, prepared.model, before)
    shown = [before, prepared.input_positions(result.final)]
    if fit.reference is None:
        _remove(folder, REFERENCE)
    else:
        _write_model(folder, REFERENCE, fit.reference, fit.reference.positions)
        shown.append(fit.reference.positions)
    write_shown_map(folder, fit.density_map, shown)


def write_shown_map(folder: Path, density_map: DensityMap, around: Sequence[np.ndarray]) -> None:
    """Write the part of a map around some positions, in Å; nothing where that cannot be done."""
    path = folder / SHOWN_MAP
    try:
        on_whole_steps(density_map.crop(np.concatenate(around), MARGIN)).write(path)
    except InputError:  # models outside the map, or a grid that no MRC file can hold
        path.unlink(missing_ok=True)


def on_whole_steps(density_map: DensityMap) -> DensityMap:
    """Return the same density on grid points that are whole steps from the origin of coordinates."""
    steps = np.linalg.solve(density_map.matrix, density_map.origin)
    whole = np.round(steps)
    if np.abs(steps - whole).max() < WHOLE_STEPS:
        return density_map
    # Point i of the new grid is at i + whole - steps on the old one.
    data = ndimage.shift(density_map.data, (steps - whole)[::-1], order=3, mode="nearest", prefilter=True)
    return replace(density_map, data=data, origin=density_map.matrix @ whole)


def _write_model(folder: Path, name: str, model: Model, positions: np.ndarray) -> None:
    """Write the atoms of a model as they were read, as PDB where that can hold them."""
    pdb, cif = (folder / f"{name}{suffix}" for suffix in SUFFIXES)
    if pdb_limit(model, positions) is None:
        write_pdb(pdb, model, positions)
        cif.unlink(missing_ok=True)
    else:
        write_model_cif(cif, model, positions)
        pdb.unlink(missing_ok=True)


def _remove(folder: Path, name: str) -> None:
    for suffix in SUFFIXES:
        (folder / f"{name}{suffix}").unlink(missing_ok=True)
