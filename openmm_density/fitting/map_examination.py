"""A look at the map before a fit believes it: what is wrong with it, and where the model belongs in it."""

from __future__ import annotations

import numpy as np
from openmm import app

from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..models.structures import Model
from ..validation.correlation import MapCorrelation
from ..validation.map_checks import MapChecks, check_map_with_model, check_stretching
from .placement import Placement, placed, placed_at, placed_near

# A model that correlates by less with a map whose mirror image was asked for has yet to be placed in it.
MIRRORED_FIT = 0.4


def placed_and_checked(
    model: Model,
    read: DensityMap,
    density_map: DensityMap,
    resolution: float,
    place: str,
    corrections: MapCorrections,
) -> tuple[MapChecks, Placement | None]:
    """Look at the map with the model where it is, place the model, and look again.

    Parameters
    ----------
    model : Model
    read, density_map : DensityMap
        The map as it was read, and corrected.
    resolution : float
        In Å.
    place : {"auto", "on", "off"}
        As for `FlexibleFit`. With ``auto`` a model is also placed that a correction of the map has left outside its density, or
        that lies beside it.
    corrections : MapCorrections
        What the map was corrected for.

    Returns
    -------
    checks : MapChecks
        Of the model where it starts.
    placement : Placement or None
        None where the model stays.

    Raises
    ------
    InputError
        If no fit can be right: the contrast is inverted, or the map is rolled.
    """
    checks = check_map_with_model(density_map, model.topology, model.positions, resolution)
    checks.refuse_errors()
    if place == "auto" and corrections.voxel_size is not None:
        moved = _carried_along(model, read, density_map)
        nearby = placed_near(model, density_map, resolution, moved)
        if nearby is not None:
            return _checked_there(nearby, model, density_map, resolution), nearby
    if place == "auto" and any(finding.check == "place" for finding in checks.findings):
        pose = checks.figures["place"]
        beside = placed_at(
            model, density_map, resolution, np.array(pose["rotation"]), np.array(pose["shift"])
        )
        return _checked_there(beside, model, density_map, resolution), beside
    if place == "auto" and corrections.mirror:
        correlation = MapCorrelation(density_map, model.topology, resolution)
        if correlation.cc_mask(model.positions) < MIRRORED_FIT:
            place = "on"
    placement = placed(model, density_map, resolution, place)
    if placement is None:
        return checks, None
    return _checked_there(placement, model, density_map, resolution), placement


def checked_after(
    model: Model,
    density_map: DensityMap,
    resolution: float,
    topology: app.Topology,
    start: np.ndarray,
    relaxed: np.ndarray,
    final: np.ndarray,
    in_input: np.ndarray,
    cc: float,
) -> MapChecks:
    """Look at the map once more, with the model where it was fitted, and at what the map did to the model.

    Parameters
    ----------
    model : Model
        As it was read.
    density_map : DensityMap
    resolution : float
        In Å.
    topology : openmm.app.Topology
        Of the simulated model, without solvent.
    start, relaxed, final : np.ndarray, shape (M, 3)
        Its positions before the fit, minimised without the map, and after the fit, in Å.
    in_input : np.ndarray, shape (N, 3)
        Those of the atoms that were read, after the fit, in Å.
    cc : float
        Their correlation with the map.
    """
    checks = check_map_with_model(density_map, model.topology, in_input, resolution, cc=cc)
    rescaled = any(finding.check == "voxel_size" for finding in checks.findings)
    scale = checks.figures["voxel_size"]["scale"] if rescaled else 1.0
    n = topology.getNumAtoms()
    return checks + check_stretching(density_map, topology, start[:n], relaxed[:n], final[:n], scale)


def _checked_there(
    placement: Placement, model: Model, density_map: DensityMap, resolution: float
) -> MapChecks:
    there = placement.moved(model.positions)
    checks = check_map_with_model(density_map, model.topology, there, resolution)
    checks.refuse_errors()
    return checks


def _carried_along(model: Model, read: DensityMap, density_map: DensityMap) -> np.ndarray:
    """Return by how much the middle of the model moves, in Å, if it stays at its voxel."""
    centre = model.positions.mean(axis=0)
    index = read.to_index(centre[None])[0]
    return density_map.origin + density_map.matrix @ index - centre
