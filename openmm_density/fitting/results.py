"""What a fit leaves behind: models, log, summary and pictures, in one folder."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import platform
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ..energies.density_fit import STRENGTH_BOUNDS
from ..energies.planarity import planarity_report
from ..energies.planes import PlaneSet, find_planes
from ..errors import InputError
from ..models.matching import match_alpha_carbons, match_ligands
from ..models.structure_files import pdb_limit, write_cif, write_pdb
from ..models.structures import residue_label
from ..restraints import Violation, find_violations
from ..validation.flatness import flat_ligands
from ..validation.geometry import compare_geometry, geometry_report
from ..validation.report import map_report, residue_changes
from ..validation.stretches import Stretch, doubtful_stretches
from ..whole_files import write_text, written_whole
from ..wording import listing
from .checkpoints import RunFolder
from .flexible_fit import FitResult, FlexibleFit, Row
from .half_maps import StrengthScan
from .locks import FolderLock
from .plots import View, plot_overview, plot_progress, plot_residues
from .rebuilding.changes import mark_rebuilt

UNFINISHED = "unfinished"
"""The folder, in that of the results, of what a fit in progress needs to go on."""
FILES = (
    "fitted.cif",
    "fitted.pdb",
    "trajectory.dcd",
    "log.csv",
    "summary.json",
    "protocol.toml",
    "overview.png",
    "progress.png",
    "residues.png",
)
# Beyond these a fit is reported as doubtful. Models that fit have a CC well above the limit at any resolution.
LARGEST_PART_OUTSIDE = 0.1
LOW_CORRELATION = 0.4
# Å by which the atoms of a ligand's conjugated system went farther from their plane, in the mean of squares. Haems of deposited
# models differ by as much.
BENT = 0.15
# Å by which a bond that springs hold, such as a metal's, became longer.
STRETCHED = 0.5
# Published resolutions may be a little beyond what the voxels hold.
NYQUIST_SLACK = 0.9
# Doubts that are told of stretches of residues; residues.png marks all.
MOST_STRETCHES = 5
UNITS = {
    **dict.fromkeys(("resolution", "fsc_resolution", "ca_rmsd", "moved_by"), "Å"),
    **dict.fromkeys(("planarity_rms", "planarity_worst", "rms", "worst", "bond_rmsd", "worst_bond"), "Å"),
    **dict.fromkeys(("voxel_size", "map_voxel_size", "sigma", "cutoff"), "Å"),
    **dict.fromkeys(("angle_rmsd", "worst_angle", "largest_omega_change"), "°"),
    **dict.fromkeys(("chi_before", "chi_after"), "°"),
    "frequency": "1/Å",
    "strength": "kJ/mol per fitted atom",
    "clashscore": "clashes per 1000 non-hydrogen atoms",
    "gain": "kJ/mol",
    "wall_seconds": "s",
    "ms_per_step": "ms",
    "density_ms_per_step": "ms",
}
"""Of the numbers in summary.json by their names, wherever they stand, without the endings _initial, _relaxed, _final and
_reference. What is not here has none."""

_PACKAGES = ("openmm-density", "torch", "triton", "openmm", "openmmtorch", "mdtraj", "gemmi", "numpy")


class OutputFolder:
    """The folder of one fit, kept for it until `discard`; files get their names only when they are complete.

    Parameters
    ----------
    path : path
        The folder; it is made where it does not exist.
    overwrite : bool
        Whether an earlier fit in it may be replaced.
    resume : bool
        Whether an unfinished fit in it is to be continued.

    Attributes
    ----------
    path : Path
    run : RunFolder
        Where the fit keeps its states while it runs.

    Raises
    ------
    InputError
        If it holds an earlier fit, or none to continue, or cannot be written to, or a fit is running in it.
    """

    def __init__(self, path: str | Path, overwrite: bool = False, resume: bool = False) -> None:
        self.path = Path(path)
        unfinished = self.path / UNFINISHED
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: give a folder for the results.")
        if resume and not unfinished.is_dir():
            raise InputError(
                f"{self.path} holds no unfinished fit (one that is complete cannot go on): "
                "give the folder of one that was interrupted."
            )
        self._made, self._resumed = not self.path.exists(), resume
        try:
            self._lock = FolderLock(self.path)
        except InputError:
            self._unmake()
            raise
        try:
            if not (resume or overwrite):
                self._check_unused()
            self.run = RunFolder(unfinished)
            if not resume:
                self.run.remove()
                self.run = RunFolder(unfinished)
        except InputError:
            self._leave()
            raise

    def _check_unused(self) -> None:
        if (self.path / UNFINISHED).exists():
            raise InputError(
                f"{self.path} holds an unfinished fit: go on with it by --resume {self.path}, choose another folder, or pass "
                "--overwrite."
            )
        present = [name for name in FILES if (self.path / name).exists()]
        if present:
            raise InputError(
                f"{self.path} already holds {present[0]} of an earlier fit: choose another folder, or pass --overwrite."
            )

    def _leave(self) -> None:
        self._lock.release()
        self._unmake()

    def _unmake(self) -> None:
        if self._made:
            with suppress(OSError):  # it holds something
                self.path.rmdir()

    def discard(self) -> None:
        """Let others have the folder; remove what a fit has begun that never came to a state from which it could go on."""
        if not (self._resumed or self.run.holds_a_state):
            self.run.remove()
        self._leave()

    def write(
        self,
        fit: FlexibleFit,
        result: FitResult,
        model_path: str,
        map_path: str,
        scan: StrengthScan | None = None,
    ) -> dict[str, Any]:
        """Write everything; give the summary. What served to go on is removed where the fit has come to its end.

        Parameters
        ----------
        fit : FlexibleFit
        result : FitResult
        model_path, map_path : str
            As the user gave them, for the summary.
        scan : StrengthScan, optional
            What half maps said about the strength.
        """
        prepared = result.prepared
        notes = [
            *_placement_note(fit),
            *prepared.report.sentences,
            *fit.notes,
            *(fit.planarity.notes if fit.planarity else ()),
            *(note for restraint in fit.restraints for note in restraint.notes),
            *result.blow_ups,
            _validation_note(scan),
        ]
        write_cif(self.path / "fitted.cif", prepared.topology, result.final, prepared.b_factors)
        in_input = prepared.input_positions(result.final)
        limit = pdb_limit(prepared.model, in_input)
        if limit is None:
            write_pdb(self.path / "fitted.pdb", prepared.model, in_input)
        else:
            (self.path / "fitted.pdb").unlink(missing_ok=True)
            notes.append(f"fitted.pdb was left out: {limit}")
        fit.protocol.write(self.path / "protocol.toml")
        if self.run.trajectory.exists():
            with written_whole(self.path / "trajectory.dcd") as temporary:
                # Until all is written the fit may yet have to go on, with a trajectory of its own.
                shutil.copyfile(self.run.trajectory, temporary)
        write_text(self.path / "log.csv", _table(result.rows))

        reports = _map_reports(fit, result, in_input)
        residues = _residues(fit, result, reports)
        mark_rebuilt(residues, result.rebuilding)
        stretches = doubtful_stretches(residues)
        plot_residues(self.path / "residues.png", residues, stretches)
        plot_overview(
            self.path / "overview.png",
            fit.density_map,
            _view(result, "initial", residues),
            _view(result, "final", residues),
            [] if fit.reference is None else _traces(fit.reference.topology, fit.reference.positions),
        )
        # A blow-up halves the time step.
        timestep = None if result.blow_ups else fit.protocol.timestep
        plot_progress(self.path / "progress.png", result.rows, result.stages, timestep, result.cc_reference)

        summary = self._summary(fit, result, model_path, map_path, reports)
        summary["half_maps"] = None if scan is None else scan.as_dict()
        if scan is not None:
            summary["wall_seconds"] += scan.wall_seconds
        summary["notes"] = [
            *notes,
            *_strength_note(fit, result),
            *_unknown_notes(residues),
            *summary["geometry_final"]["notes"],
        ]
        summary["doubts"] = [
            *_doubts(fit, result),
            *_strength_doubt(scan),
            *_backbone_doubt(summary),
            *_turned_doubts(fit, result, summary),
            *_stretched_doubt(result),
            *_bent_doubts(summary),
            *_stretch_doubts(stretches),
        ]
        summary["worst_residues"] = _worst(residues)
        summary["residues"] = residues
        summary["units"] = UNITS
        write_text(self.path / "summary.json", _as_json(summary))
        if not result.interrupted:
            self.run.remove()
        return summary

    def _summary(
        self,
        fit: FlexibleFit,
        result: FitResult,
        model_path: str,
        map_path: str,
        reports: dict[str, dict[str, Any]],
    ) -> dict[str, Any]:
        topology = fit.solute.topology
        before, relaxed, after = (
            geometry_report(topology, positions[: topology.getNumAtoms()])
            for positions in (result.initial, result.relaxed, result.final)
        )
        change = compare_geometry(before, after)
        prepared = result.prepared
        flat = [
            planarity_report(prepared.model.topology, fit.planes, prepared.input_positions(positions))
            for positions in (result.initial, result.final)
        ]
        density = fit.density
        reference = fit.reference
        flat_reference = ligands_reference = None
        if reference is not None:
            planes = find_planes(reference.topology, reference.positions, dictionaries=fit.dictionaries)
            flat_reference = planarity_report(reference.topology, planes, reference.positions)
            ligands_reference = _flat_ligands(reference.topology, planes, reference.positions)
        return {
            "model": model_path,
            "map": map_path,
            "reference": None if fit.reference is None else str(fit.reference.path),
            "resolution": density.resolution,
            "n_atoms": topology.getNumAtoms(),
            "n_fitted_atoms": density.n_fitted_atoms,
            "similarity": density.similarity_measure,
            "strength": result.strength,
            "cc_initial": result.cc_initial,
            "cc_final": result.cc_final,
            "cc_reference": result.cc_reference,
            "similarity_initial": result.similarity_initial,
            "similarity_final": result.similarity_final,
            "ca_rmsd_initial": result.ca_rmsd_initial,
            "ca_rmsd_final": result.ca_rmsd_final,
            **_agreement(reports),
            "voxel_size": [float(size) for size in density.target.voxel_size],
            "map_voxel_size": [float(size) for size in fit.density_map.voxel_size],
            "resampled": density.resampled,
            "cropped": density.cropped,
            "sigma": density.sigma,
            "cutoff": density.cutoff,
            "placement": None if fit.placement is None else fit.placement.as_dict(),
            "protocol": fit.protocol.name,
            "stages": result.stages,
            "rebuilding": result.rebuilding,
            "interrupted": result.interrupted,
            "blow_ups": len(result.blow_ups),
            "forcefield": fit.forcefield,
            "solvent": result.prepared.solvent,
            "density_interval": fit.protocol.density_interval,
            "steps": result.steps,
            "seed": fit.seed,
            "wall_seconds": result.wall_seconds,
            "ms_per_step": result.ms_per_step,
            "density_ms_per_step": result.density_ms_per_step,
            "platform": fit.platform,
            "force_backend": result.force_backend,
            "planarity": fit.planarity is not None,
            "n_planes": flat[0].n_planes,
            "planarity_rms_initial": flat[0].rms,
            "planarity_rms_final": flat[1].rms,
            "planarity_worst_initial": flat[0].worst,
            "planarity_worst_final": flat[1].worst,
            "planarity_rms_reference": None if flat_reference is None else flat_reference.rms,
            "planarity_worst_reference": None if flat_reference is None else flat_reference.worst,
            "planarity_final": [asdict(row) for row in flat[1].rows],
            **{
                f"flat_ligands_{stage}": _flat_ligands(
                    prepared.model.topology, fit.planes, prepared.input_positions(positions)
                )
                for stage, positions in (("initial", result.initial), ("final", result.final))
            },
            "flat_ligands_reference": ligands_reference,
            "restraints_violated": {
                name: [str(violation) for violation in violations]
                for name, violations in _violations(fit, result).items()
            },
            "geometry_initial": before.as_dict(),
            "geometry_relaxed": relaxed.as_dict(),
            "geometry_final": after.as_dict(),
            "geometry_reference": None
            if reference is None
            else geometry_report(reference.topology, reference.positions).as_dict(),
            **change.as_dict(),
            "rigid_residues": list(result.prepared.report.rigid_residues),
            "versions": versions(),
        }


def _validation_note(scan: StrengthScan | None) -> str:
    if scan is None:
        return "No half maps were given: whether the strength fits noise was not tested."
    free = ", ".join(f"{cc:.3f} at {strength:g}" for strength, cc in zip(scan.strengths, scan.free))
    rising = " (the strongest that was tried)" if scan.chosen == scan.strengths[-1] else ""
    return (
        f"Fitted into one half map, the model correlates with the other by {free} kJ/mol per atom, after {scan.steps_each} steps "
        f"at each: {scan.chosen:g} was taken{rising}."
    )


def _strength_doubt(scan: StrengthScan | None) -> list[str]:
    """Say so where half maps found no strength that is too much."""
    if scan is None or not scan.still_rises:
        return []
    return [
        f"the correlation with the half map that was not fitted into rose up to the strongest pull, {scan.chosen:g} kJ/mol per "
        "atom, so the half maps set no limit: if the model came from afar, fit again from fitted.pdb; if its geometry is worse "
        "after than relaxed, choose a lower strength."
    ]


def _violations(fit: FlexibleFit, result: FitResult) -> dict[str, list[Violation]]:
    """List what ended violated, by the name of the restraint; what a protocol let go on its way was meant to change."""
    held = [each for each in fit.restraints if each.name in fit.protocol.stages[-1].restraints]
    return find_violations(held, result.final)


def _placement_note(fit: FlexibleFit) -> list[str]:
    if fit.placement is None:
        return []
    return [
        f"The model was placed in the map as a rigid body, {fit.placement.moved_by:.1f} Å from where it was (similarity "
        f"{fit.placement.similarity_before:.3f} before, {fit.placement.similarity_after:.3f} there)."
    ]


def _doubts(fit: FlexibleFit, result: FitResult) -> list[str]:
    """Give a sentence for each sign that the fit is not to be believed."""
    doubts = []
    finest = 2 * float(fit.density_map.voxel_size.max())
    if fit.density.resolution < NYQUIST_SLACK * finest:
        doubts.append(
            f"a resolution of {fit.density.resolution:g} Å was given, but voxels of {finest / 2:.2f} Å hold no detail finer than "
            f"{finest:.1f} Å: check it."
        )
    values = fit.density_map.value_at(result.final[fit.density.atoms])
    outside = float(np.isnan(values).mean())
    if outside > LARGEST_PART_OUTSIDE:
        doubts.append(
            f"{outside:.0%} of the fitted atoms are outside the map: is the model where its density is?"
        )
    if result.cc_final <= result.cc_initial:
        doubts.append(
            f"the correlation did not rise ({result.cc_initial:.3f} to {result.cc_final:.3f}): run more steps, or keep the model "
            "as it was."
        )
    if result.cc_final < LOW_CORRELATION:
        doubts.append(
            f"the final correlation is low ({result.cc_final:.2f}): look at overview.png, and check resolution and placement."
        )
    return doubts


def _backbone_doubt(summary: dict[str, Any]) -> list[str]:
    """Name the residues whose backbone torsions the fit made unusual."""
    before, after = (summary[f"geometry_{stage}"]["ramachandran_outliers"] for stage in ("initial", "final"))
    spoilt = [residue for residue in after or () if residue not in before]
    if not spoilt:
        return []
    return [f"the fit made Ramachandran outliers of {listing(spoilt, 10)}: look at the model there."]


def _turned_doubts(fit: FlexibleFit, result: FitResult, summary: dict[str, Any]) -> list[str]:
    """Name the chiral centres and peptide bonds that are not as they were: those that ended violated, or changed over unheld."""
    violations = _violations(fit, result)
    doubts = []
    for name, changed, what in (
        ("chirality", "inverted_centres", "chiral centres ended flat or inverted"),
        ("cis", "peptide_flips", "peptide bonds ended twisted or flipped"),
    ):
        turned = summary[changed]
        if name in violations:
            turned = [
                f"{' - '.join(each.residues)} ({each.quantity} {each.value:.1f}°, held at {each.target:.1f}°)"
                for each in violations[name]
            ]
        if turned:
            doubts.append(f"{what}: {listing(turned, 10)}: look at the model there.")
    return doubts


def _stretched_doubt(result: FitResult) -> list[str]:
    """Name the bonds of metals and ligands that the fit pulled apart."""
    atoms = list(result.prepared.topology.atoms())
    stretched = []
    for pair in result.prepared.links:
        before, after = (
            float(np.linalg.norm(np.subtract(*positions[list(pair)])))
            for positions in (result.initial, result.final)
        )
        if after - before > STRETCHED:
            ends = " - ".join(f"{residue_label(atoms[i].residue)} {atoms[i].name}" for i in pair)
            stretched.append(f"{ends} ({before:.1f} to {after:.1f} Å)")
    if not stretched:
        return []
    return [
        f"the fit stretched bonds of metals or ligands: {listing(stretched, 10)}: look at the model there."
    ]


def _bent_doubts(summary: dict[str, Any]) -> list[str]:
    """Name the ligands that the fit bent."""
    pairs = zip(summary["flat_ligands_initial"], summary["flat_ligands_final"])
    bent = [
        f"{after['residue']} ({before['rms']:.2f} to {after['rms']:.2f} Å)"
        for before, after in sorted(pairs, key=lambda pair: pair[0]["residue"])
        if after["rms"] - before["rms"] > BENT
    ]
    return [f"the fit bent what is flat in {listing(bent, 10)}: look at the model there."] if bent else []


def _strength_note(fit: FlexibleFit, result: FitResult) -> list[str]:
    """Say so where the automatic strength is at a bound."""
    low, high = STRENGTH_BOUNDS
    if fit.protocol.strength != "auto" or low < result.strength < high or not result.strength:
        return []
    return [
        f"The automatic strength is at its limit of {result.strength:g} kJ/mol per fitted atom; the ratio of forces asked for "
        f"{'more' if result.strength >= high else 'less'}."
    ]


def _unknown_notes(residues: Sequence[dict[str, Any]]) -> list[str]:
    """Name the residues whose correlation is not known, before and after."""
    notes = []
    for stage, when in (("initial", "before"), ("final", "after")):
        unknown = [row["residue"] for row in residues if row[f"correlation_{stage}"] is None]
        if unknown:
            notes.append(
                f"No correlation {when} the fit (null in summary.json) where the map is flat, as it is beyond a mask, or ends: "
                f"{listing(unknown, 10)}."
            )
    return notes


def versions() -> dict[str, str | None]:
    """Give the versions of what takes part; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _traces(topology: app.Topology, positions: np.ndarray) -> list[np.ndarray]:
    """Give the Cα (or P) atoms of each chain, in Å."""
    traces = []
    for chain in topology.chains():
        trace = [atom.index for atom in chain.atoms() if atom.name in ("CA", "P")]
        if len(trace) > 1:
            traces.append(positions[trace])
    return traces


