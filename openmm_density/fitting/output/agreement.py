"""How well the models of a fit agree with the map: as wholes, and residue by residue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...models.matching import match_alpha_carbons, match_ligands
from ...validation.report import map_report, residue_changes
from ...validation.stretches import Stretch, doubtful_stretches
from ..fit_result import FitResult
from ..flexible_fit import FlexibleFit
from ..rebuilding.changes import mark_rebuilt


@dataclass(frozen=True)
class MapAgreement:
    """How well the atoms that were given agree with the map before and after a fit, and those of the reference.

    Attributes
    ----------
    overall : dict
        ``q_score``, ``fsc``, ``fsc_resolution`` and ``fsc_falls`` of `openmm_density.validation.report.map_report`, each with the
        endings ``_initial``, ``_final`` and ``_reference``; None without a reference.
    residues : list of dict
        From `openmm_density.validation.report.residue_changes`, beside those that stand for them in the reference, and with what
        `openmm_density.fitting.rebuilding.changes.mark_rebuilt` adds.
    stretches : list of Stretch
        Where the model is not to be believed, the worst first.
    """

    overall: dict[str, Any]
    residues: list[dict[str, Any]]
    stretches: list[Stretch]


def map_agreement(fit: FlexibleFit, result: FitResult) -> MapAgreement:
    """Assess the models of a fit: each residue before and after, and where it is to be doubted.

    Parameters
    ----------
    fit : FlexibleFit
    result : FitResult

    Raises
    ------
    InputError
        If a residue has no number.
    """
    reports = _map_reports(fit, result)
    residues = _residues(fit, result, reports)
    mark_rebuilt(residues, result.rebuilding)
    return MapAgreement(_overall(reports), residues, doubtful_stretches(residues))


def _map_reports(fit: FlexibleFit, result: FitResult) -> dict[str, dict[str, Any]]:
    model = result.prepared.model
    final = result.prepared.input_positions(result.final)
    models = {"initial": (model.topology, model.positions), "final": (model.topology, final)}
    if fit.reference is not None:
        models["reference"] = (fit.reference.topology, fit.reference.positions)
    return {
        stage: map_report(topology, positions, fit.density_map, fit.density.resolution)
        for stage, (topology, positions) in models.items()
    }


def _overall(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Give the overall measures, under a name for each stage."""
    return {
        f"{measure}_{stage}": reports[stage][measure] if stage in reports else None
        for measure in ("q_score", "fsc_resolution", "fsc_falls", "fsc")
        for stage in ("initial", "final", "reference")
    }


def _residues(
    fit: FlexibleFit, result: FitResult, reports: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Put the residues before and after side by side, and beside those that stand for them in the reference."""
    if fit.reference is None:
        return residue_changes(reports["initial"], reports["final"])
    model, reference = result.prepared.model, fit.reference
    pairs = match_alpha_carbons(
        model.topology,
        reference.topology,
        positions=model.positions,
        reference_positions=reference.positions,
    )
    own, other = (
        [atom.residue.index for atom in topology.atoms()] for topology in (model.topology, reference.topology)
    )
    rows: list[dict[str, Any] | None] = [None] * len(reports["initial"]["residues"])
    for atom, reference_atom in zip(*pairs):
        rows[own[atom]] = reports["reference"]["residues"][other[reference_atom]]
    final = result.prepared.input_positions(result.final)
    for residue, standing_for in match_ligands(
        model.topology, reference.topology, final, reference.positions
    ):
        rows[residue] = reports["reference"]["residues"][standing_for]
    return residue_changes(reports["initial"], reports["final"], rows)
