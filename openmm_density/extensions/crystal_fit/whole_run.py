"""What the summary of a whole fit says: the model that was given beside the result, both in the map of the result's phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.stopwatch import in_order
from ...energies.density_fit import DensityFit
from ...fitting.agreement import OVERALL, overall_measures, pairs_with, poorest, residues_beside
from ...fitting.doubt import KINDS, Doubt, located_doubts
from ...maps.density_map import DensityMap
from ...models.chemistry.planes import find_planes
from ...models.model import Model
from ...models.symmetry_operators import SymmetryOperators
from ...report.doubts import doubts_of_figures
from ...report.local_geometry import worse_of_models
from ...report.summary import MOST_WORST
from ...validation.correlation import MapCorrelation
from ...validation.density_level import density_level
from ...validation.geometry import compare_geometry, geometry_report
from ...validation.mates import clashes_with_mates, worse_mate_contacts
from ...validation.model_report import map_report
from ...validation.stretches import doubtful_stretches
from .cycles import Cycle
from .protocol import fitted_selection

_OF_START = (
    *("geometry_initial", "geometry_relaxed", "start_strain", "flat_ligands_initial", "ca_rmsd_initial"),
    *("planarity_rms_initial", "planarity_worst_initial", "mate_contacts_initial", "mate_contacts_relaxed"),
)
"""What a summary says of the model that a fit begins with, whatever its map: the first cycle's of the one that was given."""
_COMPARED = (
    *(
        "correlation",
        "ramachandran",
        "puckers",
        "suites",
        "base_pairs",
        "pyranoses",
        "chirality",
        "mates",
        "contacts",
        "metal",
        "molecules",
        "stretched",
        "angles",
        "worse",
        "bent",
    ),
    "stretch",
)
"""Kinds of doubts that compare with the start, or depend on the map."""


@dataclass(frozen=True)
class ModelsInMap:
    """The models of a fit in the map that the phases of its result make of the data."""

    before: Model  # `before`, `after` with the same atoms; after is the result.
    after: Model
    density_map: DensityMap  # Of the whole cell
    resolution: float  # Å
    operators: SymmetryOperators  # Of the copies in the crystal
    reference: Model | None
    simulated: Model | None  # What the first cycle made of a start that was kept
    options: Mapping[str, Any]  # Those of the fit, among them the density's

    def report(self, model: Model) -> dict[str, Any]:
        """Return how well a model agrees with the map: overall measures and ``residues``."""
        return map_report(model.topology, model.positions, self.density_map, self.resolution)

    def correlation(self, model: Model) -> float:
        """Return the CC (mask) of a model."""
        found = MapCorrelation(self.density_map, model.topology, self.resolution)
        return float(found.cc_mask(model.positions))

    def similarity(self, model: Model) -> float:
        """Return the measure that the energy uses, with the copies of the model."""
        known = signature(DensityFit).parameters
        options = {name: value for name, value in self.options.items() if name in known}
        options |= fitted_selection(options)
        density = DensityFit(
            self.density_map,
            model.topology,
            self.resolution,
            positions=model.positions,
            operators=self.operators,
            **options,
        )
        return density.similarity(model.positions)

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """The reports of the models before and after, and of the reference where there is one."""
        found = {"initial": self.report(self.before), "final": self.report(self.after)}
        return found if self.reference is None else found | {"reference": self.report(self.reference)}


def tell_of_whole_run(
    summary: dict[str, Any], first: Mapping[str, Any], number: int, shown: ModelsInMap
) -> None:
    """Make the summary of the best cycle's fit one of the whole run, from the model that was given."""
    summary |= {name: first[name] for name in _OF_START}
    summary |= _of_map(shown) | overall_measures(shown.reports) | _changes(shown)
    residues = _residues(summary["residues"], first["residues"], shown)
    if shown.simulated is not None:
        summary["simulated"] = summary["simulated"] | _of_simulated(shown)
    summary["worst_residues"] = [
        {"residue": row["residue"], "correlation": row["correlation_final"]}
        for _, row in poorest(residues, "final")[:MOST_WORST]
    ]
    summary["residues"] = residues
    _doubts(summary, doubts_of_figures(summary, doubtful_stretches(residues), residues), shown.after)
    # What later cycles begin with lacks it already.
    summary["left_out"] = list(dict.fromkeys([*first["left_out"], *summary["left_out"]]))
    summary["notes"] = _notes(summary, first, number)


def _notes(summary: Mapping[str, Any], first: Mapping[str, Any], number: int) -> list[str]:
    """Return the notes of the first and of the best cycle, each with its cycle where it is of one alone."""
    known, own, left_out = first["notes"], summary["notes"], summary["left_out"]
    of_start = [note if note in left_out else f"Cycle 1: {note}" for note in known if note not in own]
    return of_start + [note if note in (*known, *left_out) else f"Cycle {number}: {note}" for note in own]


