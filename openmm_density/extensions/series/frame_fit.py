"""One fit of a series, in a folder of its own like that of any fit: begun, resumed, or read where it is finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import InputError
from ...base.stopwatch import Stopwatch
from ...fitting.fit_map import FitMap
from ...fitting.fit_result import Row
from ...fitting.flexible_fit import FlexibleFit
from ...fitting.improvement import CC_TOLERANCE
from ...fitting.interrupts import Interrupted
from ...fitting.locks import wait_until_free
from ...maps.density_map import DensityMap
from ...models.structures import read_model
from ...report import OutputFolder
from ...report.results import (
    FITTED,
    SUMMARY,
    UNFINISHED,
    finished_summary,
    model_with_input_atoms,
)
from .settings import SeriesSettings, SeriesStart
from .steps import Step, steps_of_direction

NEAR = 0.6
"""Of the correlation that the neighbour's model has with its own volume: with less it starts far from its density. At 5 Å
models 1 to 2 Å away (Cα RMSD) have 0.67 to 0.88 of it, those 5 Å away 0.45 to 0.5."""
LOST = 0.95
"""Of the same: a fit that ends with less is tried again with the protocol of the first volume."""

Told = Callable[[Step, int, int, str, Row | None], None]
"""Called with the step of the series, the step of its fit, how many there are, what is being done, and a row of its log."""


@dataclass(frozen=True)
class FrameFit:
    """A finished fit of one volume."""

    step: Step
    folder: Path
    summary: dict[str, Any]  # That of the fit
    cc_free: float | None = None  # The correlation with the other map of the volume, where there is one

    @property
    def cc(self) -> float:
        """The correlation with the volume."""
        return self.summary["cc_final"]

    @property
    def score(self) -> float:
        """The correlation by which it is judged: the free one where there is one."""
        return self.cc if self.cc_free is None else self.cc_free

    @property
    def model(self) -> Path:
        """The file of the fitted model with all that was built of it, and without alternate conformers."""
        return self.folder / FITTED

    @property
    def next_start(self) -> Path:
        """The file of the same with the atoms of the user's model, all conformers among them: from it its neighbours start."""
        return kept_model(self.folder)


def kept_model(folder: Path) -> Path:
    """Return the file of a fit's model with the atoms of its input, of which all its figures are."""
    found = model_with_input_atoms(folder)
    if found is None:
        raise InputError(
            "its fitted.pdb is not there any more",
            source=folder,
            remedy="remove the folder, and give the command of the series again",
        )
    return found


def is_finished(folder: Path, step: Step) -> bool:
    """Return whether the fit of a step is complete."""
    return finished_summary(folder / step.folder) is not None


def finished_fit(settings: SeriesSettings, folder: Path, step: Step) -> FrameFit:
    """Return the fit of a step that is complete."""
    path = folder / step.folder
    summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
    free_map = settings.read_free_map(step.frame)
    if free_map is None:
        return FrameFit(step, path, summary)
    return FrameFit(step, path, summary, frame_correlation(settings, free_map, kept_model(path)))


def frame_correlation(settings: SeriesSettings, density_map: DensityMap, model_path: Path) -> float:
    """Return the correlation (CC mask) of a model with a volume, or another map of it."""
    fit_map = FitMap(density_map, settings.resolution, settings.map_corrections())
    model = read_model(model_path)
    return float(fit_map.correlation(model.topology).cc_mask(model.positions))


