"""What the report of a fit is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ....maps.density_map import DensityMap
from ....report.shown_model import ShownModel
from ...fit_result import FitResult
from ...flexible_fit import FlexibleFit
from .assembly import shown_copies


@dataclass(frozen=True)
class FitContents:
    """What the report of a fit is made from."""

    folder: Path  # With the trajectory and the pictures, as far as there are any
    summary: Mapping[str, Any]  # As ``summary.json`` has it
    # After, which comes first, before, the reference, and copies by symmetry, as far as they are there
    models: Sequence[ShownModel]
    log: Sequence[Mapping[str, Any]]  # The rows of ``log.csv``, numbers as such
    density_map: DensityMap | None = None  # Corrected as for the fit
    # A sentence for each thing that was not found, as where the files of an earlier fit have moved
    missing: Sequence[str] = ()


def contents_of(folder: Path, fit: FlexibleFit, result: FitResult, summary: Mapping[str, Any]) -> FitContents:
    """Return what the report of a fit that has just ended is made from.

    `folder`: where everything but the report is written already; `result` with what the simulation made of the model,
    better or not.
    """
    prepared, reference = result.prepared, fit.reference
    after, before = labels(summary)
    models = [
        ShownModel("after", after, prepared.topology, result.final, prepared.b_factors),
        ShownModel("before", before, prepared.topology, result.initial, fit.prepared.b_factors),
    ]
    if reference is not None:
        models.append(ShownModel("reference", "reference", reference.topology, reference.positions))
    copies = shown_copies(summary, models[0])
    models += [] if copies is None else [copies]
    log = [asdict(row) for row in result.rows]
    return FitContents(folder, summary, models, log, fit.density_map)


def labels(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the models after and before a fit are called."""
    if summary.get("simulated"):
        return "after (not kept)", "before (kept)"
    return ("so far" if summary["interrupted"] else "after"), "before"
