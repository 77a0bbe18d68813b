"""The picture of a fit, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from openmm import app

from ..fitting.agreement import MOST_MARKED, ModelAgreement, poorest
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.helper_processes import HelperResult

if TYPE_CHECKING:
    from ..maps.density_map import DensityMap
    from ..models.model import Model

OVERVIEW = "overview.png"


def begin_overview(
    folder: Path, fit: FlexibleFit, result: FitResult, agreement: ModelAgreement
) -> HelperResult[None]:
    """Draw the picture of a result's final model, beside the fit where it has processes."""
    reference = [] if fit.reference is None else _traces(fit.reference.topology, fit.reference.positions)
    views = [_view(result, stage, agreement) for stage in ("initial", "final")]
    return fit.beside.begin(_draw, folder / OVERVIEW, fit.beside.shared(fit.density_map), *views, reference)


def draw_models_in_map(
    folder: Path,
    density_map: DensityMap,
    models: Mapping[str, tuple[str, Model]],
    reference: Model | None,
    residues: Sequence[dict[str, Any]],
) -> None:
    """Draw the picture of models that no single fit led to."""
    views = [
        (
            title,
            _traces(model.topology, model.positions),
            *_marks_and_atoms(model.topology, model.positions, residues, stage),
        )
        for stage, (title, model) in models.items()
    ]
    traces = [] if reference is None else _traces(reference.topology, reference.positions)
    _draw(folder / OVERVIEW, density_map, *views, traces)


def _draw(
    path: Path,
    density_map: DensityMap,
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    reference: list[np.ndarray],
) -> None:
    # In whatever process, which loads matplotlib only then.
    from . import overview

    views = overview.View(*before), overview.View(*after)
    overview.plot_overview(path, density_map, *views, reference)


def _view(result: FitResult, stage: str, agreement: ModelAgreement) -> tuple[Any, ...]:
    """Return the model of a stage with its poorest residues: the arguments of a `View`."""
    positions = result.initial if stage == "initial" else result.final
    cc, rmsd = (getattr(result, f"{name}_{stage}") for name in ("cc", "ca_rmsd"))
    early = result.interrupted and result.unfinished is None
    after = f"interrupted at step {result.steps}" if early else "after"
    title = f"{'before' if stage == 'initial' else after}: CC {cc:.3f}"
    if rmsd is not None and agreement.matched is not None:
        title += f", {agreement.matched.rmsd} {rmsd:.2f} Å"
    in_input = result.prepared.input_positions(positions)
    traces = _traces(result.prepared.topology, positions)
    shown = _marks_and_atoms(result.prepared.model.topology, in_input, agreement.residues, stage)
    return title, traces, *shown


def _marks_and_atoms(
    topology: app.Topology, positions: np.ndarray, residues: Sequence[dict[str, Any]], stage: str
) -> tuple[list[tuple[str, np.ndarray]], np.ndarray]:
    """Return the names and places of the poorest residues at a stage, and the positions of all atoms but waters."""
    members = [_standing_for(residue) for residue in topology.residues()]
    marks = [
        (f"{row['chain']} {row['number']}{row['insertion_code']}".strip(), positions[members[i]].mean(axis=0))
        for i, row in poorest(residues, stage)[:MOST_MARKED]
    ]
    shown = [
        atom.index
        for residue, row in zip(topology.residues(), residues, strict=True)
        if row["kind"] != "water"
        for atom in residue.atoms()
    ]
    return marks, positions[shown]


def _traces(topology: app.Topology, positions: np.ndarray) -> list[np.ndarray]:
    """Return the Cα (or P) atoms of each chain, in Å."""
    traces = []
    for chain in topology.chains():
        trace = [atom.index for atom in chain.atoms() if atom.name in ("CA", "P")]
        if len(trace) > 1:
            traces.append(positions[trace])
    return traces


def _standing_for(residue: app.topology.Residue) -> list[int]:
    """Return the atom of the trace, or all atoms of what has none."""
    trace = [atom.index for atom in residue.atoms() if atom.name in ("CA", "P")]
    return trace[:1] or [atom.index for atom in residue.atoms()]
