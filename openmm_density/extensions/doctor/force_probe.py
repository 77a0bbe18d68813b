"""Try one way of adding a force on one platform, in this process."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np
from openmm import Context, LangevinMiddleIntegrator, Platform, System, unit

from ...energies.forces import BackendUnavailable, create_force
from ...energies.modules import ProbeEnergy
from .diagnosis import Probe

# Some OpenCL drivers (PoCL) fail in OpenMM's own kernels for a single atom, whatever the force.
PROBE_ATOMS = 64


def probe(backend: str, platform_name: str) -> dict[str, Any]:
    """Try one way of adding a force on one platform, in this process, which may not outlive it."""
    strength = 3.0
    try:
        force = create_force(
            ProbeEnergy(),
            "k",
            strength,
            periodic=False,
            name="probe",
            backend=backend,
            parameter_derivative=False,
        )
    except BackendUnavailable as error:
        problem = str(error).partition("does not work here: ")[2] or str(error)
        return {"made": False, **asdict(Probe(backend, platform_name, False, problem, None, 0.0))}
    system = System()
    for _ in range(PROBE_ATOMS):
        system.addParticle(12.0)
    system.addForce(force)
    positions = np.random.default_rng(0).random((PROBE_ATOMS, 3))
    device, problem = None, None
    start = time.perf_counter()
    try:
        integrator = LangevinMiddleIntegrator(300, 1, 0.001)
        context = Context(system, integrator, Platform.getPlatformByName(platform_name))
        device = _device(context)
        context.setPositions(positions)
        state = context.getState(getEnergy=True, getForces=True)
        energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
        if not np.isclose(energy, strength * (positions**2).sum(), rtol=1e-4):
            problem = f"a wrong energy ({energy:g} in place of {strength * (positions**2).sum():g} kJ/mol)"
        elif not np.allclose(forces, -2 * strength * positions, rtol=1e-4, atol=1e-4):
            problem = "wrong forces"
        else:
            integrator.step(2)
            context.getState(getEnergy=True)
    except Exception as error:
        problem = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    seconds = round(time.perf_counter() - start, 3)
    return {"made": True, **asdict(Probe(backend, platform_name, problem is None, problem, device, seconds))}


def _device(context: Context) -> str | None:
    used = context.getPlatform()
    names = [name for name in ("DeviceName", "OpenCLPlatformName") if name in used.getPropertyNames()]
    return ", ".join(used.getPropertyValue(context, name) for name in names) or None
