"""The fit of a batch, in a process of its own: ``fit`` as users run it, except that it tells the batch how far it is."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO

from ..base.program_process import end_with
from ..base.progress import Clock, Display
from ..base.stopwatch import PARTS
from . import fit, sentence_of
from . import main as command

if TYPE_CHECKING:
    from ..fitting.fit_result import Row

# Seconds between two reports that tell of steps alone.
_INTERVAL = 0.5


def main() -> None:
    """Run the program: its arguments are its parent, the file descriptor for reports, and those of ``fit``."""
    parent, descriptor, *arguments = sys.argv[1:]
    end_with(int(parent))
    sys.argv = ["openmm-density", "fit", *arguments]
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as file:
        sys.exit(command(commands={"fit": partial(_run, file)}))


def _run(file: TextIO, options: argparse.Namespace) -> int:
    """Run the fit, and tell what ends it: the log may be on a disk that is full."""
    try:
        return fit.run(options, ReportingDisplay(file))
    except Exception as error:
        with suppress(OSError, ValueError):
            print(json.dumps({"error": sentence_of(error, options)}), file=file, flush=True)
        raise


class ReportingDisplay(Display):
    """Progress as lines of JSON, for another process."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file, self._clock = file, Clock()
        self._told, self._said = 0.0, ""
        self._correlation: float | None = None

    def begin(self, part: str) -> None:
        """Tell which part of a `Stopwatch` begins, unless stages are told, which say more."""
        if not self._is_stepping:
            self._tell(PARTS.get(part, part), {})

    def expect(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        """Set the stages to come; without any, parts are told again."""
        self._is_stepping = bool(stages)
        self._clock = Clock(stages)

    def update(self, step: int, total: int, stage: str, row: Row | None) -> None:
        """Tell the step and what is being done, and the figures of a row where there is one."""
        self._clock.update(step, total, stage)
        if row is not None:
            self._correlation = row.cc
        self._tell(stage, {"step": step, "total": total, "left": str(self._clock)})

    def print(self, text: str) -> None:
        """Print a line into the log of the job."""
        print(text, flush=True)

    def milestone(self, text: str) -> None:
        """Print a line into the log of the job."""
        self.print(text)

    def interrupted(self, doing: str = "minimising, writing results") -> None:
        """Print that a signal was received."""
        self.print(f"Interrupted: {doing}")

    def ended(self, said: str) -> None:
        """Print what becomes of a fit that is ended now."""
        print(said, file=sys.stderr, flush=True)

    def _tell(self, doing: str, figures: dict[str, object]) -> None:
        now = time.monotonic()
        if doing == self._said and now - self._told < _INTERVAL:
            return
        self._told, self._said = now, doing
        with suppress(OSError, ValueError):  # nobody listens any more
            told = {"stage": doing, "cc": self._correlation, **figures}
            print(json.dumps(told), file=self._file, flush=True)
