"""A look at the map before a fit believes it, and after: what is wrong with it, and where the model belongs in it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from openmm import app
from scipy import fft

from ..maps.density_map import DensityMap
from ..models.preparation import Prepared
from ..models.structures import Model
from ..validation.map_checks import MapChecks, check_map_with_model, check_stretching
from .fit_map import FitMap
from .fit_result import FitResult
from .helper_processes import HelperProcesses, HelperResult
from .placement import Placement, check_placement, placed, placed_at, placed_near
from .worker_process import available_cores

# A model that correlates by less with a map whose mirror image was asked for has yet to be placed in it.
MIRRORED_FIT = 0.4


class Examination(NamedTuple):
    """What was found out about model and map before a fit."""

    model: Model  # Where it starts
    checks: MapChecks  # Of the map with the model there
    placement: Placement | None  # How the model got there; None where it stays
    cc: float  # Its correlation with the map there


def examine_start(model: Model, fit_map: FitMap, place: str, threads: int | None = None) -> Examination:
    """Look at the map with the model where it is, place the model, and look again."""
    check_placement(model, place)
    here = _examined_at(model, fit_map, None, threads)
    placement = _placement(model, fit_map, place, here, threads)
    return here if placement is None else _examined_at(model, fit_map, placement, threads)


def expected_model(model: Model, fit_map: FitMap, place: str) -> Model | None:
    """Return the model that a fit starts from where `examine_start` leaves it in its place; None where it will be moved."""
    if place == "on" or fit_map.corrections.voxel_size is not None or fit_map.corrections.mirror:
        return None
    return _placed(model, fit_map, None)


def examined_beside(
    model: Model, fit_map: FitMap, place: str, threads: int | None
) -> tuple[MapChecks, Placement | None, float]:
    """Return what `examine_start` finds but the model, in a thread or process of its own; see `examination_known`."""
    with fft.set_workers(threads or available_cores()):
        return examine_start(model, fit_map, place, threads)[1:]


def examination_known(
    model: Model, fit_map: FitMap, checks: MapChecks, placement: Placement | None, cc: float | None = None
) -> Examination:
    """Return the examination of a model whose map was looked at before, as when a fit that goes on began."""
    there = _placed(model, fit_map, placement)
    return Examination(there, checks, placement, _cc(there, fit_map) if cc is None else cc)


def examine_fitted(
    fit_map: FitMap,
    solute: Prepared,
    result: FitResult,
    threads: int | None = None,
    beside: HelperProcesses | None = None,
) -> HelperResult[MapChecks]:
    """Look at the map once more, with the model where it was fitted, and at what the map did to the model."""
    model, n, beside = solute.model, len(solute.positions), beside or HelperProcesses()
    return beside.once(
        result.final.tobytes(),
        _examined_fitted,
        *map(beside.shared, (fit_map.density_map, model.topology, solute.topology)),
        fit_map.resolution,
        result.cc_final,
        threads,
        solute.input_positions(result.final[:n]),
        solute.positions,
        result.final[:n],
    )


def _examined_fitted(
    density_map: DensityMap,
    topology: app.Topology,
    simulated: app.Topology,
    resolution: float,
    cc: float,
    threads: int | None,
    positions: np.ndarray,
    start: np.ndarray,
    final: np.ndarray,
) -> MapChecks:
    """Return what a model at positions (M, 3) says of a map, and what its change from start to end, as simulated, does."""
    checks = check_map_with_model(density_map, topology, positions, resolution, cc=cc, threads=threads)
    scale = (checks.figures.get("voxel_size") or {"scale": 1.0})["scale"]
    return checks + check_stretching(density_map, simulated, start, final, scale, cc)


def _examined_at(
    model: Model, fit_map: FitMap, placement: Placement | None, threads: int | None
) -> Examination:
    there = _placed(model, fit_map, placement)
    cc = _cc(there, fit_map)
    checks = check_map_with_model(
        fit_map.density_map,
        there.topology,
        there.positions,
        fit_map.resolution,
        cc=cc,
        correlation=fit_map.correlation(there.topology),
        threads=threads,
    )
    checks.refuse_errors()
    return Examination(there, checks, placement, cc)


def _placed(model: Model, fit_map: FitMap, placement: Placement | None) -> Model:
    if placement is not None:
        model = placement.apply(model)
    # Whatever crystal the model comes from, it is not in it in a map that is none.
    if model.space_group and not fit_map.density_map.periodic:
        model = replace(model, space_group="")
    return model


def _cc(model: Model, fit_map: FitMap) -> float:
    return fit_map.correlation(model.topology).cc_mask(model.positions)


def _placement(
    model: Model, fit_map: FitMap, place: str, here: Examination, threads: int | None
) -> Placement | None:
    """Return how the model gets to where it belongs, or None where it may stay."""
    if place == "auto":
        if fit_map.corrections.voxel_size is not None:
            centre = model.positions.mean(axis=0)
            nearby = placed_near(model, fit_map, fit_map.carried_along(centre) - centre)
            if nearby is not None:
                return nearby
        for finding in here.checks.findings:
            if finding.check in ("place", "box"):
                pose = here.checks.figures[finding.check]
                turn = np.array(pose.get("rotation", np.eye(3)))
                return placed_at(model, fit_map, turn, np.array(pose["shift"]))
        if fit_map.corrections.mirror and here.cc < MIRRORED_FIT:
            place = "on"
    return placed(model, fit_map, place, threads)
