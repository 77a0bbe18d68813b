"""Whether B factors refined in one half map agree better with the other too: what they gain there is no fit of noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..maps.density_map import DensityMap
from ..maps.half_maps import check_half_maps
from .levels import BLevel
from .model_atoms import ModelAtoms, prepared_refinement


@dataclass(frozen=True)
class LevelScore:
    """Correlations of a level refined in one half map, the mean of both ways round.

    Attributes
    ----------
    level : str
    work, free : float
        With the half map that it was refined in, and with the other.
    """

    level: str
    work: float
    free: float


@dataclass(frozen=True)
class HalfMapCheck:
    """What half maps say about the B factors of a model.

    Attributes
    ----------
    uniform : LevelScore
        With one B factor for all atoms.
    levels : list of LevelScore
        From the finest to the coarsest that was tried.
    """

    uniform: LevelScore
    levels: list[LevelScore]

    @property
    def best(self) -> str:
        """The level whose correlation with the other half map is highest."""
        return max(self.levels, key=lambda each: each.free).level

    def gain(self, level: str) -> float:
        """Return by how much the correlation with the other half map rises from one B factor to those of a level."""
        return next(each.free for each in self.levels if each.level == level) - self.uniform.free

    def notes(self, level: str) -> list[str]:
        """Return sentences for the user on what is refined."""
        scores = {each.level: each for each in self.levels}
        chosen, gain = scores[level], self.gain(level)
        said = f"from {self.uniform.free:.4f} to {chosen.free:.4f}"
        if gain <= 0:
            return [
                f"B factors per {level} refined in one half map do not agree better with the other (CC {said}): they fit noise."
            ]
        notes = [
            f"B factors per {level} refined in one half map agree better with the other too (CC {said})."
        ]
        finest = self.levels[0]
        if finest.level != level:
            notes.append(
                f"Those per {finest.level} were not taken: their CC with the other half map is {finest.free:.4f}."
            )
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists."""
        return asdict(self)


def check_levels(
    atoms: ModelAtoms,
    half_maps: Sequence[DensityMap],
    resolution: float,
    levels: Sequence[BLevel],
    bounds: tuple[float, float],
    scattering: str,
    solvent: bool,
) -> HalfMapCheck:
    """Refine each level in each half map, and score it in the other.

    Parameters
    ----------
    resolution : float
        Å.
    """
    first, second = half_maps
    check_half_maps(first, second)
    masked = [atoms.masked(each, resolution) for each in (first, second)]
    occupancies = atoms.occupancies[atoms.scattering]
    scores: dict[str, list[tuple[float, float]]] = {}
    for work, free in (masked, masked[::-1]):
        start = None
        for level in levels:
            refinement = prepared_refinement(atoms, work, level, bounds, scattering, solvent)
            if solvent:
                free.displace(refinement.scatterers.displaced(occupancies))
            if start is None:
                start = refinement.uniform()
                both = _scored(
                    refinement.scatterers, np.full(len(occupancies), start), occupancies, work, free
                )
                scores.setdefault("uniform", []).append(both)
            b_factors = refinement.b_factors(refinement.run(start).logarithms)
            both = _scored(refinement.scatterers, b_factors, occupancies, work, free)
            scores.setdefault(level.name, []).append(both)
    found = [LevelScore(name, *map(float, np.mean(values, axis=0))) for name, values in scores.items()]
    return HalfMapCheck(found[0], found[1:])


def _scored(
    scatterers: Any, b_factors: np.ndarray, occupancies: np.ndarray, work: Any, free: Any
) -> tuple[float, float]:
    density = scatterers.density(b_factors, occupancies)
    return work.compare(density, False).cc, free.compare(density, False).cc
