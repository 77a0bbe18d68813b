"""The folder of one job: what is in it already, and whether that is a fit of this job."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ...base.atomic_files import write_text
from ...base.digests import digest_of
from ...base.errors import InputError, as_argument
from ...fitting.locks import FolderInUse, FolderLock
from ...report.results import (
    COMMAND,
    CRYSTAL_SETTINGS,
    CYCLES,
    FITTED,
    SUMMARY,
    UNFINISHED,
    finished_summary,
)
from .job_results import summary_figures
from .jobs import Job

Earlier: TypeAlias = Literal["none", "finished", "unfinished", "failed", "replaced"]
"""What a folder held of an earlier fit: none; one that is finished, or goes on; what one left that failed before its first step;
or one of other options or files, which is removed."""

JOB = "job.json"
LOG = "fit.log"


class JobFolder:
    """The folder of one job."""

    def __init__(self, job: Job) -> None:
        self.job, self.path = job, Path(job.folder)

    @property
    def is_finished(self) -> bool:
        """Whether a fit in it is complete."""
        return self.figures() is not None

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of a fit that is complete; None where there is none."""
        summary = finished_summary(self.path)
        return None if summary is None else summary_figures(summary)

    def arguments(self, more: tuple[str, ...] = ()) -> list[str]:
        """Return the arguments of ``fit`` that begin the fit, or go on with it."""
        unfinished = self.path / UNFINISHED
        if (unfinished / COMMAND).exists() or self._holds_cycles():
            allowed = ["--allow-scripts"] if "--allow-scripts" in self.job.arguments else []
            return ["--resume", str(self.path), *allowed]
        arguments = [*more, *self.job.words, "--output", str(self.path)]
        # It was killed before it had said what it was to do, or between two files of its results.
        is_used = self._holds_anything() or any(
            (self.path / name).exists() for name in (FITTED, CRYSTAL_SETTINGS)
        )
        return [*arguments, "--overwrite"] if is_used else arguments

    def _holds_anything(self) -> bool:
        return (self.path / UNFINISHED).exists() or (self.path / SUMMARY).exists() or self._holds_cycles()

    def _holds_cycles(self) -> bool:
        """Return whether a fit of a crystal has begun its first cycle."""
        if not (self.path / CRYSTAL_SETTINGS).exists():
            return False
        return any(
            (cycle / name).exists() for cycle in self.path.glob(CYCLES) for name in (UNFINISHED, SUMMARY)
        )

    def note_job(self) -> None:
        """Write down which job the folder is of, with digests of its files."""
        if (self.path / JOB).exists():
            return
        self.path.mkdir(parents=True, exist_ok=True)
        written = {"arguments": self.job.words, "sha256": {path: _digest(path) for path in self._files()}}
        write_text(self.path / JOB, json.dumps(written, indent=2) + "\n")

    def check(self, overwrite: bool = False) -> Earlier:
        """Return what became of this job's earlier fit, and refuse another job's; what failed before a step is removed."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError("it is a file", source=self.path, remedy="give a folder for the results")
        was_noted = (self.path / JOB).exists()
        try:
            self._check_is_of_job()
        except InputError:
            holds_a_fit = self._holds_anything()
            if holds_a_fit and not overwrite:
                raise
            self.clear()
            return "replaced" if holds_a_fit else "failed"
        if not self._holds_anything():
            return "failed" if was_noted else "none"
        return "finished" if self.is_finished else "unfinished"

    def _check_is_of_job(self) -> None:
        remedy = f"choose another folder, or pass {as_argument('overwrite', True)}"
        try:
            written = json.loads((self.path / JOB).read_text(encoding="utf-8"))
            arguments, digests = list(written["arguments"]), dict(written["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            if self._holds_anything():
                raise InputError(
                    "it holds an earlier fit that is not of this batch", source=self.path, remedy=remedy
                ) from None
            return
        if arguments != self.job.words:
            own, others = _by_option(self.job.words), _by_option(arguments)
            then, now = (
                " ".join(shlex.join(each) for each in these if each not in those) or "nothing"
                for these, those in ((others, own), (own, others))
            )
            raise InputError(
                f"it holds {'a finished' if self.is_finished else 'an unfinished'} fit with other options ({then}; now {now})",
                source=self.path,
                remedy=remedy,
            )
        for path in self._files():
            if digests.get(path) != _digest(path):
                raise InputError(
                    f"it has changed since the fit in {self.path} began", source=path, remedy=remedy
                )

    def clear(self) -> None:
        """Remove what says of which fit the folder is, and that it is finished or unfinished: the next one begins anew."""
        import shutil

        with FolderLock(self.path):
            for folder in (self.path / UNFINISHED, *self.path.glob(CYCLES)):
                shutil.rmtree(folder, ignore_errors=True)
            for name in (SUMMARY, JOB, LOG, CRYSTAL_SETTINGS):
                (self.path / name).unlink(missing_ok=True)

    @property
    def is_in_use(self) -> bool:
        """Whether a fit is running in it."""
        try:
            FolderLock(self.path).release()
        except FolderInUse:
            return True
        return False

    def _files(self) -> list[str]:
        return [self.job.model, self.job.map]


def _by_option(words: Sequence[str]) -> list[list[str]]:
    """Return the words of a command, each option with its values; first the files."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _digest(path: str) -> str:
    with suppress(OSError):
        status = os.stat(path)
        return _digest_of(path, status.st_mtime_ns, status.st_size)
    return digest_of(path)


@lru_cache(maxsize=1024)
def _digest_of(path: str, modified: int, size: int) -> str:
    """Return the digest of a file, read once for all jobs of one process as long as it does not change."""
    return digest_of(path)