def _table(rows: Iterable[Row]) -> str:
    rows = [asdict(row) for row in rows]
    for name in [name for name in ("ca_rmsd", "cc_free") if rows[-1][name] is None]:
        for row in rows:
            del row[name]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        )
    return buffer.getvalue()


def _map_reports(fit: FlexibleFit, result: FitResult, final: np.ndarray) -> dict[str, dict[str, Any]]:
    """Assess how the atoms that were given fit the map before and after, and how the reference does."""
    model = result.prepared.model
    models = {"initial": (model.topology, model.positions), "final": (model.topology, final)}
    if fit.reference is not None:
        models["reference"] = (fit.reference.topology, fit.reference.positions)
    return {
        stage: map_report(topology, positions, fit.density_map, fit.density.resolution)
        for stage, (topology, positions) in models.items()
    }


def _agreement(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
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


def _view(result: FitResult, stage: str, residues: list[dict[str, Any]]) -> View:
    """Give the model of a stage as the overview shows it, with its poorest residues."""
    positions = result.initial if stage == "initial" else result.final
    cc, rmsd = (getattr(result, f"{name}_{stage}") for name in ("cc", "ca_rmsd"))
    title = f"{'before' if stage == 'initial' else 'after'}: CC {cc:.3f}"
    if rmsd is not None:
        title += f", Cα RMSD {rmsd:.2f} Å"
    in_input = result.prepared.input_positions(positions)
    members = [_standing_for(residue) for residue in result.prepared.model.topology.residues()]
    name = f"correlation_{stage}"
    known = sorted(
        (row[name], i) for i, row in enumerate(residues) if row[name] is not None and row["kind"] != "water"
    )
    poorest = [(residues[i], in_input[members[i]].mean(axis=0)) for _, i in known[:_MARKS]]
    marks = [
        (f"{row['chain']} {row['number']}{row['insertion_code']}".strip(), place) for row, place in poorest
    ]
    return View(title, _traces(result.prepared.topology, positions), marks)


def _standing_for(residue: app.topology.Residue) -> list[int]:
    """Give the atom of the trace, or all atoms of what has none."""
    trace = [atom.index for atom in residue.atoms() if atom.name in ("CA", "P")]
    return trace[:1] or [atom.index for atom in residue.atoms()]


# Of the poorest residues, those that are apart from one another are marked.
_MARKS = 40


def _flat_ligands(topology: app.Topology, planes: PlaneSet, positions: np.ndarray) -> list[dict[str, Any]]:
    return [ligand.as_dict() for ligand in flat_ligands(topology, planes, positions)]


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


def _stretch_doubts(stretches: Sequence[Stretch]) -> list[str]:
    told = [str(stretch) for stretch in stretches[:MOST_STRETCHES]]
    left = len(stretches) - len(told)
    if left:
        who = "1 more stretch of residues fits" if left == 1 else f"{left} more stretches of residues fit"
        told.append(f"{who} the map badly: see residues.png.")
    return told


def _worst(residues: Sequence[dict[str, Any]], count: int = 10) -> list[dict[str, Any]]:
    known = [row for row in residues if row["correlation_final"] is not None and row["kind"] != "water"]
    known.sort(key=lambda row: row["correlation_final"])
    return [{"residue": row["residue"], "correlation": row["correlation_final"]} for row in known[:count]]
