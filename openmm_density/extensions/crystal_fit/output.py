"""What the fit of a crystal leaves in its folder: the files of its best cycle, what is said of all, and an MTZ with maps."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...base.atomic_files import atomic_write, write_text
from ...base.stopwatch import Stopwatch
from ...base.wording import listing, one_line
from ...models.structures import read_model
from ...models.symmetry_operators import SymmetryOperators
from ...report.notes import NO_HALF_MAPS
from ...report.pictures import OVERVIEW, draw_models_in_map
from ...report.results import (
    AFTER_FILES,
    CIF_FILES,
    CRYSTAL_SETTINGS,
    CYCLES,
    FILES,
    REPORT,
    SUMMARY,
    TABLE_ONE,
)
from ...report.summary import write_summary
from ...report.viewers import write_viewer_scripts
from ...report.viewers.shown_files import BEFORE, write_shown_map
from ..crystals import Phased, Reflections, phased_file
from ..deposition import AS_IT_WAS, OF_OWN_PHASES, crystal_of_data, write_table_of_model
from .cycles import RECORD, Cycle, cycle_folder
from .inverted_centres import with_mended_centres
from .models import kept_model_of, model_of
from .result import (
    CrystalResult,
    best_cycle,
    crystal_doubts,
    crystal_summary,
    cycles_note,
    handedness_doubts,
    interruption_in_words,
)
from .settings import PROTOCOL, CrystalSettings
from .whole_run import ModelsInMap, tell_of_whole_run, times_of_run

MTZ, TABLE = "crystal.mtz", "cycles.csv"
CRYSTAL_FILES = (CRYSTAL_SETTINGS, PROTOCOL, MTZ, TABLE)


@dataclass(frozen=True)
class Course:
    """How a fit went, beside its cycles."""

    command: str | None = None  # What a user types to repeat the fit
    failed: Sequence[str] = ()  # A sentence on a cycle that did not finish
    # The cycle in which a signal ended the fit; None of a complete one
    interrupted: int | None = None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)  # Of what no cycle counts


def write_crystal(
    folder: Path,
    settings: CrystalSettings,
    cycles: Sequence[Cycle],
    reflections: Reflections,
    course: Course,
) -> CrystalResult:
    """Write the results of a fit: the files of the best cycle, with a summary, a report and a Table 1 of the whole fit."""
    # Whatever no part of it counts is writing.
    with course.stopwatch.part("writing"):
        return _written(folder, settings, cycles, reflections, course)


def _written(
    folder: Path,
    settings: CrystalSettings,
    cycles: Sequence[Cycle],
    reflections: Reflections,
    course: Course,
) -> CrystalResult:
    stopwatch = course.stopwatch
    summaries = [_summary_of(folder, cycle) for cycle in cycles[1:]]
    chosen = best_cycle(cycles)
    if chosen.number == 0 and summaries[0]["kept"] != "before":
        # The first cycle was fitted by a version that never kept the start.
        chosen = best_cycle(cycles[1:])
    best, first = cycle_folder(folder, max(chosen.number, 1)), cycle_folder(folder, 1)
    summary = dict(summaries[max(chosen.number, 1) - 1])
    # Where it is not drawn anew, it would show a cycle's own start in its own map.
    left_out = {SUMMARY, REPORT, RECORD, *([OVERVIEW] if chosen.number else [])}
    _copy_files(best, folder, lambda name: name not in left_out and not name.startswith(BEFORE))
    _copy_files(first, folder, lambda name: name.startswith(BEFORE))
    with stopwatch.part("phasing"):
        path = model_of(best) if chosen.number else kept_model_of(best)
        phased = phased_file(path, reflections)
        shown = _models(settings, path, first, phased)
    phased.write_mtz(folder / MTZ)
    write_text(folder / TABLE, _table(cycles))
    with stopwatch.part("scoring"):
        tell_of_whole_run(summary, summaries[0], max(chosen.number, 1), shown)
        section = crystal_summary(cycles, chosen, phased)
        mirrored = _tell_of_mirrored_start(section, settings, chosen)
        summary |= {"command": course.command, "model": settings.model, "crystal": section}
        summary["table1"] = _write_table(folder, settings, shown, phased)
    _tell_of_all_cycles(summary, cycles, chosen, course, mirrored)
    write_shown_map(folder, shown.density_map, [shown.before.positions, shown.after.positions])
    write_viewer_scripts(folder, summary)
    if course.interrupted is None and chosen.number:
        with stopwatch.part("pictures"):
            _draw(folder, summary, shown)
    _write_report(
        folder, summary, stopwatch, lambda: times_of_run(summaries, cycles, stopwatch.seconds_by_part)
    )
    return CrystalResult(folder, cycles, phased, summary)


def _summary_of(folder: Path, cycle: Cycle) -> dict[str, Any]:
    return json.loads((cycle_folder(folder, cycle.number) / SUMMARY).read_text(encoding="utf-8"))


def _copy_files(source: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    for path in source.iterdir():
        if path.is_file() and not path.name.startswith(".") and wanted(path.name):
            with atomic_write(folder / path.name) as temporary:
                shutil.copyfile(path, temporary)


def _models(settings: CrystalSettings, path: Path, first: Path, phased: Phased) -> ModelsInMap:
    """Return the models of a fit, in the map that is looked at, of the phases of its result."""
    reflections = phased.reflections
    is_kept = path == first / path.name and (first / path.name.replace("fitted", "after")).exists()
    return ModelsInMap(
        read_model(settings.model),
        read_model(path),
        phased.density_map(),
        reflections.resolution,
        SymmetryOperators.crystal(reflections.cell, reflections.space_group),
        settings.fit_arguments().get("reference"),
        read_model(model_of(first)) if is_kept else None,
        settings.fit_options,
    )


def _tell_of_mirrored_start(section: dict[str, Any], settings: CrystalSettings, chosen: Cycle) -> list[str]:
    """Return a doubt on a start that is the result, but was mirrored where it was inverted; its R factors are then its own."""
    if chosen.number:
        return []
    mended = with_mended_centres(read_model(settings.model))[1]
    if not mended:
        return []
    whole = section["data"]["whole"]
    section |= {"r_work": whole["r_work"], "r_free": whole["r_free"]}
    return [
        f"The start that is kept was mirrored at {listing(mended, 10)}: with that its R-work is {whole['r_work']:.4f} and its "
        f"R-free {whole['r_free']:.4f}; those of cycle 0 are of the file as it was given."
    ]


def _write_table(
    folder: Path, settings: CrystalSettings, shown: ModelsInMap, phased: Phased
) -> dict[str, Any]:
    """Write ``table1.md`` of the result and return its figures: as `score` writes it of the same model and data."""
    remarks = [OF_OWN_PHASES, *([] if shown.simulated is None else [AS_IT_WAS])]
    return write_table_of_model(
        folder / TABLE_ONE,
        shown.after,
        shown.after.positions,
        shown.density_map,
        shown.resolution,
        (settings.model, settings.data),
        {},
        crystal_of_data(phased),
        remarks,
    )


def _draw(folder: Path, summary: Mapping[str, Any], shown: ModelsInMap) -> None:
    titles = {stage: f"{name}: CC {summary[f'cc_{stage}']:.3f}" for stage, name in _STAGES.items()}
    models = {
        "initial": (titles["initial"], shown.before),
        "final": (titles["final"], shown.after),
    }
    draw_models_in_map(folder, shown.density_map, models, shown.reference, summary["residues"])


_STAGES = {"initial": "before", "final": "after"}


def _tell_of_all_cycles(
    summary: dict[str, Any],
    cycles: Sequence[Cycle],
    chosen: Cycle,
    course: Course,
    mirrored: Sequence[str],
) -> None:
    """Put doubts about the fit first, in place of the one that compares the last cycle with the model that it began with."""
    of_cycle = {each["sentence"] for each in summary["located_doubts"] if each["kind"] == "not_improved"}
    summary["located_doubts"] = [each for each in summary["located_doubts"] if each["kind"] != "not_improved"]
    interrupted = []
    if course.interrupted is not None:
        summary["interrupted"] = True
        interrupted = [interruption_in_words(course.interrupted, chosen)]
    doubts = [*course.failed, *mirrored, *crystal_doubts(cycles, chosen), *handedness_doubts(summary)]
    others = [each for each in summary["doubts"] if each not in of_cycle]
    summary["doubts"] = [*interrupted, *doubts, *others]
    notes = [note for note in summary["notes"] if not note.endswith(NO_HALF_MAPS)]
    told = max(chosen.number, 1)
    if len(cycles) > 2:
        notes.append(
            f"log.csv, trajectory.dcd and the stages are those of cycle {told}; each folder cycle_… has its own."
        )
    if course.interrupted is None and not course.failed:
        notes += cycles_note(cycles, chosen)
    summary["notes"] = notes + summary["crystal"]["notes"]


def remove_crystal(folder: Path) -> None:
    """Remove an earlier fit of a crystal, and nothing else that may be in its folder."""
    for name in (*CRYSTAL_FILES, *FILES, *CIF_FILES, *AFTER_FILES):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(CYCLES):
        if path.is_dir():
            shutil.rmtree(path)


def _table(cycles: Sequence[Cycle]) -> str:
    text = io.StringIO()
    rows = [asdict(cycle) for cycle in cycles]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        )
    return text.getvalue()


def _write_report(
    folder: Path, summary: dict[str, Any], stopwatch: Stopwatch, times: Callable[[], Mapping[str, Any]]
) -> None:
    """Write summary and page; where the page fails, the other results stay, and a note of the summary says why."""
    summary |= times()
    write_summary(folder / SUMMARY, summary)
    try:
        # What it takes is loaded at the end.
        with stopwatch.part("report"):
            from ...report.fit_page import fit_page, read_contents
            from ...report.page import write_page

            write_page(folder / REPORT, fit_page(read_contents(folder)))
    except Exception as error:
        (folder / REPORT).unlink(missing_ok=True)
        summary["notes"].append(f"{REPORT} was not written ({one_line(error)}); all other results are there.")
    # Once more: it tells all the time but its own.
    summary |= times()
    write_summary(folder / SUMMARY, summary)
