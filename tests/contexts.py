"""Systems of the forces under test alone, and Contexts of any System and what they say, with positions in Å."""

from __future__ import annotations

from typing import Any

import numpy as np
import openmm
from openmm import unit


def system_of(n: int, *added: openmm.Force, box: Any = None) -> openmm.System:
    system = openmm.System()
    for _ in range(n):
        system.addParticle(12.0)
    for force in added:
        system.addForce(force)
    if box is not None:
        system.setDefaultPeriodicBoxVectors(*box)
    return system


def context_of(
    system: openmm.System,
    positions: np.ndarray | None = None,
    platform: str = "Reference",
    integrator: openmm.Integrator | None = None,
) -> openmm.Context:
    properties = {"Threads": "2"} if platform == "CPU" else {}
    integrator = integrator or openmm.VerletIntegrator(0.001)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform), properties)
    if positions is not None:
        context.setPositions(positions / 10)
    return context


def energy_of(context: openmm.Context, **arguments: Any) -> float:
    state = context.getState(energy=True, **arguments)
    return state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)


def forces_of(context: openmm.Context, **arguments: Any) -> np.ndarray:
    found = context.getState(forces=True, **arguments).getForces(asNumpy=True)
    return np.array(found.value_in_unit(unit.kilojoule_per_mole / unit.nanometer))