class FrameFits:
    """The fits of a series, carried out one after the other. `folder` of the series; `threads` of each; `told`: see `Told`."""

    def __init__(
        self,
        settings: SeriesSettings,
        start: SeriesStart,
        folder: Path,
        threads: int | None,
        told: Told | None = None,
    ) -> None:
        self.settings, self.start, self.folder, self.threads, self._told = (
            settings,
            start,
            folder,
            threads,
            told,
        )

    def first(self) -> FrameFit:
        """Return the fit of the first volume from the user's model."""
        step = Step(self.start.frame, course="first")
        return self._carried_out(step, Path(self.settings.model), None)

    def from_neighbour(self, step: Step, neighbour: FrameFit) -> list[FrameFit]:
        """Return a volume's fits from a neighbour's model; by the first volume's protocol if far off, or CC is lost."""
        fits = []
        if self._is_near(step, neighbour):
            fits.append(self._carried_out(step, neighbour.next_start, neighbour.model))
            protocols = self.settings.protocols
            if fits[0].cc >= LOST * neighbour.cc or protocols["first"] == protocols["next"]:
                return fits
        return [*fits, self._carried_out(step.again, neighbour.next_start, neighbour.model)]

    def _is_near(self, step: Step, neighbour: FrameFit) -> bool:
        density_map = self.settings.read_map(step.frame)
        return frame_correlation(self.settings, density_map, neighbour.next_start) >= NEAR * neighbour.cc

    def _carried_out(self, step: Step, model_path: Path, completed: Path | None) -> FrameFit:
        """Return the fit of a step from a model: carried out, continued, or read where it is complete."""
        if not is_finished(self.folder, step):
            self._wait_until_free(step)
        if is_finished(self.folder, step):
            return finished_fit(self.settings, self.folder, step)
        path = self.folder / step.folder
        resumed = (path / UNFINISHED).is_dir()
        stopwatch = Stopwatch()
        output = OutputFolder(path, overwrite=not resumed, resume=resumed)
        fit = None
        map_path = self.settings.maps[step.frame - 1]
        try:
            fit = self._flexible_fit(step, model_path, completed, stopwatch)
            result = fit.run(output.run, self._progress(step))
            if result.interrupted:
                raise Interrupted
            output.write(fit, result, str(model_path), map_path)
        except KeyboardInterrupt:
            raise Interrupted from None
        except InputError as error:
            raise error.within(f"volume {step.frame}, {Path(map_path).name}") from error
        finally:
            if fit is not None:
                fit.beside.end()
            output.discard()
        return finished_fit(self.settings, self.folder, step)

    def _wait_until_free(self, step: Step) -> None:
        """Wait for a process of the same series that was killed and is still saving the state of this fit."""

        def waiting(holder: str) -> None:
            if self._told is not None:
                self._told(step, 0, 0, f"waiting for the end of its earlier fit ({holder})", None)

        try:
            wait_until_free(self.folder / step.folder, waiting)
        except KeyboardInterrupt:
            raise Interrupted from None

    def _flexible_fit(
        self, step: Step, model_path: Path, completed: Path | None, stopwatch: Stopwatch
    ) -> FlexibleFit:
        settings, is_first = self.settings, step.source is None
        model = read_model(model_path)
        free_map = settings.read_free_map(step.frame)
        return FlexibleFit(
            model,
            settings.read_map(step.frame),
            settings.resolution,
            settings.protocols[step.course],
            threads=self.threads,
            place=(self.start.placement or "off") if is_first else "off",
            free_map=free_map,
            corrections=settings.map_corrections(),
            stopwatch=stopwatch,
            completed=None if completed is None else read_model(completed),
            **settings.fit_options,
        )

    def _progress(self, step: Step) -> Callable[[int, int, str, Row | None], None] | bool:
        told = self._told
        if told is None:
            return False
        return lambda done, total, doing, row: told(step, done, total, doing, row)


FAULTS = (
    *("clash_count", "ramachandran_outlier_count", "rotamer_outlier_count", "twisted_count"),
    *("wrong_alpha_count", "wrong_centre_count"),
)
"""What is counted of a geometry."""


def better_fit(fits: Sequence[FrameFit]) -> FrameFit:
    """Return the fit with the highest (free) correlation; of those alike in it the first with the fewest faults of geometry."""
    highest = max(fit.score for fit in fits)
    equal = [fit for fit in fits if fit.score >= highest - CC_TOLERANCE]
    return min(equal, key=lambda fit: faults(fit.summary["geometry_final"]))


def faults(geometry: Mapping[str, Any]) -> int:
    """Return how many clashes, outliers, twisted peptides and wrong centres the geometry of a summary has."""
    return sum(geometry.get(name) or 0 for name in FAULTS)


Finished = Callable[[FrameFit], None]
"""Called with each fit that is finished."""


def fit_frames(
    fits: FrameFits, first: FrameFit, direction: str, finished: Finished = lambda _: None
) -> list[FrameFit]:
    """Return the fits of one direction, in their order."""
    of_frame: dict[int, list[FrameFit]] = {first.step.frame: [first]}
    made = []
    n_frames = len(fits.settings.maps)
    for step in steps_of_direction(first.step.frame, n_frames, direction):
        neighbour = better_fit(of_frame[step.source])
        for fit in fits.from_neighbour(step, neighbour):
            of_frame.setdefault(step.frame, []).append(fit)
            made.append(fit)
            finished(fit)
    return made
