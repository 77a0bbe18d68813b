"""What a series says while it runs: a line for each fit that is finished, and one that changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..fitting.fit_result import Row
from .frame_fit import FrameFit
from .steps import Step

Progress = Callable[[str, bool], None]
"""Called with a line that says what is being done, and whether it stays: that a fit is finished."""


class ProgressLines:
    """The lines of a series.

    Parameters
    ----------
    told : callable, optional
        See `Progress`.
    n_frames : int
    """

    def __init__(self, told: Progress | None, n_frames: int) -> None:
        self._told, self._n_frames = told or (lambda *_: None), n_frames

    def say(self, line: str) -> None:
        """Say what is being done."""
        self._told(line, False)

    def progress(self, step: Step, done: int, total: int, doing: str, row: Row | None) -> None:
        """Say how far a fit is."""
        self._progress(step, done, total, doing, None if row is None else row.cc)

    def heard(self, message: dict[str, Any]) -> None:
        """Say what the process of a direction says."""
        step = Step(message["frame"], message["source"])
        if message.get("finished"):
            self._finished(step, message["cc"], message["cc_free"])
        else:
            self._progress(step, message["step"], message["steps"], message["doing"], message["cc"])

    def finished(self, fit: FrameFit) -> None:
        """Say that a fit is finished."""
        self._finished(fit.step, fit.cc, fit.cc_free)

    def _progress(self, step: Step, done: int, total: int, doing: str, cc: float | None) -> None:
        if cc is not None:
            self._told(f"{self._where(step)}: {doing}, step {done}/{total}, CC {cc:.3f}", False)
        elif not total:  # there is no fit yet
            self._told(f"{self._where(step)}: {doing}", False)

    def _finished(self, step: Step, cc: float, cc_free: float | None) -> None:
        free = "" if cc_free is None else f", free CC {cc_free:.3f}"
        self._told(f"{self._where(step)}: fitted, CC {cc:.3f}{free}", True)

    def _where(self, step: Step) -> str:
        source = "" if step.source is None else f" from {step.source}"
        return f"volume {step.frame} of {self._n_frames}{source}"
