"""Try one way of adding a force on one platform, or the kernels on the GPU, in this process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any

import numpy as np
import torch
from openmm import Context, LangevinMiddleIntegrator, Platform, System, unit

from openmm_density.kernels.library import Example, operator_folders

from ...energies.forces import BackendUnavailable, create_force
from ...energies.modules import ProbeEnergy
from .diagnosis import GpuKernel, Probe

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


def probe_gpu() -> Iterator[GpuKernel]:
    """Try every operator on the GPU, in this process, and compare with the CPU."""
    for name, call in gpu_calls().items():
        expected = call(torch.device("cpu"))
        problem = None
        start = time.perf_counter()
        try:
            found = [result.cpu() for result in call(torch.device("cuda"))]
        except Exception as error:
            problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        else:
            for one, other in zip(found, expected, strict=True):
                if not torch.allclose(
                    one.double(), other.double(), rtol=1e-4, atol=1e-4 * float(other.abs().max())
                ):
                    problem = "another result than on the CPU"
        yield GpuKernel(name, problem is None, problem, round(time.perf_counter() - start, 3))


def gpu_calls() -> dict[str, Callable[[torch.device], tuple[torch.Tensor, ...]]]:
    """Return a small evaluation of every operator: the ``example.py`` of each folder of `openmm_density.kernels`."""
    found: dict[str, Example] = {}
    for folder in operator_folders():
        found |= import_module(f"openmm_density.kernels.{folder}.example").examples()
    return {name: functools.partial(_call, *example) for name, example in found.items()}


def _call(
    operator: Callable[..., Any], arguments: tuple[Any, ...], device: torch.device
) -> tuple[torch.Tensor, ...]:
    moved = [value.to(device) if isinstance(value, torch.Tensor) else value for value in arguments]
    with torch.no_grad():
        found = operator(*moved)
    return found if isinstance(found, tuple) else (found,)
