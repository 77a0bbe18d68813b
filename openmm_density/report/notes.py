"""What was done to a model and what could not be, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openmm import app

from ..base.units import ANGSTROM_PER_NANOMETER
from ..base.wording import listing
from ..energies.calibration import STRENGTH_BOUNDS
from ..fitting.final_strength import BOUND_WORDS, LEAST
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.half_maps import StrengthScan
from ..models.chemistry.elements import is_hydrogen


def notes_on(
    fit: FlexibleFit,
    result: FitResult,
    summary: Mapping[str, Any],
    residues: Sequence[Mapping[str, Any]],
    scan: StrengthScan | None = None,
    pdb_limit: str | None = None,
    untrue: Sequence[str] = (),
) -> list[str]:
    """Return what was done to the model and what could not be, in a sentence each."""
    return [
        *fit.corrections.sentences(fit.density_map),
        *placement_note(fit),
        *(each for each in result.prepared.report.sentences if each not in untrue),
        *fit.notes,
        *(fit.planarity.notes if fit.planarity else ()),
        *(note for restraint in fit.restraints for note in restraint.notes),
        *_restraint_note(fit),
        *_strain_note(fit),
        *result.blow_ups,
        _validation_note(scan),
        *([] if pdb_limit is None else [f"fitted.pdb was left out: {pdb_limit}"]),
        *_strength_note(fit, result),
        *_sharpened_note(result),
        *_hydrogens_note(fit, result),
        *_unknown_notes(residues),
        *summary["geometry_final"]["notes"],
    ]


def placement_note(fit: FlexibleFit) -> list[str]:
    """Return a sentence where the model was placed before the fit: what is told of it before is told of it there."""
    if fit.placement is None:
        return []
    return [
        f"The model was placed in the map as a rigid body, {fit.placement.moved_by:.1f} Å from where it was (similarity "
        f"{fit.placement.similarity_before:.3f} before, {fit.placement.similarity_after:.3f} there): what is told of it before "
        "the fit is told of it there."
    ]


def _restraint_note(fit: FlexibleFit) -> list[str]:
    """Return a sentence where the model has nothing of what is to be restrained."""
    names = list(dict.fromkeys(name for stage in fit.protocol.stages for name in stage.restraints))
    held = [*fit.restraints, *([fit.planarity] if fit.planarity and "planarity" in names else [])]
    if not names or any(restraint.n_terms for restraint in held):
        return []
    return [f"Nothing is restrained: the model has nothing that {listing(names)} would hold."]


def _strain_note(fit: FlexibleFit) -> list[str]:
    """Return a sentence where the start had to be relaxed in stages."""
    if not fit.start_strain.is_bad:
        return []
    found = "; ".join(fit.start_strain.described(fit.prepared.topology))
    return [
        "The start has a bad geometry, which was relaxed in stages before the fit, with the chirality of every centre kept: "
        f"{found}."
    ]


NO_HALF_MAPS = "No half maps were given: whether the strength fits noise was not tested."


def _validation_note(scan: StrengthScan | None) -> str:
    if scan is None:
        return NO_HALF_MAPS
    free = ", ".join(f"{cc:.3f} at {strength:g}" for strength, cc in zip(scan.strengths, scan.free))
    rising = " (the strongest that was tried)" if scan.chosen == scan.strengths[-1] else ""
    return (
        f"Fitted into one half map, the model correlates with the other by {free} kJ/mol per atom, after {scan.steps_each} steps "
        f"at each: {scan.chosen:g} is allowed at the end{rising}."
    )


def _strength_note(fit: FlexibleFit, result: FitResult) -> list[str]:
    """Return a sentence where the automatic strength is at a bound to the end, or no final one keeps the geometry."""
    search = result.final_search
    if search is not None and search["chosen"] <= LEAST and search["limited_by"]:
        return [
            f"Even at {LEAST:g} kJ/mol per fitted atom the geometry of the model is not as good as relaxed ("
            f"{listing([BOUND_WORDS[name] for name in search['limited_by']])}): no stronger pull was kept to the end."
        ]
    low, high = STRENGTH_BOUNDS
    if fit.protocol.strength != "auto" or low < result.strength < high or not result.strength:
        return []
    if search is not None:  # it only led there, and what it ends with was found
        return []
    return [
        f"The automatic strength is at its limit of {result.strength:g} kJ/mol per fitted atom; the ratio of forces asked for "
        f"{'more' if result.strength >= high else 'less'}."
    ]


def _sharpened_note(result: FitResult) -> list[str]:
    """Return a sentence where the last stage ran in a sharper map than the one that was given."""
    by = result.stages[-1].get("sharpened", 1.0) if result.stages else 1.0
    if by == 1.0:
        return []
    return [
        f"The map shows atoms {by:g} times as wide as its resolution says: the fit ended in a map that was sharpened by that. "
        "Correlations and scores are with the map as it is."
    ]


def _hydrogens_note(fit: FlexibleFit, result: FitResult) -> list[str]:
    """Return a sentence where the model has hydrogens and the reference none: theirs, which maps hardly show, counts in a CC."""
    model = result.prepared.model.topology
    hydrogens = [atom for atom in model.atoms() if is_hydrogen(atom)]
    if fit.reference is None or not hydrogens or any(map(is_hydrogen, fit.reference.topology.atoms())):
        return []
    final = result.prepared.input_positions(result.final)
    heavy = app.Modeller(model, final / ANGSTROM_PER_NANOMETER)
    heavy.delete(hydrogens)
    kept = [atom.index for atom in model.atoms() if not is_hydrogen(atom)]
    cc = fit.fit_map.correlation(heavy.topology).cc_mask(final[kept])
    return [
        f"The model has hydrogens and the reference has none: without them its CC is {cc:.3f}, which that of the reference, "
        f"{result.cc_reference:.3f}, is to be compared with."
    ]


def _unknown_notes(residues: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence with the residues whose correlation is not known, before and after."""
    notes = []
    for stage, when in (("initial", "before"), ("final", "after")):
        unknown = [row["residue"] for row in residues if row[f"correlation_{stage}"] is None]
        if unknown:
            notes.append(
                f"No correlation {when} the fit (null in summary.json) where the map is flat, as beyond a mask, or ends: "
                f"{listing(unknown, 10)}."
            )
    return notes
