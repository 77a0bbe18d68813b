"""The strength that a fit ends with: the largest at which the geometry stays near what it is without density.

The stronger the pull at the end, the nearer is the model to the truth, from one annealed model on and in maps with noise of 3
to 8 Å: what a pull that is too strong spoils is the geometry. So the final strength is found on the annealed model, as
refinement programs choose the weight of their data: the model is relaxed for a short while at one strength and another, and its
geometry compared with the ideal one, and with that of the start, relaxed without density. Each trial ends as the fit does, see
`final_geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..energies.calibration import STRENGTH_BOUNDS
from ..validation.geometry import GeometryReport
from ..validation.ideal_values import GeometryScores
from .improvement import most_borne

MOST_ANGLE_RMSZ, MOST_BOND_RMSZ = 0.7, 0.5
"""RMSZ of angles and of bonds that are tolerated."""
MOST_CLASHES = 0.008
"""Clashes for each heavy atom that are tolerated in any case: a clashscore of about 4."""
MORE_BORNE = 1.1
"""Times the RMSZ of a model that is hardly pulled, where these are larger than that: residues that no pull makes ideal are no
reason to let go of the map."""
AIM, MOST_STIFFER = 0.98, 3.0
"""Of these, what a stiffer geometry aims at, and by how much it is stiffer at most."""
STIFFER_BY = 2.6
"""Power of the ratio of an RMSZ to its bound by which what it is of is to be held more stiffly."""
MOST_TIMES = 2.0
"""Of the strength of the stages before, what the final one may be at most: a model in ideal geometry can take more, and so is
as near to the truth as one with bent angles."""
LEAST = STRENGTH_BOUNDS[0]
"""kJ/mol per fitted atom: a weaker pull is not tried."""
BOUND_WORDS = {
    "bond_rmsz": "bonds",
    "angle_rmsz": "angles",
    "clash_count": "clashes",
    "ramachandran_outlier_count": "Ramachandran outliers",
    "rotamer_outlier_count": "rotamer outliers",
}
"""What the bounds are on, in words."""
NEAR_ENOUGH = 1.3
"""The search ends where the strength that is sought is at most so many times the one found."""
# By how much the logarithm of the RMSZ of bonds or angles grows with that of the strength, before it is known, and at the least.
_USUAL_SLOPE, _LEAST_SLOPE = 0.25, 0.02


@dataclass(frozen=True)
class StrengthTrial:
    """The geometry of the model, relaxed at a strength."""

    strength: float  # In kJ/mol per fitted atom
    # `bond_rmsz`, `angle_rmsz`: see `GeometryReport`; infinite where the simulation was not stable, nan where there are none.
    bond_rmsz: float
    angle_rmsz: float
    clash_count: int
    ramachandran_outlier_count: int | None
    rotamer_outlier_count: int

    @classmethod
    def of(cls, strength: float, report: GeometryReport | None) -> StrengthTrial:
        """Return that of a strength and the report on its model; None where the simulation was not stable."""
        if report is None:
            return cls(strength, math.inf, math.inf, 0, None, 0)
        return cls(
            strength,
            report.bond_rmsz,
            report.angle_rmsz,
            report.clash_count or 0,
            report.ramachandran_outlier_count,
            report.rotamer_outlier_count,
        )


@dataclass(frozen=True)
class GeometryBounds:
    """What the geometry of a model at the final strength may be at most."""

    bond_rmsz: float
    angle_rmsz: float
    clash_count: int
    ramachandran_outlier_count: int
    rotamer_outlier_count: int

    @classmethod
    def of_relaxed(cls, report: GeometryReport) -> GeometryBounds:
        """Return the bounds that hold for every model, and those that one sets which was relaxed without density."""
        return cls(
            MOST_BOND_RMSZ,
            MOST_ANGLE_RMSZ,
            max(
                most_borne("clash", report.clash_count, report.atom_count),
                int(MOST_CLASHES * report.atom_count),
            ),
            most_borne("ramachandran_outlier", report.ramachandran_outlier_count, report.ramachandran_count),
            most_borne("rotamer_outlier", report.rotamer_outlier_count, report.rotamer_count),
        )

    def allowing(self, weakest: StrengthTrial) -> GeometryBounds:
        """Return the bounds with what a model has that is hardly pulled, as its conformation is not the start's.

        Counts may be larger by their root: a bound that the weakest pull just meets, or misses, would be noise.
        """
        counts = {
            name: max(bound, _with_noise(getattr(weakest, name) or 0))
            for name, bound in asdict(self).items()
            if name.endswith("count")
        }
        bonds, angles = _borne(self.bond_rmsz, weakest.bond_rmsz), _borne(self.angle_rmsz, weakest.angle_rmsz)
        return GeometryBounds(bonds, angles, **counts)

    def exceeded_by(self, trial: StrengthTrial) -> list[str]:
        """Return the names of the bounds that a trial exceeds."""
        found = []
        for name, value in asdict(self).items():
            tried = getattr(trial, name)
            # What was not stable is beyond any bound, also where the model has none to compare with.
            if tried is not None and (tried > value or math.isinf(tried)):
                found.append(name)
        return found


def _borne(bound: float, weakest: float) -> float:
    """Return a bound on RMSZ, or a larger one where that of a model that is hardly pulled exceeds it."""
    return MORE_BORNE * weakest if bound < weakest < math.inf else bound


def _with_noise(count: int) -> int:
    return count + math.isqrt(count)


def stiffer(report: GeometryReport | GeometryScores) -> tuple[float, float]:
    """Return the factors by which bonds and angles would have to be stiffer to be within their bounds; 1 where they are.

    RMSZ fall by less than the stiffness grows, as what pulls gives way, too.
    """
    bonds, angles = report.bond_rmsz / MOST_BOND_RMSZ, report.angle_rmsz / MOST_ANGLE_RMSZ
    return _stiffer(bonds), _stiffer(angles)


def _stiffer(ratio: float) -> float:
    return min((ratio / AIM) ** STIFFER_BY, MOST_STIFFER) if ratio > 1.0 else 1.0


@dataclass(frozen=True)
class StrengthFound:
    """The final strength, and how it was found."""

    chosen: float  # In kJ/mol per fitted atom
    most: float  # The largest that was to be tried: `MOST_TIMES` that of the stages before, or what half maps allow
    trials: list[StrengthTrial]  # In their order
    bounds: GeometryBounds
    limited_by: list[str]  # The bounds that a larger strength exceeds; empty where none does

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers; None in place of what is no finite number."""
        return _finite(asdict(self))


