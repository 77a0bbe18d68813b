"""What the fit of a crystal leaves in its folder: the files of its best cycle, R factors, and an MTZ with maps."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..atomic_files import atomic_write, write_text
from ..crystals import Reflections, phased_file
from ..fitting.output.notes import NO_HALF_MAPS
from ..fitting.output.results import AFTER_FILES, CIF_FILES, CRYSTAL_SETTINGS, FILES, REPORT, SUMMARY
from ..fitting.output.summary import write_summary
from ..wording import one_line
from .cycles import RECORD, Cycle, cycle_folder, kept_model_of, model_of
from .result import CrystalResult, best_cycle, crystal_doubts, crystal_summary, handedness_doubts
from .settings import PROTOCOL

MTZ, TABLE = "crystal.mtz", "cycles.csv"
CRYSTAL_FILES = (CRYSTAL_SETTINGS, PROTOCOL, MTZ, TABLE)


def write_crystal(
    folder: Path,
    cycles: Sequence[Cycle],
    reflections: Reflections,
    command: str | None = None,
    failed: Sequence[str] = (),
) -> CrystalResult:
    """Write the results of a fit: the files of the best cycle, of which summary and report tell of all cycles.

    Parameters
    ----------
    folder : Path
        With the folders of the cycles.
    cycles : sequence of Cycle
        The start, then each cycle.
    reflections : Reflections
    command : str, optional
        What a user types to repeat the fit.
    failed : sequence of str
        A sentence on a cycle that came to no end.
    """
    chosen = best_cycle(cycles)
    best = cycle_folder(folder, max(chosen.number, 1))
    summary = json.loads((best / SUMMARY).read_text(encoding="utf-8"))
    if chosen.number == 0 and summary["kept"] != "before":
        # The first cycle was fitted by a version that never kept the start.
        chosen = best_cycle(cycles[1:])
        best = cycle_folder(folder, chosen.number)
        summary = json.loads((best / SUMMARY).read_text(encoding="utf-8"))
    for path in best.iterdir():
        if path.is_file() and not path.name.startswith(".") and path.name not in (SUMMARY, REPORT, RECORD):
            with atomic_write(folder / path.name) as temporary:
                shutil.copyfile(path, temporary)
    is_fitted = chosen.number > 0
    phased = phased_file(model_of(best) if is_fitted else kept_model_of(best), reflections)
    phased.write_mtz(folder / MTZ)
    write_text(folder / TABLE, _table(cycles))
    section = crystal_summary(cycles, chosen, phased)
    summary |= {"command": command, "crystal": section}
    summary["notes"] = [note for note in summary["notes"] if note != NO_HALF_MAPS] + section["notes"]
    _tell_of_all_cycles(summary, [*failed, *crystal_doubts(cycles, chosen), *handedness_doubts(summary)])
    _write_report(folder, summary)
    write_summary(folder / SUMMARY, summary)
    return CrystalResult(folder, cycles, phased, summary)


def _tell_of_all_cycles(summary: dict[str, Any], doubts: Sequence[str]) -> None:
    """Put doubts about the fit first, in place of the one that compares the last cycle with the model that it began with."""
    of_cycle = {each["sentence"] for each in summary["located_doubts"] if each["kind"] == "not_improved"}
    summary["located_doubts"] = [each for each in summary["located_doubts"] if each["kind"] != "not_improved"]
    summary["doubts"] = [*doubts, *(each for each in summary["doubts"] if each not in of_cycle)]


def remove_crystal(folder: Path) -> None:
    """Remove an earlier fit of a crystal, and nothing else that may be in its folder."""
    for name in (*CRYSTAL_FILES, *FILES, *CIF_FILES, *AFTER_FILES):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("cycle_[0-9][0-9]"):
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


def _write_report(folder: Path, summary: dict[str, Any]) -> None:
    """Write the page; where that fails, the other results stay, and a note of the summary says why."""
    write_summary(folder / SUMMARY, summary)
    try:
        # What it takes is loaded at the end.
        from ..fitting.output.report import fit_page, read_contents
        from ..html_report.page import write_page

        write_page(folder / REPORT, fit_page(read_contents(folder)))
    except Exception as error:
        (folder / REPORT).unlink(missing_ok=True)
        summary["notes"].append(f"{REPORT} was not written ({one_line(error)}); all other results are there.")
