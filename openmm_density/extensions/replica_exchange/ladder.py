"""In what replicas differ: strength, temperature, or the resolution of the density."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...base.errors import InputError, as_argument
from ...base.units import takes_units

ROOM_TEMPERATURE = 300.0
"""K."""


@takes_units("resolution", strength="kJ/mol", temperature="K")
@dataclass(frozen=True)
class Rung:
    """What a replica is simulated at.

    Attributes
    ----------
    strength : float
        Of the density, in kJ/mol per fitted atom.
    temperature : float
        In K.
    resolution : float, optional
        In Å, that the Gaussians of the atoms have; by default that of the density force.
    """

    strength: float
    temperature: float = ROOM_TEMPERATURE
    resolution: float | None = None


@dataclass(frozen=True)
class Ladder:
    """The rungs of replicas that exchange, from the freest to the one that the result is taken from.

    Attributes
    ----------
    rungs : tuple of Rung
        At least two. From one to the next the strength never falls, and neither temperature nor resolution (in Å) rises.

    Raises
    ------
    InputError
        Saying what is wrong.
    """

    rungs: tuple[Rung, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rungs", tuple(self.rungs))
        if len(self.rungs) < 2:
            raise InputError(
                "must be at least 2", argument="replicas", found=len(self.rungs), remedy="give 4 to 16"
            )
        for name, least in (("strength", 0.0), ("temperature", 1e-3)):
            values = [getattr(rung, name) for rung in self.rungs]
            if not all(math.isfinite(value) and value >= least for value in values):
                words = "positive" if least else "not negative"
                raise InputError(
                    f"must be finite and {words}", argument=name, found=values, remedy="correct it"
                )
        named = [rung.resolution is not None for rung in self.rungs]
        if any(named) and not all(named):
            raise InputError(
                "must be given for all rungs or for none", argument="resolution", remedy="add the others"
            )
        for below, above in zip(self.rungs, self.rungs[1:]):
            self._check_step(below, above)

    def _check_step(self, below: Rung, above: Rung) -> None:
        steps = (
            above.strength - below.strength,
            below.temperature - above.temperature,
            (below.resolution or 0.0) - (above.resolution or 0.0),
        )
        if min(steps) < 0:
            raise InputError(
                "must change in one direction: strengths rise, temperatures and resolutions (in Å) fall",
                argument="ladder",
                found=f"{below} before {above}",
                remedy=f"sort the rungs, or take {as_argument('Ladder')}.of_strength(low, high, replicas)",
            )

    def __len__(self) -> int:
        return len(self.rungs)

    @classmethod
    def between(cls, first: Rung, last: Rung, replicas: int) -> Ladder:
        """Return a ladder from one rung to another, whose strengths, temperatures and resolutions change geometrically."""
        strengths = _geometric("strength", first.strength, last.strength, replicas)
        temperatures = _geometric("temperature", first.temperature, last.temperature, replicas)
        resolutions: list[float | None] = [None] * replicas
        if first.resolution is not None and last.resolution is not None:
            resolutions = [*_geometric("resolution", first.resolution, last.resolution, replicas)]
        return cls(tuple(map(Rung, strengths, temperatures, resolutions)))

    @classmethod
    @takes_units(temperature="K")
    def of_strength(
        cls, low: float, high: float, replicas: int, temperature: float = ROOM_TEMPERATURE
    ) -> Ladder:
        """Return a ladder of strengths (kJ/mol per fitted atom) from low to high."""
        return cls.between(Rung(low, temperature), Rung(high, temperature), replicas)

    @classmethod
    @takes_units(strength="kJ/mol")
    def of_temperature(cls, high: float, low: float, replicas: int, strength: float) -> Ladder:
        """Return a ladder of temperatures (K) from high to low."""
        return cls.between(Rung(strength, high), Rung(strength, low), replicas)

    @classmethod
    @takes_units(strength="kJ/mol", temperature="K")
    def of_resolution(
        cls, coarse: float, fine: float, replicas: int, strength: float, temperature: float = ROOM_TEMPERATURE
    ) -> Ladder:
        """Return a ladder of resolutions (Å) from coarse to fine."""
        return cls.between(Rung(strength, temperature, coarse), Rung(strength, temperature, fine), replicas)

    @property
    def strengths(self) -> np.ndarray:
        """In kJ/mol per fitted atom, shape (R,)."""
        return np.array([rung.strength for rung in self.rungs])

    @property
    def temperatures(self) -> np.ndarray:
        """In K, shape (R,)."""
        return np.array([rung.temperature for rung in self.rungs])

    @property
    def has_one_temperature(self) -> bool:
        """Whether all replicas are as warm."""
        return len({rung.temperature for rung in self.rungs}) == 1

    @property
    def has_one_resolution(self) -> bool:
        """Whether all replicas feel the same density."""
        return len({rung.resolution for rung in self.rungs}) == 1


def _geometric(name: str, begin: float, end: float, replicas: int) -> list[float]:
    if not (isinstance(replicas, int) and replicas >= 2):
        raise InputError("must be at least 2", argument="replicas", found=replicas, remedy="give 4 to 16")
    if not (math.isfinite(begin) and math.isfinite(end) and min(begin, end) > 0):
        raise InputError(
            "must be positive at both ends, as it changes geometrically",
            argument=name,
            found=f"{begin} and {end}",
            remedy="give a small number in place of 0",
        )
    # Both ends are exact, and equal ends have no steps of rounding between them.
    ratio = end / begin
    inner = [begin * ratio ** (number / (replicas - 1)) for number in range(1, replicas - 1)]
    return [float(begin), *inner, float(end)]
