"""``table1.md`` of a fit, and the categories on its refinement in ``fitted.cif``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_files import write_text
from ...base.wording import one_line
from ...extensions.deposition.cif_categories import add_refinement
from ...extensions.deposition.diffraction import Crystal, crystal_of
from ...extensions.deposition.figures import FiguresOfModel, deposition_figures
from ...extensions.deposition.table import Symmetric, TableInput, table_one
from ...models.chemistry.elements import is_hydrogen
from ...validation.all_atom_contacts import contacts_of_prepared
from ...validation.fsc import ShellCorrelation
from ..fit_result import FitResult
from ..flexible_fit import FlexibleFit
from ..written_atoms import input_b_factors, input_occupancies
from .agreement import ModelAgreement
from .results import FITTED, TABLE_ONE
from .summary import versions

AS_IT_WAS = "The fit did not improve the model: these are the figures of the model as it was."


def write_table_one(
    folder: Path,
    fit: FlexibleFit,
    result: FitResult,
    agreement: ModelAgreement,
    summary: dict[str, Any],
    crystal: Callable[[], Crystal] | None = None,
) -> None:
    """Write the table of the model that was kept, and what its file says of the refinement; the summary gets ``table1``.

    A fit that was interrupted has none, and where a figure cannot be had at all, a note of the summary says why: nothing else is
    lost by it.
    """
    path = folder / TABLE_ONE
    summary["table1"] = None
    if result.interrupted:
        path.unlink(missing_ok=True)  # that of an earlier fit
        return
    try:
        known, b_factors = _known(folder, fit, result, agreement, summary, crystal)
        write_text(path, table_one(known))
        if result.simulated is None:
            add_refinement(folder / FITTED, known, b_factors, fit.density.similarity_measure)
        summary["table1"] = dict(known.figures)
    except Exception as error:
        path.unlink(missing_ok=True)
        summary["notes"].append(
            f"{TABLE_ONE} was not written ({one_line(error)}); all other results are there."
        )


def _known(
    folder: Path,
    fit: FlexibleFit,
    result: FitResult,
    agreement: ModelAgreement,
    summary: Mapping[str, Any],
    crystal: Callable[[], Crystal] | None,
) -> tuple[TableInput, np.ndarray]:
    """Return what the table is made of, and the B factors of the atoms but hydrogens."""
    model = result.prepared.model
    refined = input_b_factors(result)
    b_factors = model.b_factors if refined is None else refined
    occupancies = input_occupancies(result)
    occupancies = model.occupancies if occupancies is None else occupancies
    written = folder / "fitted.pdb"
    figures = deposition_figures(
        FiguresOfModel(
            model.topology,
            result.prepared.input_positions(result.final),
            b_factors,
            occupancies,
            written if written.exists() else folder / "fitted_input.cif",
            contacts_of_prepared(result.prepared, result.final, occupancies),
        ),
        fit.density_map,
        fit.density.resolution,
        residue_q_scores=[row["q_score_final"] for row in agreement.residues],
        masked_fsc=_curve(agreement.overall.get("fsc_final")),
    )
    halves = summary.get("half_maps") or {}
    known = TableInput(
        figures,
        summary["geometry_final"],
        fit.density.resolution,
        Path(summary["model"]).name,
        Path(summary["map"]).name,
        [float(size) for size in fit.density_map.voxel_size],
        versions()["openmm-density"] or "",
        crystal() if crystal else crystal_of(fit.density_map, model.cell, model.space_group),
        half_map_resolution=halves.get("fsc_resolution") if halves.get("fsc_falls") else None,
        symmetric=_symmetric(fit, summary),
        remarks=[] if result.simulated is None else [AS_IT_WAS],
    )
    heavy = [not is_hydrogen(atom) for atom in model.topology.atoms()]
    return known, np.asarray(b_factors)[heavy]


def _symmetric(fit: FlexibleFit, summary: Mapping[str, Any]) -> Symmetric | None:
    """Return the assembly of which the model is one unit; of a crystal the table is that of its asymmetric unit."""
    operators = fit.density.operators
    if operators is None or operators.cell is not None:
        return None
    name = "" if fit.symmetry is None else fit.symmetry.name
    return Symmetric(name, len(operators), (summary.get("assembly") or {}).get("cc_final"))


def _curve(told: Mapping[str, Any] | None) -> ShellCorrelation | None:
    """Return a curve that a report has as lists."""
    if told is None:
        return None
    correlation = np.array([np.nan if value is None else value for value in told["correlation"]])
    return ShellCorrelation(
        np.array(told["frequency"]), correlation, np.zeros(len(correlation), dtype=np.int64)
    )
