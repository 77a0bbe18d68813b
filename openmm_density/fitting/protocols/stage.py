"""A part of a fit: so many steps, with what pulls, what restrains and how warm it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import InputError, as_argument
from ...base.units import takes_units
from ...restraints.names import DEFAULT_STAGE_RESTRAINTS, RESTRAINT_NAMES
from .numbers import answered_by_extension, check_count, check_flag, check_number, number_pair

# K: beyond it no molecule holds together.
HIGHEST_TEMPERATURE = 5000.0
LARGEST_SCALE = 10.0
"""Of the fit's strength in a stage: more is meant in kJ/mol."""

STARTS = ("any", "near", "far")


@takes_units("resolution", temperature="K", pressure="bar")
@dataclass(frozen=True)
class Stage:
    """A part of a fit.

    Attributes
    ----------
    name : str
        As the log and the display call it.
    steps : int
        Of molecular dynamics; the most, where it ends once converged.
    strength : tuple of float
        The scale of k at its begin and end: parts of the protocol's full strength, changing geometrically. 0 is no density, 1
        the full strength, and `LARGEST_SCALE` the most.
    temperature : tuple of float
        In K, at its begin and end, changing linearly.
    resolution : float, optional
        In Å: the map is blurred to it. By default it is taken as it is.
    restraints : tuple of str
        Which of `RESTRAINT_NAMES` act.
    pressure : float, optional
        In bar: the box adapts to it. Only in water, and for a stage without density and with the restraint "position", as the box
        moves what is in it against the map.
    adaptive : bool
        Whether the strength also follows the similarity, see `openmm_density.fitting.adaptive_strength.AdaptiveStrength`.
    until_converged : bool
        Whether the stage ends early once similarity and model no longer change, see `openmm_density.fitting.convergence.Plateau`.
    register : bool
        Whether stretches are shifted by a residue where they then fit better, and then rotamers fitted, before the stage
        begins.
    rotamers : bool
        Whether side chains are put into the rotamers that fit best before the stage begins.
    exchange : bool
        Whether replicas on a ladder exchange, see `ReplicaExchange`: from the begin to the end of strength and
        temperature, both geometrically, each for all steps of the stage. The best of them goes on.
    final : bool
        Whether the stage, one of the last, runs at the final strength, of which its ``strength`` are then parts, and with a stiff
        geometry, see `openmm_density.fitting.final_geometry`.
    start : {"any", "near", "far"}
        For which starts the stage is: all, or those near or far from their density, see `Protocol.from_start`.
    """

    name: str
    steps: int
    strength: tuple[float, float] = (1.0, 1.0)
    temperature: tuple[float, float] = (300.0, 300.0)
    resolution: float | None = None
    restraints: tuple[str, ...] = DEFAULT_STAGE_RESTRAINTS
    pressure: float | None = None
    adaptive: bool = False
    until_converged: bool = False
    register: bool = answered_by_extension(False)
    rotamers: bool = answered_by_extension(False)
    exchange: bool = answered_by_extension(False)
    final: bool = False
    start: str = "any"

    def __post_init__(self) -> None:
        check_stage_name(self.name)
        where = f'stage "{self.name}"'
        check_count("steps", self.steps, 0, where)
        for name, least in (("strength", 0.0), ("temperature", 1.0)):
            object.__setattr__(self, name, number_pair(name, getattr(self, name), least, where))
        if max(self.strength) > LARGEST_SCALE:
            raise InputError(
                f"is a part of the fit's strength, where 1 is all of it and {LARGEST_SCALE:g} the most",
                argument="strength",
                source=where,
                found=list(self.strength),
                remedy="give kJ/mol as the strength of the protocol, before its stages",
            )
        if max(self.temperature) > HIGHEST_TEMPERATURE:
            raise too_hot(max(self.temperature), where)
        if (self.strength[0] == 0) != (self.strength[1] == 0):
            raise InputError(
                "changes geometrically, so that both or neither of its ends must be 0",
                argument="strength",
                source=where,
                found=list(self.strength),
                remedy="give a small number in place of 0",
            )
        if self.resolution is not None:
            check_number("resolution", self.resolution, "Å, such as 8.0", where)
        object.__setattr__(self, "restraints", checked_restraints(self.restraints, where))
        if self.start not in STARTS:
            raise InputError(
                f"must be one of {', '.join(STARTS)}",
                argument="start",
                source=where,
                found=repr(self.start),
                remedy="choose one of these",
            )
        if self.pressure is not None:
            check_number("pressure", self.pressure, "bar, such as 1", where)
            if self.strength[1] > 0 or "position" not in self.restraints:
                raise InputError(
                    "moves the model against the map, and so needs a stage without density and with positions restrained",
                    argument="pressure",
                    source=where,
                    remedy=f'set {as_argument("strength")} to 0, and add "position" to {as_argument("restraints")}',
                )
        for name in ("adaptive", "until_converged", "register", "rotamers", "exchange", "final"):
            check_flag(name, getattr(self, name), where)
        if self.exchange:
            self._check_exchange(where)

    def _check_exchange(self, where: str) -> None:
        """Refuse what is no ladder from a weak density, and perhaps heat, to a strong one."""
        if self.adaptive or self.until_converged:
            raise InputError(
                f"keeps its strengths and steps, and goes with neither {as_argument('adaptive')} nor "
                f"{as_argument('until_converged')}",
                argument="exchange",
                source=where,
                remedy="leave these out",
            )
        low, high = self.strength
        if not 0 < low <= high:
            raise InputError(
                "is a ladder here, from a weak density to a strong one",
                argument="strength",
                source=where,
                found=list(self.strength),
                remedy="give two parts of the full strength such as [0.1, 1.0]",
            )
        if self.temperature[0] < self.temperature[1]:
            raise InputError(
                "is a ladder here, which begins hot where the density is weak",
                argument="temperature",
                source=where,
                found=list(self.temperature),
                remedy="give the higher one first, such as [450.0, 300.0], or one for all replicas",
            )

    def scale_at(self, part: float) -> float:
        """Return k, as a part of the full strength, when that part (0…1) of the stage is done."""
        begin, end = self.strength
        return 0.0 if begin == 0 else begin * (end / begin) ** part

    def temperature_at(self, part: float) -> float:
        """Return the temperature in K when that part (0…1) of the stage is done."""
        begin, end = self.temperature
        return begin + part * (end - begin)


