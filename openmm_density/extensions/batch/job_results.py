"""What became of a job, small enough to be sent through a scheduler; tables ``batch.csv`` and ``batch.json`` of all jobs."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from ...report.results import BATCH_TABLE, SUMMARY
from .jobs import Job


@dataclass(frozen=True)
class JobResult:
    """What became of a job.

    Attributes
    ----------
    job : Job
    state : str
        "finished" or "failed".
    figures : mapping
        Of the fit's summary, by the names of `FIGURES`.
    error : str, optional
        Why it failed, in a sentence.
    attempts : int
        Processes that were started for it now; 0 where an earlier run of the batch had finished it.
    seconds : float
        That these took.
    peak_memory : int, optional
        Bytes, of the largest of them.
    host : str
        Where.
    """

    job: Job
    state: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    attempts: int = 0
    seconds: float = 0.0
    peak_memory: int | None = None
    host: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether there is a fit."""
        return self.state == "finished"

    @property
    def folder(self) -> Path:
        """Of the fit's results."""
        return Path(self.job.folder)

    @property
    def summary(self) -> dict[str, Any]:
        """All of ``summary.json``, read now.

        Raises
        ------
        OSError
            Where it is not there, as of a job that failed.
        """
        return json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))


FIGURES: dict[str, tuple[str, ...]] = {
    "cc": ("cc_final",),
    "cc_before": ("cc_initial",),
    "cc_assembly": ("assembly", "cc_final"),
    "r_work": ("crystal", "r_work"),
    "r_free": ("crystal", "r_free"),
    "r_free_before": ("crystal", "r_free_initial"),
    "q_score": ("q_score_final",),
    "ca_rmsd": ("ca_rmsd_final",),
    "fsc_resolution": ("fsc_resolution_final",),
    "ramachandran_outliers": ("geometry_final", "ramachandran_outlier_count"),
    "rotamer_outliers": ("geometry_final", "rotamer_outlier_count"),
    "clashes": ("geometry_final", "clash_count"),
    "kept": ("kept",),
    "wall_seconds": ("wall_seconds",),
}
"""The columns of a batch's tables that come from a fit's summary, and where they are in it."""


def summary_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary by the names of `FIGURES`, and the number of its doubts; None for what it lacks."""
    found: dict[str, Any] = {}
    for name, path in FIGURES.items():
        value: Any = summary
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        found[name] = value
    return found | {"doubts": len(summary.get("doubts") or ())}


CSV, JSON = "batch.csv", BATCH_TABLE
COLUMNS = (
    *("name", "state", "model", "map", "resolution", "seed"),
    *FIGURES,
    *("cc_free", "doubts", "attempts", "seconds", "peak_memory", "host", "folder", "error"),
)


def rows_of(
    jobs: Sequence[Job], results: Mapping[str, JobResult], folder: Path, free: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return a row for each job, in their order, with the values of `COLUMNS`."""
    rows = []
    for job in jobs:
        result = results.get(job.name)
        row = dict.fromkeys(COLUMNS) | {
            **{name: getattr(job, name) for name in ("name", "model", "map", "resolution", "seed")},
            "state": "unfinished",
            "folder": os.path.relpath(job.folder, folder),
            "cc_free": free.get(job.name),
        }
        if result is not None:
            own = ("state", "attempts", "seconds", "peak_memory", "host", "error")
            row |= {name: getattr(result, name) for name in own} | dict(result.figures)
        rows.append(row)
    return rows


def write_tables(folder: Path, rows: Sequence[Mapping[str, Any]], more: Mapping[str, Any]) -> None:
    """Write the rows as CSV, and with more as JSON."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CSV, buffer.getvalue())
    write_text(folder / JSON, json.dumps({**more, "jobs": list(rows)}, indent=2) + "\n")
