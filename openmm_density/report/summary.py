"""What ``summary.json`` holds: how a fit was made, what came of it, and what to think of that."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..base.atomic_files import write_text
from ..base.errors import with_arguments
from ..base.plugins import installed_version, openmm_torch_versions
from ..base.stopwatch import Stopwatch, in_order
from ..base.units import ANGSTROM_PER_NANOMETER
from ..fitting.agreement import ModelAgreement, poorest
from ..fitting.doubt import Doubt, located_doubts
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.half_maps import StrengthScan
from ..fitting.installed_extensions import extensions
from ..models.chemistry.pierced_rings import pierced_rings
from ..models.chemistry.planes import find_planes, planarity_report
from ..restraints import Violation, find_violations
from ..validation.density_level import density_level
from ..validation.flatness import flat_ligands
from ..validation.geometry import compare_geometry
from ..validation.map_checks import MapChecks
from ..validation.model_geometry import geometry_of_model
from ..validation.q_score import usual_q
from .contacts import contact_report
from .doubts import doubts_about
from .local_geometry import worse_in_fit
from .notes import notes_on
from .quantities import UNITS

MOST_WORST = 10
"""Residues of lowest correlation that it names."""

_CHANGES = (
    "peptide_flips",
    "inverted_centres",
    "base_pairs_lost",
    "base_pairs_gained",
    "pyranose_changes",
    "metal_changes",
)
_PACKAGES = ("openmm-density", "torch", "triton", "openmm", "mdtraj", "gemmi", "numpy")


def summarize(
    fit: FlexibleFit,
    result: FitResult,
    agreement: ModelAgreement,
    model_path: str,
    map_path: str,
    scan: StrengthScan | None = None,
    pdb_limit: str | None = None,
    spellings: Mapping[str, str] = MappingProxyType({}),
    geometry: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return all that ``summary.json`` holds; `geometry`: `geometry_figures`, where they are known."""
    checks = _checks_after(fit, result)
    violated = _violations(fit, result)
    summary = {
        **_data(fit, result, model_path, map_path),
        **_agreement(fit, result, agreement),
        **_map_as_used(fit, result, checks, spellings),
        **_course(fit, result),
        **times_of(fit.stopwatch, scan),
        **_speed(fit, result),
        **_planarity(fit, result),
        "restraints_violated": {name: [*map(str, each)] for name, each in violated.items()},
        **(geometry or geometry_figures(fit, result)),
        **contact_report(fit, result),
        "rigid_residues": list(result.prepared.report.rigid_residues),
        "ligand_potentials": ligand_figures(result),
        "versions": versions(),
        "half_maps": None if scan is None else scan.as_dict(),
    }
    told = [extension.told(fit, result) for extension in extensions()]
    for each in told:
        summary |= each.figures
    untrue = [sentence for each in told for sentence in each.untrue]
    notes = notes_on(fit, result, summary, agreement.residues, scan, pdb_limit, untrue)
    notes += [note for each in told for note in each.notes]
    summary["notes"] = [with_arguments(note, spellings) for note in notes]
    findings = fit.map_checks.with_later(checks, result.cc_final)
    doubtful = violated, agreement.stretches, agreement.residues, scan, findings
    of_extensions = [doubt for each in told for doubt in each.doubts]
    doubts = doubts_about(fit, result, summary, *doubtful, spellings, of_extensions)
    summary |= _doubts(result, agreement, doubts)
    # What is long comes last.
    summary["worst_residues"] = [
        {"residue": row["residue"], "correlation": row["correlation_final"]}
        for _, row in poorest(agreement.residues, "final")[:MOST_WORST]
    ]
    summary["residues"] = agreement.residues
    summary["units"] = UNITS | {name: unit for each in told for name, unit in each.units.items()}
    return summary


def kept_and_simulated(
    fit: FlexibleFit, result: FitResult, simulated_agreement: ModelAgreement
) -> dict[str, Any]:
    """Return what ``summary.json`` says of which model was kept.

    Returns ``kept`` ("before" or "after"); and where that is "before", ``kept_because``, and as ``simulated`` the
    figures that otherwise end in ``_final``, without this ending, else None.
    """
    kept = {"kept": result.kept, "kept_because": None, "simulated": None}
    if result.simulated is None:
        return kept
    simulated = summarize(fit, result.as_simulated(), simulated_agreement, "", "")
    figures = {name.removesuffix("_final"): simulated[name] for name in simulated if name.endswith("_final")}
    figures |= {name: simulated[name] for name in ("restraints_violated", "worse_geometry", *_CHANGES)}
    return kept | {"kept_because": result.simulated.because, "simulated": figures}


