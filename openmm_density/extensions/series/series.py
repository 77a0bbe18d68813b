"""A series of volumes, each fitted from its neighbour's model: `Series`, which puts the parts together."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import InputError, level_outside
from ...base.units import resolution_in_angstrom, takes_units
from ...fitting.fit_map import FitMap
from ...fitting.fit_result import Row
from ...fitting.interrupts import Interrupted
from ...fitting.locks import FolderLock
from ...fitting.placement import Placement, check_placement, placed, placed_near
from ...fitting.protocols import Protocol
from ...fitting.worker_process import available_cores
from ...maps.corrections import MapCorrections
from ...models.structures import Model, read_model
from .direction_process import carry_out_beside
from .frame_fit import FrameFit, FrameFits, fit_frames
from .internal_coordinates import InternalCoordinate
from .output import SERIES_FILES, write_series
from .protocols import FIRST, NEXT, protocol_of
from .result import SeriesResult
from .settings import PROTOCOL_FILES, SETTINGS, START, SeriesSettings, SeriesStart
from .steps import DIRECTIONS, Step, steps_of_direction
from .volumes import VolumeFacts, checked_volumes, notes_on_volumes, order_doubt

Progress = Callable[[str, bool], None]
"""Called with a line that says what is being done, and whether it stays: that a fit is finished."""


class Series:
    """Fit a model into volumes along a reaction coordinate or of a heterogeneity analysis, so that the models form a path.

    The volume that the model fits best is fitted first. From there the series goes out in both directions and back, each fit from
    the better model of its neighbour; of the fits of a volume the one with the higher correlation stays.

    Parameters
    ----------
    model : path
        A PDB or mmCIF file.
    maps : sequence of path
        The volumes, in their order.
    resolution : float or Quantity
        Of all of them, in Å.
    output : path
        The folder of the series; where it holds the same series, unfinished, that goes on.
    free_maps : sequence of path
        Another map of each volume, such as the other half map, by whose correlation fits are judged; it has no part in them.
    protocols : tuple of two Protocol or str
        Of the first volume, and of the others, see `openmm_density.extensions.series.protocols`.
    search : {"off", "auto", "full"}
        The searches of rotamers and registers in the fits from a neighbour's model.
    start_at : int, optional
        The volume to fit first, from 1.
    coordinates : sequence of InternalCoordinate
        Distances, angles and dihedrals to follow along the path.
    workers : int, optional
        1, or 2 for the two directions side by side; by default 2 where there are so many cores.
    place : {"auto", "on", "off"}
        Whether the model is first placed in the volumes as a rigid body.
    **fit_options
        Passed to `openmm_density.fitting.FlexibleFit` of each volume: ``seed``, ``platform``, ``threads``, ``forcefield``,
        ``columns`` and ``corrections`` of the maps …

    Attributes
    ----------
    folder : Path
    settings : SeriesSettings
    notes : list of str
        A sentence on each thing that a reader should know of.
    doubts : list of str

    Raises
    ------
    InputError
        One sentence on what cannot be used.
    """

    @takes_units("resolution")
    def __init__(
        self,
        model: str | os.PathLike[str],
        maps: Sequence[str | os.PathLike[str]],
        resolution: Any,
        output: str | os.PathLike[str],
        *,
        free_maps: Sequence[str | os.PathLike[str]] = (),
        protocols: tuple[Protocol | str, Protocol | str] = (FIRST, NEXT),
        search: str = "off",
        start_at: int | None = None,
        coordinates: Sequence[InternalCoordinate] = (),
        workers: int | None = None,
        place: str = "auto",
        **fit_options: Any,
    ) -> None:
        paths, free = checked_volumes(maps, free_maps)
        resolution = resolution_in_angstrom(resolution)
        _refuse_water(fit_options)
        self.folder, self.coordinates = Path(output), tuple(coordinates)
        self._model = read_model(model)
        for coordinate in self.coordinates:
            coordinate.check(self._model.topology)
        self._threads = fit_options.pop("threads", None)
        self.workers = _workers(workers, self._threads)
        columns, corrections = fit_options.pop("columns", None), fit_options.pop("corrections", None)
        first, following = protocols
        self.settings = SeriesSettings(
            str(Path(model).resolve()),
            tuple(str(path.resolve()) for path in paths),
            tuple(str(path.resolve()) for path in free),
            resolution,
            {
                "first": protocol_of(first, resolution, None),
                "next": protocol_of(following, resolution, search),
            },
            place,
            start_at,
            None if columns is None else tuple(columns),
            (corrections or MapCorrections()).as_dict(),
            fit_options,
        )
        out_of_order = order_doubt(paths)
        self.notes: list[str] = []
        self.doubts: list[str] = []
        if out_of_order is not None:
            self.doubts.append(out_of_order[:1].upper() + out_of_order[1:] + ".")
            warnings.warn(out_of_order, stacklevel=level_outside())

    def run(
        self,
        progress: Progress | None = None,
        overwrite: bool = False,
        command: str | None = None,
        mps: str = "auto",
    ) -> SeriesResult:
        """Carry out the series, or go on with it, and write its results.

        Parameters
        ----------
        progress : callable, optional
            See `openmm_density.extensions.series.series.Progress`.
        overwrite : bool
            Whether another series in the folder is replaced.
        command : str, optional
            The command line that asks for it, for the page.
        mps : {"auto", "off"}
            Whether both directions share one GPU at one time, by NVIDIA's Multi-Process Service, where it is installed; else in
            turns, of which a sentence is added to `notes`.

        Raises
        ------
        InputError
            If the folder holds another series, or something cannot be fitted.
        KeyboardInterrupt
            After SIGINT or SIGTERM; the fits that were under way have saved their states.
        """
        lines = ProgressLines(progress, len(self.settings.maps))
        began = time.monotonic()
        with FolderLock(self.folder):
            if overwrite:
                _remove(self.folder)
            self.settings.write(self.folder)
            start, facts = self._start(lines)
            try:
                fits = self._fits(start, lines, mps)
            except Interrupted:
                raise KeyboardInterrupt from None
            lines.say("comparing the models")
            notes = [*self.notes, *notes_on_volumes([Path(path) for path in self.settings.maps], facts)]
            result = SeriesResult.of(self.settings, start, fits, self.coordinates, notes, self.doubts)
            write_series(self.folder, result, time.monotonic() - began, command)
        return result

    def plan(self, progress: Progress | None = None) -> tuple[SeriesStart, list[Step], list[VolumeFacts]]:
        """Return which volume would be fitted first, from what the others, and what was seen of the volumes; nothing is written.

        Parameters
        ----------
        progress : callable, optional
            As for `run`.
        """
        lines = ProgressLines(progress, len(self.settings.maps))
        start, facts = find_start(self.settings, self._model, self._threads, lines.say)
        first = Step(start.frame, course="first")
        later = (steps_of_direction(start.frame, len(self.settings.maps), each) for each in DIRECTIONS)
        return start, [first, *chain(*later)], facts

    def _start(self, lines: ProgressLines) -> tuple[SeriesStart, list[VolumeFacts]]:
        known = SeriesStart.read(self.folder)
        if known is not None:
            settings, corrections = self.settings, self.settings.map_corrections()
            numbers = range(1, len(settings.maps) + 1)
            return known, [settings.facts(n, corrections.apply(settings.read_map(n))) for n in numbers]
        start, facts = find_start(self.settings, self._model, self._threads, lines.say)
        start.write(self.folder)
        return start, facts

    def _fits(self, start: SeriesStart, lines: ProgressLines, mps: str) -> list[FrameFit]:
        """Return all fits; where both directions have their processes, side by side."""
        n_frames = len(self.settings.maps)
        fits = FrameFits(self.settings, start, self.folder, self._threads, lines.progress)
        first = fits.first()
        lines.finished(first)
        finished = lines.finished
        if self.workers > 1 and start.frame not in (1, n_frames):
            threads = self._threads or max(available_cores() // len(DIRECTIONS), 1)
            carry_out_beside(self.folder, threads, lines.heard, mps, self.notes.append)
            finished = _already_said
        # What is finished by now is read.
        made = [fit for direction in DIRECTIONS for fit in fit_frames(fits, first, direction, finished)]
        return [first, *made]


class ProgressLines:
    """The lines of a series, told to who shows them."""

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


def _already_said(_: FrameFit) -> None:
    """Say nothing."""


def _refuse_water(fit_options: dict[str, Any]) -> None:
    if fit_options.get("solvent") == "water":
        raise InputError(
            "of a series must be none, obc or gbn2, as the water around one model is not that around the next",
            argument="solvent",
            found='"water"',
            remedy="leave it out, and fit the model of a frame in water afterwards",
        )


def _workers(workers: int | None, threads: int | None) -> int:
    if workers is None:
        return min(len(DIRECTIONS), max(available_cores() // (threads or 1), 1))
    if workers not in (1, len(DIRECTIONS)):
        raise InputError(
            "must be 1, or 2 for the two directions of a series",
            argument="workers",
            found=workers,
            remedy="give one of these",
        )
    return workers


def _remove(folder: Path) -> None:
    """Remove a series from its folder, and nothing else that may be there."""
    for name in (SETTINGS, START, *PROTOCOL_FILES.values(), *SERIES_FILES):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("frame_*_from_*"):
        if path.is_dir():
            shutil.rmtree(path)


INVERTED = -0.2
"""A correlation below which a model lies where a volume is lowest."""


def find_start(
    settings: SeriesSettings, model: Model, threads: int | None, told: Callable[[str], None] = lambda _: None
) -> tuple[SeriesStart, list[VolumeFacts]]:
    """Return the volume that a rigid model fits best, placed if need be and moved to the nearest maximum, and facts of all."""
    check_placement(model, settings.place)
    count = len(settings.maps)
    if settings.start_at is not None and not 1 <= settings.start_at <= count:
        raise InputError(
            f"must be the number of a volume, from 1 to {count}",
            argument="start_at",
            found=settings.start_at,
            remedy="give its place in the order given",
        )
    facts, poses, here, correlations = [], [], [], []
    for number in range(1, count + 1):
        told(f"looking at volume {number} of {count}")
        fit_map = FitMap(settings.read_map(number), settings.resolution, settings.map_corrections())
        facts.append(settings.facts(number, fit_map.density_map))
        here.append(_correlation(model, None, fit_map))
        poses.append(_pose(model, fit_map, settings.place, threads))
        correlations.append(_correlation(model, poses[-1], fit_map))
        _refuse_inverted(settings, here)
    best = settings.start_at or max(range(count), key=lambda k: correlations[k]) + 1
    return SeriesStart(best, poses[best - 1], correlations), facts


def _pose(model: Model, fit_map: FitMap, place: str, threads: int | None) -> Placement | None:
    """Return how the model gets to its place in a volume, or None where it may stay."""
    if place == "off":
        return None
    return placed(model, fit_map, place, threads) or placed_near(model, fit_map, np.zeros(3))


def _correlation(model: Model, pose: Placement | None, fit_map: FitMap) -> float:
    positions = model.positions if pose is None else pose.moved(model.positions)
    return float(fit_map.correlation(model.topology).cc_mask(positions))


def _refuse_inverted(settings: SeriesSettings, correlations: list[float]) -> None:
    """Refuse a volume in which the model lies where it is lowest, while it lies in the density of another."""
    wrong = [number for number, cc in enumerate(correlations) if cc < INVERTED]
    if wrong and max(correlations) > -INVERTED:
        raise InputError(
            f"its contrast is inverted beside that of the other volumes (the model correlates with it by "
            f"{correlations[wrong[0]]:.2f}, and by {max(correlations):.2f} with another)",
            source=settings.maps[wrong[0]],
            remedy="write it with its sign changed",
        )
