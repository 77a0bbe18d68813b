"""The Table 1 of a model and a map, whoever made them, as of ``score --table1``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_files import write_text
from ...base.wording import one_line
from ...extensions.deposition.diffraction import Crystal, crystal_of
from ...extensions.deposition.figures import FiguresOfModel, deposition_figures
from ...extensions.deposition.table import Symmetric, TableInput, table_one
from ...maps.density_map import DensityMap
from ...models.model import Model
from ...models.preparation import prepare
from ...models.structure_files import write_model_cif
from ...validation.all_atom_contacts import AllAtomContacts, contacts_of_prepared
from ...validation.geometry import geometry_report
from .summary import versions


def write_table_of_model(
    path: str | Path,
    model: Model,
    positions: np.ndarray,
    density_map: DensityMap,
    resolution: float,
    names: tuple[str, str],
    scored: Mapping[str, Any],
    crystal: Crystal | None = None,
    remarks: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the table of a model at some positions, and return its figures.

    `positions` (N, 3) in Å; `resolution` in Å.
    """
    with tempfile.TemporaryDirectory() as folder:
        # As it is scored: of a trajectory the last frame.
        written = Path(folder) / "model.cif"
        write_model_cif(written, model, positions)
        contacts, missing = _contacts(model, positions)
        shown = FiguresOfModel(
            model.topology, positions, model.b_factors, model.occupancies, written, contacts
        )
        figures = deposition_figures(shown, density_map, resolution)
    known = TableInput(
        figures,
        geometry_report(model.topology, positions).as_dict(),
        resolution,
        *(Path(name).name for name in names),
        [float(size) for size in density_map.voxel_size],
        versions()["openmm-density"] or "",
        crystal or crystal_of(density_map, model.cell, model.space_group),
        symmetric=_symmetric(scored.get("assembly")),
        remarks=[*remarks, *missing],
        half_map_resolution=scored.get("half_map_resolution") if scored.get("half_map_falls") else None,
    )
    write_text(path, table_one(known))
    return figures


def _symmetric(found: Mapping[str, Any] | None) -> Symmetric | None:
    """Return what is known of an assembly, of which the model that was scored is one unit where it does not name one."""
    if found is None:
        return None
    return (
        Symmetric(found["symmetry"])
        if found["unit"]
        else Symmetric(found["symmetry"], found["copies"], found["cc"])
    )


def _contacts(model: Model, positions: np.ndarray) -> tuple[AllAtomContacts | None, list[str]]:
    """Return the contacts with hydrogens, which are built; else a sentence that says why there are none."""
    try:
        prepared = prepare(replace(model, positions=positions))
        return contacts_of_prepared(prepared, prepared.positions, model.occupancies), []
    except Exception as error:
        return None, [f"No clashscore, as hydrogens could not be built ({one_line(error)})."]
