"""How well the models of a fit agree with the map, overall and residue by residue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..models.matching import match_alpha_carbons, match_ligands, residues_of
from ..models.model import Model
from ..validation.model_report import residue_changes
from ..validation.stretches import DoubtfulStretch, doubtful_stretches
from .fit_result import FitResult
from .flexible_fit import FlexibleFit
from .helper_processes import HelperResult
from .installed_extensions import extensions

MOST_MARKED = 5
"""Residues of lowest correlation that are named and marked."""

_OF_NUCLEOTIDES = ("cc_bases", "cc_backbone", "q_score_bases", "q_score_backbone")
OVERALL = ("q_score", "fsc_resolution", "fsc_falls", "fsc", *_OF_NUCLEOTIDES)
"""What a report tells of the model as a whole beside its CC."""

_NAMES = {"CA": "Cα", "P": "P", "C1'": "C1′"}


@dataclass(frozen=True)
class Matched:
    """What of a model the distance to a reference is of."""

    # The names of the atoms that stand for residues: ``CA``, and of nucleotides ``P``, or ``C1'`` where one has no P
    atoms: list[str]
    # `matched`, `residues`: residues that the reference has as well, and all that have such an atom.
    matched: int
    residues: int

    @property
    def rmsd(self) -> str:
        """What the distance is called, as in ``Cα RMSD``."""
        names = ", ".join(_NAMES.get(name, name) for name in self.atoms)
        return f"{names} RMSD" if self.atoms == ["CA"] else f"backbone ({names}) RMSD"


@dataclass(frozen=True)
class ModelAgreement:
    """How well the atoms that were given agree with the map before and after a fit, and those of the reference."""

    # `OVERALL` of `openmm_density.validation.model_report.map_report`, each with the endings ``_initial``, ``_final``
    # and ``_reference``; None without a reference
    overall: dict[str, Any]
    # From `openmm_density.validation.model_report.residue_changes`, beside those that stand for them in the
    # reference, and with the columns of extensions
    residues: list[dict[str, Any]]
    stretches: list[DoubtfulStretch]  # Where the model is not to be believed, the worst first
    matched: Matched | None = None  # What the distance to the reference is of, where there is one


def model_agreement(fit: FlexibleFit, result: FitResult) -> ModelAgreement:
    """Assess the models of a fit, each residue before and after, and doubts; InputError for a residue without a number."""
    reports = {stage: report.result() for stage, report in _map_reports(fit, result).items()}
    model, reference = result.prepared.model, fit.reference
    pairs = None if reference is None else pairs_with(model, reference)
    final = result.prepared.input_positions(result.final)
    residues = residues_beside(model, final, reference, reports, pairs)
    columns = [column for each in extensions() for column in each.residues(result).items()]
    for name, values in columns:
        for row, value in zip(residues, values, strict=True):
            row[name] = value
    matched = None if pairs is None else _matched(result, pairs[0])
    return ModelAgreement(overall_measures(reports), residues, doubtful_stretches(residues), matched)


def poorest(residues: Sequence[dict[str, Any]], stage: str) -> list[tuple[int, dict[str, Any]]]:
    """Return residues but water with their places among all, those of lowest correlation at a stage first."""
    name = f"correlation_{stage}"
    known = [(i, row) for i, row in enumerate(residues) if row[name] is not None and row["kind"] != "water"]
    return sorted(known, key=lambda pair: pair[1][name])


def begin_reports(fit: FlexibleFit, result: FitResult) -> None:
    """Begin what `model_agreement` and the summary need, where something is done beside the fit."""
    if not result.interrupted:
        fit.beside.begin_after_steps(fit.solute.topology.getNumAtoms(), fit.threads, fit.density_map)
        if fit.beside.has_processes:
            fit.checks_after(result)
    _map_reports(fit, result)


def _map_reports(fit: FlexibleFit, result: FitResult) -> dict[str, HelperResult[dict[str, Any]]]:
    model = result.prepared.model
    final = result.prepared.input_positions(result.final)
    models = {"initial": (model.topology, model.positions), "final": (model.topology, final)}
    if fit.reference is not None:
        models["reference"] = (fit.reference.topology, fit.reference.positions)
    return {stage: fit.map_report(topology, positions) for stage, (topology, positions) in models.items()}


def overall_measures(reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the overall measures of reports, each with the ending of its stage; None of a stage without a report."""
    return {
        f"{measure}_{stage}": reports[stage][measure] if stage in reports else None
        for measure in OVERALL
        for stage in ("initial", "final", "reference")
    }


def pairs_with(model: Model, reference: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms that stand for residues of a model, and those of the reference that they are paired with."""
    return match_alpha_carbons(
        model.topology,
        reference.topology,
        positions=model.positions,
        reference_positions=reference.positions,
    )


def _matched(result: FitResult, paired: np.ndarray) -> Matched:
    """Return what the model's atoms that were paired are, and of how many residues."""
    topology = result.prepared.model.topology
    atoms = list(topology.atoms())
    names = {atoms[index].name.replace("*", "'") for index in paired}
    traced = sum(bool(residue.traces) for residue in residues_of(topology))
    return Matched([name for name in _NAMES if name in names], len(paired), traced)


def residues_beside(
    model: Model,
    final: np.ndarray,
    reference: Model | None,
    reports: Mapping[str, dict[str, Any]],
    pairs: tuple[np.ndarray, np.ndarray] | None,
) -> list[dict[str, Any]]:
    """Return the residues before, after (`final` (N, 3) in Å) and those that stand for them in the reference, side by side."""
    if reference is None or pairs is None:
        return residue_changes(reports["initial"], reports["final"])
    own, other = (
        [atom.residue.index for atom in topology.atoms()] for topology in (model.topology, reference.topology)
    )
    rows: list[dict[str, Any] | None] = [None] * len(reports["initial"]["residues"])
    for atom, reference_atom in zip(*pairs):
        rows[own[atom]] = reports["reference"]["residues"][other[reference_atom]]
    for residue, standing_for in match_ligands(
        model.topology, reference.topology, final, reference.positions
    ):
        rows[residue] = reports["reference"]["residues"][standing_for]
    return residue_changes(reports["initial"], reports["final"], rows)
