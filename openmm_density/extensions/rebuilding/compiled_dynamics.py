"""A few atoms among fixed ones, minimised and annealed by a kernel: in a seventh of OpenMM's processor time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from openmm import unit

from openmm_density.kernels import compilation
from openmm_density.kernels.local_dynamics import LocalDynamics, LocalTerms

from ...fitting.stability import ATOM_TIMES_TOO_HOT, FARTHEST, Unstable, hottest_bearable
from .annealing import QUENCH, SOFT, TIMESTEP, hardness_at, seed_of

_BOLTZMANN = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)
# What is tried again first goes down the gradient, in so many steps in which no atom moves by more than so many nm.
_DESCENT, _LONGEST_MOVE = 50, 0.01


def kernel_serves() -> bool:
    """Return whether the kernel can be compiled and loaded; where it cannot, after one warning per process.

    A fit finds it out once, for all its processes: what computes a trial does not depend on which of them does it.
    """
    otherwise = "searches of stretches and side chains go on in OpenMM, about seven times slower"
    return compilation.kernel_serves("local_dynamics", otherwise)


class CompiledDynamics:
    """What `LocalContext` does, by `openmm_density.kernels.local_dynamics`.

    Positions are arrays of shape (M, 3) in nm, in any order.

    `order` int (M,): the place of each atom of the terms, those that move first. Raises BuildError if the kernel cannot
    be compiled or loaded.
    """

    def __init__(self, terms: LocalTerms, order: np.ndarray) -> None:
        self._dynamics, self._order = LocalDynamics(terms), order
        self._masses = terms.masses

    def lowered(self, positions: np.ndarray, hardness: float, iterations: int) -> tuple[float, np.ndarray]:
        """Return the energy in kJ/mol after so many iterations of a minimisation, and the positions; see `LocalContext`."""

        def minimized(start: np.ndarray, _: float) -> tuple[np.ndarray, float]:
            energy, found = self._dynamics.minimized(start, iterations, hardness)
            return found, energy

        found, energy = self._first_sound(positions, hardness, minimized)
        return energy, found

    def annealed(
        self, positions: np.ndarray, temperatures: Sequence[float], steps: int, seed: int = 1
    ) -> np.ndarray:
        """Return the positions after so many steps from each temperature in K, and a short minimisation; see `LocalContext`."""
        hottest = ATOM_TIMES_TOO_HOT * _BOLTZMANN * hottest_bearable(max(temperatures))
        spread = np.sqrt(_BOLTZMANN / self._masses)[:, None]

        def anneal(found: np.ndarray, timestep: float) -> tuple[np.ndarray, float]:
            for number, kelvin in enumerate(temperatures):
                drawn = np.random.default_rng(seed_of(seed, number)).standard_normal((len(spread), 3))
                hardness = hardness_at(number, len(temperatures))
                velocities = np.sqrt(kelvin) * spread * drawn
                found, velocities = self._dynamics.moved(found, velocities, steps, timestep, hardness)
                kinetic = 0.5 * self._masses * (velocities**2).sum(axis=1)
                if not (kinetic < hottest).all():
                    raise Unstable("atoms became far too fast")
            energy, found = self._dynamics.minimized(found, QUENCH)
            return found, energy

        return self._first_sound(positions, SOFT, anneal)[0]

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol."""
        return self._finite(self._dynamics.energy(positions[self._order])[0])

    def _first_sound(
        self,
        positions: np.ndarray,
        hardness: float,
        attempt: Callable[[np.ndarray, float], tuple[np.ndarray, float]],
    ) -> tuple[np.ndarray, float]:
        """Return what comes of an attempt, or of one after a descent and with half the time step."""
        start = positions[self._order]
        try:
            return self._checked(start, *attempt(start, TIMESTEP))
        except Unstable:
            lowered = self._descended(start, hardness)
            return self._checked(start, *attempt(lowered, TIMESTEP / 2))

    def _checked(self, start: np.ndarray, found: np.ndarray, energy: float) -> tuple[np.ndarray, float]:
        """Return positions in the order of those that were given, and their energy."""
        moved = np.linalg.norm(found - start, axis=1)
        if not (moved < FARTHEST).all():  # nor where it is no number
            raise Unstable("atoms flew away")
        result = np.empty_like(found)
        result[self._order] = found
        return result, self._finite(energy)

    @staticmethod
    def _finite(energy: float) -> float:
        if not np.isfinite(energy):
            raise Unstable("the energy is not a number")
        return float(energy)

    def _descended(self, start: np.ndarray, hardness: float) -> np.ndarray:
        found, length = start.copy(), _LONGEST_MOVE
        energy, gradient = self._dynamics.energy(found, hardness)
        for _ in range(_DESCENT):
            largest = np.linalg.norm(gradient, axis=1).max(initial=0.0)
            if not np.isfinite(largest) or largest == 0.0:
                break
            trial = found.copy()
            trial[: len(gradient)] -= gradient * (length / largest)
            tried = self._dynamics.energy(trial, hardness)
            if tried[0] < energy or not np.isfinite(energy):
                found, (energy, gradient), length = trial, tried, min(1.2 * length, _LONGEST_MOVE)
            else:
                length *= 0.2
        return found
