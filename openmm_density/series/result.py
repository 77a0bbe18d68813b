"""What a series ends with: a model of each volume, and what they say as a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openmm import app

from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.model import Model
from ..models.rigid_domains import domain_motions, rigid_domains
from ..models.structures import read_model
from .choice import better_fit
from .doubts import doubts_about
from .frame_fit import FrameFit
from .frames import SeriesFrame, SeriesPath
from .internal_coordinates import InternalCoordinate
from .path import SMALLEST_PART, Trace, change_of_volumes, jumps_among, rmsd, steps_between
from .settings import Settings, Start

_LEAST_CORRELATION = 0.01


@dataclass(frozen=True)
class SeriesResult:
    """What a series ends with.

    Attributes
    ----------
    settings : Settings
    start : Start
    frames : list of SeriesFrame
    model : Model
        The fitted model of the first volume, whose atoms all have.
    positions : np.ndarray, shape (F, N, 3)
        Of the kept models, in Å.
    trace : Trace
    path : SeriesPath
    notes, doubts : list of str
    """

    settings: Settings
    start: Start
    frames: list[SeriesFrame]
    model: Model
    positions: np.ndarray
    trace: Trace
    path: SeriesPath
    notes: list[str]
    doubts: list[str]

    @classmethod
    def of(
        cls,
        settings: Settings,
        start: Start,
        fits: Sequence[FrameFit],
        coordinates: Sequence[InternalCoordinate] = (),
        notes: Sequence[str] = (),
        doubts: Sequence[str] = (),
    ) -> SeriesResult:
        """Return the result of all fits of a series.

        Parameters
        ----------
        settings : Settings
        start : Start
        fits : sequence of FrameFit
        coordinates : sequence of InternalCoordinate
            To follow along the path.
        notes, doubts : sequence of str
            What is known before.
        """
        numbers = range(1, len(settings.maps) + 1)
        kept = [better_fit([fit for fit in fits if fit.step.frame == number]) for number in numbers]
        models = [read_model(fit.model) for fit in kept]
        _check_same_atoms(models, kept)
        positions, topology = np.array([model.positions for model in models]), models[0].topology
        trace = Trace.of(topology)
        frames = [
            _frame(
                number, settings, [fit for fit in fits if fit.step.frame == number], kept[number - 1], trace
            )
            for number in numbers
        ]
        path = _path(settings, topology, positions, trace, coordinates)
        found = doubts_about(frames, path, positions[:, trace.atoms], trace, settings.resolution)
        result = cls(
            settings, start, frames, models[0], positions, trace, path, list(notes), [*doubts, *found]
        )
        return result


def _check_same_atoms(models: Sequence[Model], fits: Sequence[FrameFit]) -> None:
    def names(model: Model) -> list[tuple[str, str, str]]:
        return [(each.residue.chain.id, each.residue.id, each.name) for each in model.topology.atoms()]

    first = names(models[0])
    for model, fit in zip(models, fits):
        if names(model) != first:
            raise InputError(
                "the model has other atoms than that of the first volume",
                source=fit.model,
                remedy="start the series again in another folder",
            )


def _frame(
    number: int, settings: Settings, fits: Sequence[FrameFit], kept: FrameFit, trace: Trace
) -> SeriesFrame:
    others = [fit for fit in fits if fit.step.source != kept.step.source]
    other = better_fit(others) if others else None
    differ = None
    if other is not None:
        pair = [read_model(fit.model).positions[trace.atoms] for fit in (kept, other)]
        differ = rmsd(*pair)
    return SeriesFrame(number, Path(settings.maps[number - 1]), tuple(fits), kept, differ, other)


def _path(
    settings: Settings,
    topology: app.Topology,
    positions: np.ndarray,
    trace: Trace,
    coordinates: Sequence[InternalCoordinate],
) -> SeriesPath:
    traces = positions[:, trace.atoms]
    steps = steps_between(traces)
    changes = _volume_changes(settings, traces)
    known = np.array([np.nan if each is None else each for each in changes])
    domains = rigid_domains(traces, trace.chains)
    stretches = [trace.stretches(domains == number) for number in range(int(domains.max(initial=0)) + 1)]
    return SeriesPath(
        steps,
        steps_between(traces, superposed=False),
        np.array([rmsd(frame, traces[0]) for frame in traces]),
        changes,
        jumps_among(steps, SMALLEST_PART * settings.resolution),
        jumps_among(_distances(known)) if np.isfinite(known).all() else [],
        domains,
        stretches,
        domain_motions(traces, domains, stretches),
        [(each, each.values(topology, positions)) for each in coordinates],
    )


def _distances(changes: np.ndarray) -> np.ndarray:
    """Return how far volumes are from each other by 1 − their correlations, which level off at 1 and therefore tell no jump."""
    return -np.log(np.clip(1.0 - changes, _LEAST_CORRELATION, 1.0))


def _volume_changes(settings: Settings, traces: np.ndarray) -> list[float | None]:
    corrections = settings.map_corrections()
    changes: list[float | None] = []
    before: DensityMap | None = None
    for number in range(1, len(traces) + 1):
        now = corrections.apply(settings.read_map(number))
        if before is not None:
            changes.append(change_of_volumes(before, now, traces[number - 2 : number]))
        before = now
    return changes


def frame_values(result: SeriesResult) -> list[dict[str, Any]]:
    """Return the figures of each volume, as tables and ``series.json`` have them; None where there is none."""
    path = result.path
    rows = []
    for frame in result.frames:
        at = frame.number - 1
        geometry = frame.kept.summary["geometry_final"]
        rows.append(
            {
                "frame": frame.number,
                "map": frame.map.name,
                "folder": frame.kept.folder.name,
                "from": frame.kept.step.source,
                "way": frame.kept.step.way(result.start.frame),
                "protocol": frame.kept.summary["protocol"],
                "cc": frame.kept.cc,
                "cc_free": frame.kept.cc_free,
                "rmsd_to_previous": None if at == 0 else float(path.steps[at - 1]),
                "rmsd_to_previous_in_place": None if at == 0 else float(path.steps_in_place[at - 1]),
                "rmsd_to_first": float(path.from_first[at]),
                "volume_change": None if at == 0 else path.volume_changes[at - 1],
                "passes_differ": frame.passes_differ,
                "cc_of_other_pass": None if frame.other is None else frame.other.score,
                "faults": frame.faults,
                "clashscore": geometry["clashscore"],
                "ramachandran_outliers": geometry["ramachandran_outlier_count"],
                "rotamer_outliers": geometry["rotamer_outlier_count"],
                "doubts": len(frame.kept.summary["doubts"]),
                **{each.label: float(values[at]) for each, values in path.coordinates},
                **{f"domain {each.domain} angle": each.angle_from_first[at] for each in path.motions},
            }
        )
    return rows