def times_of_run(
    summaries: Sequence[Mapping[str, Any]], cycles: Sequence[Cycle], others: Mapping[str, float]
) -> dict[str, Any]:
    """Return what ``summary.json`` says of the time of all cycles, and of what came before, between and after them."""
    parts = dict(others)
    for summary, cycle in zip(summaries, cycles[1:], strict=True):
        for part, spent in summary["seconds_by_part"].items():
            parts[part] = parts.get(part, 0.0) + spent
        phases = max(cycle.seconds - summary["wall_seconds"], 0.0)
        parts["phasing"] = parts.get("phasing", 0.0) + phases
    parts = {part: round(spent, 3) for part, spent in in_order(parts).items() if spent}
    within: dict[str, float] = {}
    for summary in summaries:
        for name, spent in summary["seconds_within"].items():
            within[name] = round(within.get(name, 0.0) + spent, 3)
    return {
        "wall_seconds": round(sum(parts.values()), 3),
        "seconds_by_part": parts,
        "seconds_within": within,
        "steps": sum(summary["steps"] for summary in summaries),
        "steps_planned": sum(summary["steps_planned"] for summary in summaries),
    }


def _of_map(shown: ModelsInMap) -> dict[str, Any]:
    """Return what the map is, and how the models agree with it as a whole."""
    density_map, after = shown.density_map, shown.after
    return {
        "cc_initial": shown.correlation(shown.before),
        "cc_final": shown.correlation(after),
        "cc_reference": None if shown.reference is None else shown.correlation(shown.reference),
        "similarity_initial": shown.similarity(shown.before),
        "similarity_final": shown.similarity(after),
        "map_voxel_size": [float(size) for size in density_map.voxel_size],
        "map_mean": float(density_map.data.mean(dtype=np.float64)),
        "map_sd": float(density_map.data.std(dtype=np.float64)),
        "contour_level": density_level(density_map, after.topology, after.positions, shown.resolution),
    }


def _changes(shown: ModelsInMap) -> dict[str, Any]:
    """Return what the run changed of the chemistry, and into which mates it drove atoms."""
    before, after = shown.before, shown.after
    planes = find_planes(
        before.topology, before.positions, dictionaries=shown.options.get("dictionaries", ())
    )
    reports = (geometry_report(model.topology, model.positions) for model in (before, after))
    contacts = [
        clashes_with_mates(before, model.positions, shown.operators) or [] for model in (before, after)
    ]
    worse = worse_mate_contacts(before, *contacts)
    return {
        **compare_geometry(*reports).as_dict(),
        "worse_geometry": [each.as_dict() for each in worse_of_models(before, after, planes)],
        "worse_mate_contacts": [asdict(contact) for contact in worse],
    }


def _residues(
    best: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]], shown: ModelsInMap
) -> list[dict[str, Any]]:
    """Return the residues of the best cycle's summary with their figures in the map, and their B factors at the start."""
    pairs = None if shown.reference is None else pairs_with(shown.before, shown.reference)
    rows = residues_beside(shown.before, shown.after.positions, shown.reference, shown.reports, pairs)
    if not len(rows) == len(best) == len(first):
        raise InputError(
            "the cycles of the fit have other residues than the model that was given",
            found=f"{len(best)} and {len(rows)}",
            remedy="start the fit again in another folder",
        )
    found = [{**told, **row} for told, row in zip(best, rows)]
    for row, start in zip(found, first):
        if "b_factor_initial" in row and "b_factor_initial" in start:
            row["b_factor_initial"] = start["b_factor_initial"]
    return found


def _of_simulated(shown: ModelsInMap) -> dict[str, Any]:
    report = shown.report(shown.simulated)
    return {
        "cc": shown.correlation(shown.simulated),
        "similarity": shown.similarity(shown.simulated),
        **{name: report[name] for name in OVERALL},
    }


def _doubts(summary: dict[str, Any], found: Sequence[Doubt], after: Model) -> None:
    """Put doubts in place of those that a cycle had of the same kinds, in the order of all kinds."""
    centres = np.array(
        [
            after.positions[[atom.index for atom in residue.atoms()]].mean(axis=0)
            for residue in after.topology.residues()
        ]
    )
    kept = [each for each in summary["located_doubts"] if each["kind"] not in _COMPARED]
    now = [doubt for doubt in found if doubt.kind in _COMPARED]
    order = list(KINDS)
    told = [*kept, *located_doubts(now, summary["residues"], centres)]
    summary["located_doubts"] = sorted(told, key=lambda each: order.index(each["kind"]))
    summary["doubts"] = [each["sentence"] for each in summary["located_doubts"]]