def find_final_strength(
    measure: Callable[[float], StrengthTrial | None], bounds: GeometryBounds, most: float
) -> StrengthFound | None:
    """Return the largest strength at which the geometry stays within bounds, nearly.

    By how much bonds and angles exceed their bounds grows nearly linearly with the logarithm of the strength, and counts of
    outliers with the strength, so that the next trial is where a line through two crosses zero. The least strength is tried
    only where counts, of which it allows more, or the bracket ask for it. `measure`: relaxes the model at a strength in kJ/mol
    per fitted atom; None where it is to stop. Returns the least strength, `LEAST`, where the geometry is within bounds at none;
    None where it was to stop.
    """
    trials: list[StrengthTrial] = []
    strength = most
    while True:
        trial = measure(strength)
        if trial is None:
            return None
        trials.append(trial)
        if strength <= LEAST < most:
            bounds = bounds.allowing(trial)
        if not bounds.exceeded_by(trials[0]):
            return StrengthFound(most, most, trials, bounds, [])
        beyond = min((each for each in trials if bounds.exceeded_by(each)), key=lambda each: each.strength)
        limited_by = bounds.exceeded_by(beyond)
        within = max((each.strength for each in trials if each.strength < beyond.strength), default=None)
        if beyond.strength <= LEAST:
            return StrengthFound(min(LEAST, most), most, trials, bounds, limited_by)
        crossing = _crossing(trials, limited_by, bounds)
        farthest = beyond.strength if crossing is None else min(beyond.strength, crossing)
        if within is not None and farthest <= NEAR_ENOUGH * within:
            return StrengthFound(within, most, trials, bounds, limited_by)
        counts = any(name.endswith("count") for name in limited_by)
        unpulled = counts and min(each.strength for each in trials) > LEAST
        strength = LEAST if unpulled else _next(crossing, within, beyond.strength)


def _crossing(trials: list[StrengthTrial], limited_by: list[str], bounds: GeometryBounds) -> float | None:
    """Return the strength at which the first of what limits it comes to its bound; None where that is not known."""
    found = [
        (_crossing_of_count if name.endswith("count") else _crossing_of_rmsz)(
            trials, name, getattr(bounds, name)
        )
        for name in limited_by
    ]
    return min((each for each in found if each is not None), default=None)


def _crossing_of_count(trials: list[StrengthTrial], name: str, bound: int) -> float | None:
    """Return where a line through the counts of the nearest trials on both sides of a bound crosses it."""
    counts = sorted((each.strength, getattr(each, name)) for each in trials if math.isfinite(each.angle_rmsz))
    above = next((each for each in counts if each[1] > bound), None)
    below = max((each for each in counts if above is not None and each[0] < above[0]), default=None)
    if above is None or below is None:
        return None
    part = (bound + 0.5 - below[1]) / (above[1] - below[1])
    return below[0] + part * (above[0] - below[0])


def _crossing_of_rmsz(trials: list[StrengthTrial], name: str, bound: float) -> float | None:
    """Return where bonds or angles come to their bound: of each by itself, as the other may change little with the pull."""
    ratios = {each.strength: getattr(each, name) / bound for each in trials}
    known = {math.log(at): math.log(ratio) for at, ratio in ratios.items() if 0 < ratio < math.inf}
    nearest = sorted(known, key=lambda at: abs(known[at]))[:2]
    if not nearest:
        return None
    first, last = nearest[0], nearest[-1]
    slope = _USUAL_SLOPE if first == last else (known[first] - known[last]) / (first - last)
    return math.exp(first - known[first] / max(slope, _LEAST_SLOPE))


def _next(crossing: float | None, within: float | None, beyond: float) -> float:
    """Return the strength to try next: with a quarter of the bracket on either side, or `NEAR_ENOUGH` where there is room."""
    below = LEAST if within is None else within
    if crossing is None:
        return LEAST if within is None else math.sqrt(below * beyond)
    wanted = crossing / NEAR_ENOUGH**0.5
    if within is None and wanted < NEAR_ENOUGH * LEAST:
        return LEAST
    margin = min(max((beyond / below) ** 0.25, NEAR_ENOUGH), (beyond / below) ** 0.5)
    return min(max(wanted, below * margin), beyond / margin)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
