"""Which volume the model fits best before any fit, and where in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import InputError
from ..fitting.fit_map import FitMap
from ..fitting.placement import Placement, check_place, placed, placed_near
from ..models.structures import Model
from .settings import Settings, Start
from .volumes import VolumeFacts

INVERTED = -0.2
"""A correlation below which a model lies where a volume is lowest."""


def find_start(
    settings: Settings, model: Model, threads: int | None, told: Callable[[str], None] = lambda _: None
) -> tuple[Start, list[VolumeFacts]]:
    """Return the volume that a rigid model fits best, and what was seen of all volumes.

    In each the model is placed as a rigid body, where it does not lie in its density, and then moved to the nearest maximum.
    """
    check_place(model, settings.place)
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
    return Start(best, poses[best - 1], correlations), facts


def _pose(model: Model, fit_map: FitMap, place: str, threads: int | None) -> Placement | None:
    """Return how the model gets to its place in a volume, or None where it may stay."""
    if place == "off":
        return None
    return placed(model, fit_map, place, threads) or placed_near(model, fit_map, np.zeros(3))


def _correlation(model: Model, pose: Placement | None, fit_map: FitMap) -> float:
    positions = model.positions if pose is None else pose.moved(model.positions)
    return float(fit_map.correlation(model.topology).cc_mask(positions))


def _refuse_inverted(settings: Settings, correlations: list[float]) -> None:
    """Refuse a volume in which the model lies where it is lowest, while it lies in the density of another."""
    wrong = [number for number, cc in enumerate(correlations) if cc < INVERTED]
    if wrong and max(correlations) > -INVERTED:
        raise InputError(
            f"its contrast is inverted beside that of the other volumes (the model correlates with it by "
            f"{correlations[wrong[0]]:.2f}, and by {max(correlations):.2f} with another)",
            source=settings.maps[wrong[0]],
            remedy="write it with its sign changed",
        )
