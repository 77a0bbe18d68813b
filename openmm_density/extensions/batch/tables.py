"""The tables of a batch: ``batch.csv`` and ``batch.json``, a row for each job."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from ...fitting.output.results import BATCH_TABLE
from .job_results import FIGURES, JobResult
from .jobs import Job

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
