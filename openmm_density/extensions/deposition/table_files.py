"""``table1.md`` of a fit, with the categories on its refinement in ``fitted.cif``, and that of any model (``score --table1``)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_files import write_text
from ...base.wording import one_line
from ...fitting.agreement import ModelAgreement
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...fitting.helper_processes import HelperResult
from ...fitting.written_atoms import input_b_factors, input_occupancies
from ...maps.density_map import DensityMap
from ...models.chemistry.topologies import hydrogen_mask
from ...models.model import Model
from ...models.structure_files import write_model_cif
from ...report.results import FITTED, TABLE_ONE
from ...report.summary import versions
from ...validation.fsc import ShellCorrelation
from ...validation.model_geometry import geometry_of_model
from .cif_categories import add_refinement
from .diffraction import Crystal, crystal_of
from .figures import FiguresOfModel, deposition_figures, map_figures
from .table import Symmetric, TableInput, table_one

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
            add_refinement(folder / FITTED, known, b_factors, fit.density.measure.name)
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
    b_factors, occupancies = _values(result)
    of_map = figures_beside(fit, result)
    written = folder / "fitted.pdb"
    figures = deposition_figures(
        FiguresOfModel(
            model.topology,
            result.prepared.input_positions(result.final),
            b_factors,
            occupancies,
            written if written.exists() else folder / "fitted_input.cif",
        ),
        fit.density_map,
        fit.density.resolution,
        residue_q_scores=[row["q_score_final"] for row in agreement.residues],
        masked_fsc=_curve(agreement.overall.get("fsc_final")),
        of_map=of_map.result(),
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
        symmetric=_symmetry_fitted(fit, summary),
        remarks=[] if result.simulated is None else [AS_IT_WAS],
    )
    heavy = ~hydrogen_mask(model.topology)
    return known, np.asarray(b_factors)[heavy]


def figures_beside(fit: FlexibleFit, result: FitResult) -> HelperResult[dict[str, Any]]:
    """Begin what takes long of the table, where something is done beside the fit: figures of model and map."""
    prepared, shared, key = result.prepared, fit.beside.shared, result.final.tobytes()
    b_factors, occupancies = _values(result)
    return fit.beside.once(
        key,
        map_figures,
        *(shared(prepared.model.topology), prepared.input_positions(result.final), b_factors, occupancies),
        *(shared(fit.density_map), fit.density.resolution),
    )


def _values(result: FitResult) -> tuple[np.ndarray, np.ndarray]:
    """Return the B factors and occupancies of the atoms of the input, as they are written."""
    model, b_factors, occupancies = result.prepared.model, input_b_factors(result), input_occupancies(result)
    return (
        model.known_b_factors if b_factors is None else b_factors,
        model.occupancies if occupancies is None else occupancies,
    )


def _symmetry_fitted(fit: FlexibleFit, summary: Mapping[str, Any]) -> Symmetric | None:
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
    """Write the table of a model at some positions, and return its figures. `positions` (N, 3) in Å; `resolution` in Å."""
    with tempfile.TemporaryDirectory() as folder:
        # As it is scored: of a trajectory the last frame.
        written = Path(folder) / "model.cif"
        write_model_cif(written, model, positions)
        shown = FiguresOfModel(model.topology, positions, model.known_b_factors, model.occupancies, written)
        figures = deposition_figures(shown, density_map, resolution)
    geometry = geometry_of_model(model, positions)
    known = TableInput(
        figures,
        geometry.as_dict(),
        resolution,
        *(Path(name).name for name in names),
        [float(size) for size in density_map.voxel_size],
        versions()["openmm-density"] or "",
        crystal or crystal_of(density_map, model.cell, model.space_group),
        symmetric=_symmetry_scored(scored.get("assembly")),
        remarks=[*remarks, *geometry.notes],
        half_map_resolution=scored.get("half_map_resolution") if scored.get("half_map_falls") else None,
    )
    write_text(path, table_one(known))
    return figures


def _symmetry_scored(found: Mapping[str, Any] | None) -> Symmetric | None:
    """Return what is known of an assembly, of which the model that was scored is one unit where it does not name one."""
    if found is None:
        return None
    return (
        Symmetric(found["symmetry"])
        if found["unit"]
        else Symmetric(found["symmetry"], found["copies"], found["cc"])
    )
