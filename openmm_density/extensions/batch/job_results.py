"""What became of a job, small enough to be sent through a scheduler: the rest is in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...fitting.output.results import SUMMARY
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


def figures_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary by the names of `FIGURES`, and the number of its doubts; None for what it lacks."""
    found: dict[str, Any] = {}
    for name, path in FIGURES.items():
        value: Any = summary
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        found[name] = value
    return found | {"doubts": len(summary.get("doubts") or ())}
