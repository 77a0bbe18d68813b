"""The strength at which a model is not yet fitted into noise, by cross-validation: fit into one half map, score in the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..base.errors import InputError
from ..base.units import takes_units
from ..maps.density_map import DensityMap
from ..maps.half_maps import check_half_maps
from ..models.structures import Model
from ..validation.fsc import HALF_MAP_THRESHOLD, half_map_fsc
from .fit_result import FitResult, Progress
from .flexible_fit import FlexibleFit
from .protocols import Protocol, Stage

STRENGTHS = (5.0, 10.0, 20.0, 40.0, 80.0)
"""kJ/mol per fitted atom."""
TOLERANCE = 0.002
"""Largest gain of the free correlation (CC mask) that is taken for none: it sets the chosen strength."""

STEPS_AT_EACH, COOLING_STEPS = 800, 400
"""Steps at each strength, and then of cooling, as thermal motion lowers the correlations that are compared."""
_COLD = 10.0


@dataclass(frozen=True)
class StrengthScan:
    """Correlations (CC mask) after fits of rising strength into the first half map."""

    strengths: list[float]  # In kJ/mol per fitted atom
    work: list[float]  # `work`, `free` with the half map that was fitted into, and with the other.
    free: list[float]
    # The least strength whose free correlation is within `TOLERANCE` of the highest: the most that a fit should end
    # with
    chosen: float
    steps_each: int = STEPS_AT_EACH + COOLING_STEPS  # At each strength, cooling included
    wall_seconds: float = 0.0  # Of the whole scan
    # The Fourier shell correlation of the half maps around the model as it ends,
    # `validation.fsc.ShellCorrelation.as_dict`
    fsc: dict[str, Any] | None = None
    # Å, where that falls below 0.143, or its last shell where it never does; None where it is nowhere above
    fsc_resolution: float | None = None
    fsc_falls: bool | None = None  # Whether it does fall

    @property
    def still_rises(self) -> bool:
        """Whether the free correlation rose up to the largest strength, so that no limit was found."""
        return len(self.strengths) > 1 and self.chosen == self.strengths[-1]

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers: the arguments of `StrengthScan`."""
        return asdict(self)


@takes_units("resolution", strengths="kJ/mol")
def scan_strengths(
    model: Model,
    half_maps: tuple[DensityMap, DensityMap],
    resolution: Any,
    protocol: Protocol,
    *,
    strengths: Sequence[float] = STRENGTHS,
    progress: Progress | None = None,
    on_interrupt: Callable[[], None] | None = None,
    on_end: Callable[[], None] | None = None,
    **options: Any,
) -> StrengthScan:
    """Fit into one half map at a series of strengths, each from where the last ended, and score in the other.

    The noise of the half maps is independent: a gain of correlation with the first alone is a fit of its noise. `resolution`
    of the half maps, in Å; `strengths` in kJ/mol per fitted atom, rising.
    """
    started = time.perf_counter()
    strengths = [float(strength) for strength in strengths]
    if not strengths or strengths[0] <= 0 or sorted(set(strengths)) != strengths:
        raise InputError(
            "must be positive and rise", argument="strengths", found=strengths, remedy="sort them"
        )
    check_half_maps(*half_maps)
    of_scan = _protocol_of_scan(protocol, strengths)
    options["report_interval"] = COOLING_STEPS
    fit = FlexibleFit(model, half_maps[0], resolution, of_scan, free_map=half_maps[1], **options)
    try:
        result = fit.run(progress=progress, on_interrupt=on_interrupt, on_end=on_end)
    finally:
        fit.beside.end()
    if result.interrupted:
        raise KeyboardInterrupt
    ends = {row.stage: row for row in result.rows if row.stage.startswith(_COOLING)}
    scored = [ends[f"{_COOLING}{strength:g}"] for strength in strengths]
    work, free = [row.cc for row in scored], [row.cc_free for row in scored]
    chosen = next(strength for strength, cc in zip(strengths, free) if cc >= max(free) - TOLERANCE)
    found = StrengthScan(strengths, work, free, chosen, STEPS_AT_EACH + COOLING_STEPS)
    return replace(found, **_agreement(half_maps, result), wall_seconds=time.perf_counter() - started)


def _agreement(half_maps: tuple[DensityMap, DensityMap], result: FitResult) -> dict[str, Any]:
    """Return how far the half maps agree around the model, as `StrengthScan` has it."""
    curve = half_map_fsc(*half_maps, result.prepared.input_positions(result.final))
    crossing = curve.crossing(HALF_MAP_THRESHOLD, dips=False)
    known = math.isfinite(crossing.resolution)
    return {
        "fsc": curve.as_dict(),
        "fsc_resolution": crossing.resolution if known else None,
        "fsc_falls": crossing.falls,
    }


_COOLING = "cool at "


def _protocol_of_scan(protocol: Protocol, strengths: Sequence[float]) -> Protocol:
    """Return a protocol that raises the strength in steps, with the restraints of the last stage for near and for far starts."""
    full = strengths[-1]
    ends = {
        side: stages[-1]
        for side in ("near", "far")
        if (stages := [stage for stage in protocol.stages if stage.start in ("any", side)])
    }
    if len({end.restraints for end in ends.values()}) == 1 and len(ends) == 2:
        ends = {"any": protocol.stages[-1]}
    warm = max(protocol.stages[-1].temperature)
    before = strengths[0] / 10
    stages = [Stage("warm up", COOLING_STEPS, (before / full, before / full), (warm, warm))]
    for strength in strengths:
        part = strength / full
        stages += [
            Stage(f"at {strength:g}", STEPS_AT_EACH, (before / full, part), (warm, warm)),
            Stage(f"{_COOLING}{strength:g}", COOLING_STEPS, (part, part), (warm, _COLD)),
        ]
        before = strength
    sided = [
        replace(stage, restraints=end.restraints, start=side)
        for stage in stages
        for side, end in ends.items()
    ]
    return replace(
        protocol,
        stages=tuple(sided),
        name="strengths",
        strength=full,
        final_strength=None,
        final_strength_limit=None,
        minimize_last=0,
        b_factors="off",
        occupancies="off",
        conformers="major",
    )