def times_of(stopwatch: Stopwatch, scan: StrengthScan | None = None) -> dict[str, Any]:
    """Return what ``summary.json`` says of the time until now: ``wall_seconds``, ``seconds_by_part`` and ``seconds_within``."""
    parts = stopwatch.seconds_by_part
    if scan is not None:  # a stopwatch that did not count it is a script's
        parts = in_order({"half_maps": scan.wall_seconds} | parts)
    parts = {part: round(spent, 3) for part, spent in parts.items() if spent}
    within = {name: round(spent, 3) for name, spent in stopwatch.seconds_within.items()}
    return {
        "wall_seconds": round(sum(parts.values()), 3),
        "seconds_by_part": parts,
        "seconds_within": within,
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary as JSON."""
    write_text(path, _as_json(summary))


def versions() -> dict[str, str | None]:
    """Return the versions of what takes part; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    return found | {package: installed_version(package) for package in _PACKAGES} | openmm_torch_versions()


def _data(fit: FlexibleFit, result: FitResult, model_path: str, map_path: str) -> dict[str, Any]:
    """Return what was fitted into what."""
    density, alternates = fit.density, result.prepared.model.alternates
    return {
        "model": model_path,
        "map": map_path,
        "reference": None if fit.reference is None else str(fit.reference.path),
        "resolution": density.resolution,
        "n_atoms": fit.solute.topology.getNumAtoms(),
        "n_fitted_atoms": density.n_fitted_atoms,
        "n_alternate_conformers": len(alternates.conformers()),
        "n_alternate_atoms": len(alternates),
        "similarity": density.measure.name,
        "strength": result.strength,
        "final_strength": result.final_strength,
        "final_strength_search": result.final_search,
    }


def _agreement(fit: FlexibleFit, result: FitResult, agreement: ModelAgreement) -> dict[str, Any]:
    """Return how well the model agrees with the map, and with the reference; see `quantities` for what each number is."""
    return {
        "cc_initial": result.cc_initial,
        "cc_final": result.cc_final,
        "cc_reference": result.cc_reference,
        "similarity_initial": result.similarity_initial,
        "similarity_final": result.similarity_final,
        "ca_rmsd_initial": result.ca_rmsd_initial,
        "ca_rmsd_final": result.ca_rmsd_final,
        "q_score_usual": usual_q(result.prepared.model.topology, fit.density.resolution),
        "ca_rmsd_of": None if agreement.matched is None else asdict(agreement.matched),
        **agreement.overall,
    }


def _map_as_used(
    fit: FlexibleFit, result: FitResult, checks: MapChecks, spellings: Mapping[str, str]
) -> dict[str, Any]:
    """Return what was done to the map and found out about it, and how the atoms are seen in it."""
    density = fit.density
    return {
        "voxel_size": [float(size) for size in density.target.voxel_size],
        "map_voxel_size": [float(size) for size in fit.density_map.voxel_size],
        "map_mean": float(fit.density_map.data.mean(dtype=np.float64)),
        "map_sd": float(fit.density_map.data.std(dtype=np.float64)),
        "map_corrections": fit.corrections.as_dict(),
        "map_checks": {
            "initial": fit.map_checks.as_dict(spellings),
            "final": None if result.interrupted else checks.as_dict(spellings),
        },
        "resampled": density.resampled,
        "cropped": density.cropped,
        "sigma": density.sigma,
        "cutoff": density.cutoff,
        "contour_level": density_level(
            fit.density_map,
            result.prepared.model.topology,
            result.prepared.input_positions(result.final),
            density.resolution,
        ),
    }


def _course(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return how the fit was to run, and how it ran."""
    return {
        "placement": None if fit.placement is None else fit.placement.as_dict(),
        "protocol": fit.protocol.name,
        "stages": result.stages,
        "interrupted": result.interrupted,
        "blow_ups": len(result.blow_ups),
        "forcefield": fit.forcefield,
        "solvent": result.prepared.solvent,
        "density_interval": fit.protocol.density_interval,
        "steps": result.steps,
        "steps_planned": fit.protocol.steps,
        "seed": fit.seed,
    }


def _speed(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return what a step takes, and where it ran."""
    return {
        "ms_per_step": result.ms_per_step,
        "density_ms_per_step": result.density_ms_per_step,
        "ms_by_force": result.ms_by_force,
        "platform": fit.platform,
        "force_backend": result.force_backend,
    }


def _planarity(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return how flat the flat groups of the model and of the reference are, and those of ligands one by one."""
    prepared, reference = result.prepared, fit.reference
    models = {
        stage: (prepared.model.topology, fit.planes, prepared.input_positions(positions))
        for stage, positions in (("initial", result.initial), ("final", result.final))
    }
    if reference is not None:
        planes = find_planes(reference.topology, reference.positions, dictionaries=fit.dictionaries)
        models["reference"] = reference.topology, planes, reference.positions
    flat = {stage: planarity_report(*model) for stage, model in models.items()}
    stages = ("initial", "final", "reference")
    return {
        "planarity": fit.planarity is not None,
        "n_planes": flat["initial"].n_planes,
        "planarity_rms_initial": flat["initial"].rms,
        "planarity_rms_final": flat["final"].rms,
        "planarity_worst_initial": flat["initial"].worst,
        "planarity_worst_final": flat["final"].worst,
        "planarity_rms_reference": flat["reference"].rms if reference else None,
        "planarity_worst_reference": flat["reference"].worst if reference else None,
        "planarity_final": [asdict(row) for row in flat["final"].rows],
        **{
            f"flat_ligands_{stage}": [ligand.as_dict() for ligand in flat_ligands(*models[stage])]
            if stage in models
            else None
            for stage in stages
        },
    }


def geometry_figures(fit: FlexibleFit, result: FitResult) -> dict[str, Any]:
    """Return the geometry of the model before, relaxed and after, and of the reference, and what the fit changed of it."""
    prepared, reference = result.prepared, fit.reference
    before, relaxed, after = map(fit.geometry, (result.initial, result.relaxed, result.final))
    of_reference = None if reference is None else geometry_of_model(reference)
    return {
        "start_strain": fit.start_strain.as_dict(prepared.topology),
        "pierced_rings_final": [
            each.described(prepared.topology) for each in pierced_rings(prepared.topology, result.final)
        ],
        "geometry_initial": before.as_dict(),
        "geometry_relaxed": relaxed.as_dict(),
        "geometry_final": after.as_dict(),
        "geometry_reference": None if of_reference is None else of_reference.as_dict(),
        **compare_geometry(before, after).as_dict(),
        "worse_geometry": [each.as_dict() for each in worse_in_fit(fit.solute, result, fit.planes)],
    }


def _doubts(result: FitResult, agreement: ModelAgreement, doubts: Sequence[Doubt]) -> dict[str, Any]:
    """Return the doubts as sentences, and with where they are."""
    return {
        "doubts": [doubt.sentence for doubt in doubts],
        "located_doubts": located_doubts(doubts, agreement.residues, _centres(result)),
    }


def _centres(result: FitResult) -> np.ndarray:
    """Return the centre of each residue of the input, fitted, in Å."""
    positions = result.prepared.input_positions(result.final)
    residues = result.prepared.model.topology.residues()
    return np.array([positions[[atom.index for atom in each.atoms()]].mean(axis=0) for each in residues])


def _checks_after(fit: FlexibleFit, result: FitResult) -> MapChecks:
    """Return what the model, fitted, says about the map."""
    if result.interrupted:
        # A search for the mirror image takes longer than a batch system waits, and says nothing of a model on its way.
        return MapChecks()
    return fit.checks_after(result).result()


def _violations(fit: FlexibleFit, result: FitResult) -> dict[str, list[Violation]]:
    """List what is violated at the end, by the name of the restraint; what the last stage does not restrain may have changed."""
    last = [each for each in fit.restraints if each.name in fit.protocol.stages[-1].restraints]
    return find_violations(last, result.final)


def _as_json(summary: dict[str, Any]) -> str:
    """Write a line for each entry, for each part of one that has parts, and for each residue."""

    def lines(value: Any) -> str:
        plain = partial(json.dumps, ensure_ascii=False, allow_nan=False)
        if isinstance(value, dict) and value:
            return (
                "{\n    "
                + ",\n    ".join(f"{plain(key)}: {plain(part)}" for key, part in value.items())
                + "\n  }"
            )
        if isinstance(value, list) and value and isinstance(value[0], (dict, str)):
            return "[\n    " + ",\n    ".join(map(plain, value)) + "\n  ]"
        return plain(value)

    return (
        "{\n  "
        + ",\n  ".join(f"{json.dumps(key)}: {lines(value)}" for key, value in summary.items())
        + "\n}\n"
    )


def ligand_figures(result: FitResult) -> list[dict[str, Any]]:
    """Return for each ligand with a potential of its own what that is, how strained it is by it, and how well it knew it.

    Returns ``residue``, ``smiles``, ``potential``, ``file``, ``sha256``; ``strain_initial`` and ``strain_final``, the
    energy in kJ/mol above that of the relaxed molecule; ``disagreement_worst`` and ``disagreement_bound`` in
    kcal/mol/Å, of the students' forces; ``looks``, ``unknown`` (of these), ``first_unknown`` (the step) and
    ``held_times``.
    """
    figures = []
    watched = {ligand["label"]: ligand for ligand in result.ligands}
    for placed in result.prepared.potentials:
        potential, seen = placed.potential, watched.get(placed.label, {})
        strain = {
            f"strain_{stage}": round(potential.energy(positions[placed.atoms] / ANGSTROM_PER_NANOMETER), 3)
            for stage, positions in (("initial", result.initial), ("final", result.final))
        }
        figures.append(
            {
                "residue": placed.label,
                "smiles": potential.smiles,
                "potential": potential.version,
                "file": None if potential.path is None else str(potential.path),
                "sha256": potential.sha256 or None,
                **strain,
                "disagreement_worst": seen.get("worst"),
                "disagreement_bound": potential.bound,
                "looks": seen.get("looks", 0),
                "unknown": seen.get("unknown", 0),
                "first_unknown": seen.get("first_unknown"),
                "held_times": seen.get("held_times", 0),
            }
        )
    return figures