def check_stage_name(name: Any) -> None:
    """Refuse a name of a stage that is no printable text."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InputError(
            "of a stage must be a word or two",
            argument="name",
            found=repr(name),
            remedy="give printable text",
        )


def too_hot(temperature: float, source: str | None = None) -> InputError:
    """Return the error for a temperature in K that is above `HIGHEST_TEMPERATURE`, of a stage where ``source`` names it."""
    return InputError(
        f"must be at most {HIGHEST_TEMPERATURE:g} K",
        argument="temperature",
        source=source,
        found=temperature,
        remedy="give a lower one, such as 300",
    )


def checked_restraints(names: Any, source: str | None = None) -> tuple[str, ...]:
    """Return restraint names in the order of `RESTRAINT_NAMES`."""
    is_list = isinstance(names, Collection) and not isinstance(names, (str, Mapping))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise InputError(
            "must be a list of names",
            argument="restraints",
            source=source,
            found=repr(names),
            remedy=f"use some of {', '.join(RESTRAINT_NAMES)}",
        )
    unknown = [name for name in names if name not in RESTRAINT_NAMES]
    if unknown:
        raise InputError(
            "must hold known names",
            argument="restraints",
            source=source,
            found=f'"{unknown[0]}"',
            remedy=f"use some of {', '.join(RESTRAINT_NAMES)}",
        )
    return tuple(name for name in RESTRAINT_NAMES if name in names)
