"""A few atoms among fixed ones in a Context of OpenMM: what `compiled_dynamics` does faster, for any force field."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import openmm
from openmm import app

from ..descent import descend
from ..stability import Safeguard, Unstable, hottest_bearable
from .annealing import QUENCH, SOFT, TIMESTEP, hardness_at, seed_of

# Steps of steepest descent before what became unstable is tried again.
_DESCENT = 50


class LocalContext:
    """A System of some atoms on OpenMM's CPU platform.

    Positions are arrays of shape (M, 3) in nm.

    Parameters
    ----------
    topology : openmm.app.Topology
        Names the atoms where something blows up.
    system : openmm.System
        With the parameter "hardness".
    threads : int
        Of the CPU platform.
    """

    def __init__(self, topology: app.Topology, system: openmm.System, threads: int = 1) -> None:
        self._integrator = openmm.VerletIntegrator(TIMESTEP)
        platform = openmm.Platform.getPlatformByName("CPU")
        properties = {"Threads": str(threads), "DeterministicForces": "true"}
        self._context = openmm.Context(system, self._integrator, platform, properties)
        self._safeguard = Safeguard(topology, system)

    def lowered(self, positions: np.ndarray, hardness: float, iterations: int) -> tuple[float, np.ndarray]:
        """Return the energy in kJ/mol after so many iterations of a minimisation, and the positions."""
        self._set_positions(positions, hardness)
        attempts = (partial(self._minimize, iterations), partial(self._minimize_carefully, iterations))
        self._safeguard.run(self._context, attempts)
        return self._energy(), self._positions()

    def annealed(
        self, positions: np.ndarray, temperatures: Sequence[float], steps: int, seed: int = 1
    ) -> np.ndarray:
        """Return the positions after so many steps from each temperature in K, and a short minimisation."""
        self._set_positions(positions, SOFT)

        def anneal(timestep: float) -> None:
            self._integrator.setStepSize(timestep)
            for number, kelvin in enumerate(temperatures):
                self._context.setParameter("hardness", hardness_at(number, len(temperatures)))
                self._context.setVelocitiesToTemperature(kelvin, seed_of(seed, number))
                self._integrator.step(steps)
            self._minimize(QUENCH)

        def anneal_carefully() -> None:
            descend(self._context, _DESCENT)
            anneal(TIMESTEP / 2)

        hottest = hottest_bearable(max(temperatures))
        self._safeguard.run(self._context, (lambda: anneal(TIMESTEP), anneal_carefully), hottest)
        return self._positions()

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol."""
        self._set_positions(positions, 1.0)
        return self._energy()

    def _energy(self) -> float:
        energy = self._context.getState(energy=True).getPotentialEnergy()._value
        if not np.isfinite(energy):
            raise Unstable("the energy is not a number")
        return energy

    def _positions(self) -> np.ndarray:
        return np.asarray(self._context.getState(positions=True).getPositions(asNumpy=True)._value)

    def _set_positions(self, positions: np.ndarray, hardness: float) -> None:
        self._context.setPositions(positions)
        self._context.setParameter("hardness", hardness)

    def _minimize(self, iterations: int) -> None:
        openmm.LocalEnergyMinimizer.minimize(self._context, maxIterations=iterations)

    def _minimize_carefully(self, iterations: int) -> None:
        descend(self._context, _DESCENT)
        self._minimize(iterations)
