"""The most probable B factors and occupancies of a model in a map, by L-BFGS on the residual with the kernels' gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from .levels import BLevel
from .masked_map import Agreement, MaskedMap
from .scatterers import Scatterers

MOST_ITERATIONS = 80
_UNIFORM_STEPS = 12
_TOLERANCE = 1e-7


@dataclass(frozen=True)
class OccupancyGroups:
    """The occupancies that are refined."""

    members: Sequence[np.ndarray] = ()  # int, the scattering atoms of each group, which have one occupancy
    alternatives: Sequence[np.ndarray] = ()  # int, groups whose occupancies have the sum 1

    def values(self, variables: np.ndarray) -> np.ndarray:
        """Return the occupancy of each group for what is varied, which is the same except for alternatives."""
        result = variables.copy()
        for each in self.alternatives:
            result[each] = variables[each] / variables[each].sum()
        return result

    def by_variables(self, variables: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the derivatives with respect to what is varied from those with respect to each group's occupancy."""
        result = gradient.copy()
        for each in self.alternatives:
            total = variables[each].sum()
            result[each] = (gradient[each] - (gradient[each] * variables[each]).sum() / total) / total
        return result


@dataclass(frozen=True)
class Refined:
    """What a refinement ends with."""

    logarithms: np.ndarray  # (G,), of the B factors of the level, each with the shift added
    occupancies: np.ndarray  # (Q,), of the groups
    agreement: Agreement  # With the map
    iterations: int
    evaluations: int


class Refinement:
    """B factors of a level, and occupancies, that are most probable in a map.

    Minimised is n/2 · ln(residual), the negative logarithm of the probability of the map whose n independent observations have
    errors of unknown size, and half the squares of what the restraints hold alike: x = ln(B + shift) of neighbours, and all x
    about that of the best uniform B factor. `bounds`: the least and the largest B factor in Å²; `occupancies` (M,) of the
    scattering atoms where they are not refined. Attributes: `shift` in Å²: a part of the width of the map's own blur. What is
    less than it tells little.
    """

    def __init__(
        self,
        masked: MaskedMap,
        scatterers: Scatterers,
        level: BLevel,
        bounds: tuple[float, float],
        occupancies: np.ndarray,
        groups: OccupancyGroups | None = None,
    ) -> None:
        self.masked, self.scatterers, self.level = masked, scatterers, level
        self.bounds, self._given = bounds, occupancies
        self.groups = groups or OccupancyGroups()
        self.shift = masked.resolution**2
        self._precision = level.precision()
        self.evaluations = 0

    def uniform(self) -> float:
        """Return the one B factor of all atoms, in Å², with which the model agrees best with the map."""
        count = len(self.level.group_of_atom)

        def residual(logarithm: float) -> float:
            b_factors = np.full(count, math.exp(logarithm) - self.shift)
            return self._compare(b_factors, self._given, False).residual

        limits = [math.log(b + self.shift) for b in self.bounds]
        found = minimize_scalar(
            residual, bounds=limits, method="bounded", options={"maxiter": _UNIFORM_STEPS, "xatol": 0.01}
        )
        return float(math.exp(found.x) - self.shift)

    def run(self, start: float, after: Refined | None = None) -> Refined:
        """Refine from a uniform B factor in Å² and the given occupancies, or from what was found before."""
        n, mean = self.level.n_groups, math.log(start + self.shift)
        limits = [math.log(b + self.shift) for b in self.bounds]
        if after is None:
            firsts = np.array([self._given[each].mean() for each in self.groups.members])
            x = np.concatenate([np.full(n, mean), np.clip(firsts, 0.05, 1.0)])
        else:
            firsts = after.occupancies
            x = np.concatenate([after.logarithms, firsts])
        bounds = [tuple(limits)] * n + [(0.0, 1.0)] * len(firsts)
        for each in self.groups.alternatives:
            for k in each:
                bounds[n + int(k)] = (1e-3, 1.0)
        found = minimize(
            self._cost,
            x,
            args=(mean,),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": MOST_ITERATIONS, "maxcor": 20, "ftol": _TOLERANCE, "gtol": 1e-3},
        )
        occupancies = self.groups.values(found.x[n:])
        agreement = self._compare(self.b_factors(found.x[:n]), self.occupancies(occupancies), False)
        return Refined(found.x[:n], occupancies, agreement, int(found.nit), self.evaluations)

    def b_factors(self, logarithms: np.ndarray) -> np.ndarray:
        """Return the B factor of each scattering atom in Å², shape (M,)."""
        return (np.exp(logarithms) - self.shift)[self.level.group_of_atom]

    def occupancies(self, values: np.ndarray) -> np.ndarray:
        """Return the occupancy of each scattering atom, shape (M,), for those of the groups."""
        result = self._given.copy()
        for members, value in zip(self.groups.members, values):
            result[members] = value
        return result

    def compare(self, b_factors: np.ndarray, occupancies: np.ndarray) -> Agreement:
        """Compare the model with the map for these B factors (Å²) and occupancies of the scattering atoms."""
        return self._compare(b_factors, occupancies, False)

    def _compare(self, b_factors: np.ndarray, occupancies: np.ndarray, differentiate: bool) -> Agreement:
        self.evaluations += 1
        return self.masked.compare(self.scatterers.density(b_factors, occupancies), differentiate)

    def _cost(self, x: np.ndarray, mean: float) -> tuple[float, np.ndarray]:
        n = self.level.n_groups
        logarithms, variables = x[:n], x[n:]
        b_factors = self.b_factors(logarithms)
        occupancies = self.occupancies(self.groups.values(variables))
        agreement = self._compare(b_factors, occupancies, True)
        by_b, by_occupancy = self.scatterers.gradients(agreement.gradient, b_factors, occupancies)
        half, residual = self.masked.n_observations / 2, max(agreement.residual, 1e-9)
        away = logarithms - mean
        held = self._precision @ away
        by_logarithm = np.bincount(self.level.group_of_atom, by_b * (b_factors + self.shift), minlength=n)
        by_group = np.array([by_occupancy[members].sum() for members in self.groups.members])
        by_variables = self.groups.by_variables(variables, by_group)
        cost = half * math.log(residual) + 0.5 * float(away @ held)
        gradient = np.concatenate([half / residual * by_logarithm + held, half / residual * by_variables])
        return cost, gradient
