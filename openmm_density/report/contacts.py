"""Contacts that a fit does not see: with copies in the crystal, and what is as near as a bond but is none."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ..base.wording import listing
from ..fitting.doubt import Doubt, Place
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..models.structures import Model
from ..validation.mates import clashes_with_mates, worse_mate_contacts

SAME_CELL = 0.02
"""By this part the axes of a model's cell and of the map's may differ if they are one crystal."""


def contact_report(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return what ``summary.json`` holds of such contacts.

    Returns ``mate_contacts_initial``, ``_relaxed`` and ``_final``: the number of clashes with copies of the model in
    the crystal, None where the map is not that of its crystal, and the fit had no operators of an assembly;
    ``worse_mate_contacts``: those that are new or clearly nearer; ``mates_fitted``: whether the fit had operators, and
    so saw the copies; ``short_contacts``: pairs of atoms that are as near as a bond, but are not bonded.
    """
    prepared = result.prepared
    stages = {
        stage: prepared.input_positions(getattr(result, stage)) for stage in ("initial", "relaxed", "final")
    }
    operators = fit.density.operators
    has_copies = operators is not None or _is_of_crystal(fit, prepared.model)
    found = {
        stage: clashes_with_mates(prepared.model, positions, operators) if has_copies else None
        for stage, positions in stages.items()
    }
    report: dict[str, Any] = {
        f"mate_contacts_{stage}": None if contacts is None else len(contacts)
        for stage, contacts in found.items()
    }
    worse = []
    if found["initial"] is not None and found["final"] is not None:
        worse = worse_mate_contacts(prepared.model, found["initial"], found["final"])
    report["worse_mate_contacts"] = [asdict(contact) for contact in worse]
    report["mates_fitted"] = operators is not None
    records = prepared.model.records
    report["short_contacts"] = [
        {
            "atoms": f"{records[i].describe()} - {records[j].describe()}",
            "separation_initial": float(np.linalg.norm(stages["initial"][i] - stages["initial"][j])),
            "separation_final": float(np.linalg.norm(stages["final"][i] - stages["final"][j])),
        }
        for i, j in prepared.model.short_contacts
    ]
    return report


def contact_doubts(summary: dict[str, Any]) -> list[Doubt]:
    """Return doubts about the contacts of a report."""
    doubts = []
    if summary["worse_mate_contacts"]:
        named = [
            f"{each['atoms']} ({each['separation_final']:.2f} Å, "
            + (
                "no clash before)"
                if each["separation_initial"] is None
                else f"{each['separation_initial']:.2f} before)"
            )
            for each in summary["worse_mate_contacts"]
        ]
        # The second atom is that of a copy: the place is where the first one is.
        places = tuple(
            Place(each["atoms"], (each["atoms"].split(" - ")[0],)) for each in summary["worse_mate_contacts"]
        )
        copies = "copies of the model in the crystal, which take no part in the fit"
        if summary.get("mates_fitted"):
            copies = "copies of the model by its symmetry, although the fit saw these"
        said = (
            f"atoms were driven into {copies}: {listing(named, 10)}: "
            "look at the model there, with its symmetry mates."
        )
        doubts.append(Doubt("mates", said, places))
    return doubts


def _is_of_crystal(fit: FlexibleFit, model: Model) -> bool:
    """Return whether the map is that of the crystal that a model names."""
    if not fit.density_map.periodic or model.cell is None or not model.space_group:
        return False
    axes = np.linalg.norm(fit.density_map.matrix, axis=0) * fit.density_map.size
    return bool(np.all(np.abs(axes / np.array(model.cell[:3]) - 1) < SAME_CELL))
