"""What ``summary.json``, doubts and the page of a fit say of a prediction's confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter1d

from ...base.page_blocks import Block, Plot
from ...fitting.doubt import Doubt, Place
from ...fitting.extension import Told
from ...fitting.fit_result import FitResult
from ...fitting.flexible_fit import FlexibleFit
from ...fitting.unseen import unshown_residues
from ...models.confidence import UNSURE
from ...models.predictions import residue_confidence, stretches_of
from ...report.residue_plots import value_figure
from ...validation.correlation import MapCorrelation
from ...validation.stretches import FAR_BELOW, WINDOW, runs_of

CONFIDENT = 80.0
"""pLDDT above which a stretch is doubted that the map does not show."""
SHAKY = 60.0
"""pLDDT below which one is named that the map shows as well as the rest."""
# Stretches that are named.
_MOST = 5


def prediction_told(name: str, fit: FlexibleFit, result: FitResult) -> Told:
    """Return figures, and a doubt where confident parts and the map disagree, or the reverse."""
    model = result.prepared.model
    confidence, plddt = model.confidence, residue_confidence(model)
    assert confidence is not None and plddt is not None
    known = plddt[np.isfinite(plddt)]
    figures = {
        "program": confidence.program,
        "told_by": confidence.told_by,
        "mean_plddt": float(known.mean()),
        "unsure_residues": int((known < UNSURE).sum()),
        "b_factors": "estimated from pLDDT" if confidence.column is not None else "as in the file",
    }
    final = result.prepared.input_positions(result.final)
    report = fit.map_report(model.topology, final).result()
    left = unshown_residues(model.topology, _correlations(report["residues"]), plddt)
    residue_of = np.array([atom.residue.index for atom in model.topology.atoms()])
    counted = ~np.isin(residue_of, left)
    cc = MapCorrelation(fit.density_map, model.topology, fit.density.resolution, counted=counted)
    initial = fit.prepared.input_positions(result.initial)
    residues = list(model.topology.residues())
    named = stretches_of([residues[k] for k in left])
    figures |= {
        "not_pulled": named,
        "cc_counted_initial": cc.cc_mask(initial) if len(left) else result.cc_initial,
        "cc_counted_final": cc.cc_mask(final) if len(left) else result.cc_final,
    }
    note = (
        f"Not pulled by the density, as their pLDDT is below 50 and the map does not show them: {named}. "
        f"Without them CC is {figures['cc_counted_final']:.3f}."
    )
    return Told(
        {"prediction": figures},
        notes=[note] if len(left) else [],
        doubts=confidence_doubts(name, report["residues"], plddt),
        units={"mean_plddt": "0 to 100", "plddt": "0 to 100"},
    )


def confidence_doubts(name: str, residues: Sequence[Mapping[str, Any]], plddt: np.ndarray) -> list[Doubt]:
    """Return a doubt on confident stretches that fit far worse than usual, and one on unsure ones that fit as well as usual.

    `residues`: R of a report; `plddt` (R,). Both are averaged over 5 residues of a chain.
    """
    correlations = _correlations(residues)
    chains: dict[str, list[int]] = {}
    for row, residue in enumerate(residues):
        if np.isfinite(plddt[row]) and np.isfinite(correlations[row]):
            chains.setdefault(residue["chain"], []).append(row)
    against: list[list[int]] = []
    unsure: list[list[int]] = []
    for members in chains.values():
        if len(members) < WINDOW:
            continue
        rows = np.array(members)
        shown, sure = (uniform_filter1d(each[rows], WINDOW, mode="nearest") for each in (correlations, plddt))
        usual = np.median(correlations[rows])
        against += _runs(rows, (sure > CONFIDENT) & (shown < usual - FAR_BELOW))
        unsure += _runs(rows, (sure < SHAKY) & (shown >= usual))
    doubts = []
    for stretches, what in (
        (
            against,
            "are predicted with confidence, and disagree with the map: check whether they belong elsewhere, such as with a "
            "domain that turned",
        ),
        (
            unsure,
            "are clear in the map, where the prediction is unsure: check whether they are built as the map shows",
        ),
    ):
        if stretches:
            labels = [_label(residues, stretch, plddt, correlations) for stretch in stretches]
            places = tuple(
                Place(_name(residues, each), tuple(residues[row]["residue"] for row in each))
                for each in stretches
            )
            more = f" and {len(labels) - _MOST} more" if len(labels) > _MOST else ""
            doubts.append(Doubt(name, f"residues {', '.join(labels[:_MOST])}{more} {what}.", places))
    return doubts


def _correlations(residues: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([np.nan if row["correlation"] is None else row["correlation"] for row in residues])


def _runs(rows: np.ndarray, chosen: np.ndarray) -> list[list[int]]:
    """Return runs of neighbours that are chosen, of `WINDOW` residues or more."""
    runs = (rows[first : last + 1].tolist() for first, last in runs_of(chosen))
    return [run for run in runs if len(run) >= WINDOW]


def _name(residues: Sequence[Mapping[str, Any]], rows: Sequence[int]) -> str:
    first, last = (residues[rows[end]] for end in (0, -1))
    ends = (f"{each['number']}{each['insertion_code']}" for each in (first, last))
    return f"{first['chain']} {'-'.join(ends)}".strip()


def _label(
    residues: Sequence[Mapping[str, Any]], rows: Sequence[int], plddt: np.ndarray, correlations: np.ndarray
) -> str:
    return f"{_name(residues, rows)} (pLDDT {plddt[rows].mean():.0f}, correlation {correlations[rows].mean():.2f})"


def confidence_blocks(summary: Mapping[str, Any]) -> list[Block]:
    """Return the plot of the confidence by residue."""
    figure = value_figure(summary["residues"], "plddt", "pLDDT", "pLDDT (0 to 100)")
    said = "How sure the prediction was of each residue; below 50 it is as likely disordered as predicted."
    return [
        Plot(
            "confidence",
            "Confidence of the prediction by residue (click on a residue to see it)",
            said,
            figure,
        )
    ]
