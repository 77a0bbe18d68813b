"""Energy modules as OpenMM forces, through whichever of three adapters works here."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit

from .errors import InputError
from .plugins import openmmtorch

BACKENDS = ("TorchForce", "PythonTorchForce", "PythonForce")


class BackendUnavailable(InputError):
    """The installed versions do not provide a way of adding a force, or it does not work."""


class _Computation:
    """Call an energy module with what a ``State`` holds; picklable, so that a System can be serialised."""

    def __init__(self, module: torch.nn.Module, parameter_name: str, periodic: bool) -> None:
        self.module = module
        self.parameter_name = parameter_name
        self.periodic = periodic

    def evaluate(self, state: openmm.State, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = [positions]
        if self.periodic:
            box = state.getPeriodicBoxVectors(asNumpy=True).value_in_unit(unit.nanometer)
            inputs.append(torch.as_tensor(np.asarray(box), dtype=torch.float64))
        strength = torch.tensor(state.getParameters()[self.parameter_name], dtype=torch.float64)
        energy, forces = self.module(*inputs, strength)
        return energy, forces


class _PythonForceComputation(_Computation):
    def __call__(self, state: openmm.State) -> tuple[float, np.ndarray]:
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        energy, forces = self.evaluate(state, torch.from_numpy(np.ascontiguousarray(positions)))
        return float(energy), forces.numpy()


class _PythonTorchForceComputation(_Computation):
    def __call__(self, state: openmm.State, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.evaluate(state, positions)


def create_force(
    module: torch.nn.Module,
    parameter_name: str,
    strength: float,
    *,
    periodic: bool,
    name: str,
    backend: str = "auto",
    force_group: int = 0,
    parameter_derivative: bool | None = None,
) -> openmm.Force:
    """Wrap an energy module as an OpenMM force with one global parameter.

    Parameters
    ----------
    module : Module
        ``module(positions, [box,] strength) -> (energy, forces)``, see `openmm_density.energies`.
    parameter_name : str
        The global parameter that is passed as the strength.
    strength : float
        Its default, in kJ/mol.
    periodic : bool
        Whether the module takes box vectors.
    name : str
        The force's name.
    backend : {"auto", "TorchForce", "PythonTorchForce", "PythonForce"}
        ``auto`` takes the first that works here, and warns when it is not ``TorchForce``.
    force_group : int
        The force group.
    parameter_derivative : bool, optional
        Whether the energy's derivative with respect to the parameter can be asked of a State; by default, where the backend can.

    Raises
    ------
    BackendUnavailable
        Where the backend does not exist or does not work here; the message says why.
    InputError
        For an unknown backend, or a derivative that the backend cannot give.
    """
    if backend == "auto":
        backend = best_backend()
    elif backend not in BACKENDS:
        raise InputError(f'backend="{backend}" is not known: use "auto", {", ".join(BACKENDS)}.')
    problem = backend_problem(backend)
    if problem is not None:
        raise BackendUnavailable(f'backend="{backend}" does not work here: {problem}')
    if parameter_derivative and backend != "TorchForce":
        raise InputError(
            f"{backend} has no energy derivatives with respect to parameters: use TorchForce, or parameter_derivative=False."
        )
    force = _construct(backend, module, parameter_name, strength, periodic)
    if backend == "TorchForce" and parameter_derivative is not False:
        force.addEnergyParameterDerivative(parameter_name)
    force.setForceGroup(force_group)
    force.setName(name)
    return force


def best_backend() -> str:
    """Give the first backend that works here; warn, saying why, when that is not TorchForce."""
    problems = []
    for backend in BACKENDS:
        problem = backend_problem(backend)
        if problem is None:
            if problems:
                warnings.warn(f"using {backend}, because {'; '.join(problems)}", stacklevel=3)
            return backend
        problems.append(f"{backend} does not work here ({problem.rstrip('.')})")
    raise BackendUnavailable(
        f"no way to add a torch energy to OpenMM works here: {'; '.join(problems)}; "
        "`pip install 'openmm-density[torchforce]'` installs versions that fit together."
    )


@functools.cache
def backend_problem(backend: str) -> str | None:
    """Say why a backend does not work here, or None where a one-atom System with it gives the right force."""
    try:
        force = _construct(backend, _OneAtom(), "k", 3.0, periodic=False)
    except ImportError as error:
        return f"it is not installed: {error}"
    except AttributeError:
        return "the installed versions do not have it"
    except Exception as error:
        return f"it cannot be made: {str(error).strip().splitlines()[0]}"
    system = openmm.System()
    system.addParticle(1.0)
    system.addForce(force)
    try:
        context = openmm.Context(
            system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
        )
        context.setPositions([openmm.Vec3(1, 2, 3)])
        state = context.getState(getEnergy=True, getForces=True)
    except Exception as error:
        return f"its first evaluation fails: {str(error).strip().splitlines()[0]}"
    force = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    if not np.allclose(force, [[-6.0, -12.0, -18.0]], rtol=1e-5):
        return f"its first evaluation gives a wrong force ({force[0]})"
    return None


def _construct(
    backend: str, module: torch.nn.Module, parameter_name: str, strength: float, periodic: bool
) -> openmm.Force:
    if backend == "TorchForce":
        force = openmmtorch().TorchForce(torch.jit.script(module))
        force.setOutputsForces(True)
        force.addGlobalParameter(parameter_name, strength)
    elif backend == "PythonTorchForce":
        computation: Any = _PythonTorchForceComputation(module, parameter_name, periodic)
        force = openmmtorch().PythonTorchForce(computation, {parameter_name: strength})
    else:
        computation = _PythonForceComputation(module, parameter_name, periodic)
        force = openmm.PythonForce(computation, {parameter_name: strength})
    force.setUsesPeriodicBoundaryConditions(periodic)
    return force


class _OneAtom(torch.nn.Module):
    """E = k x², to see whether a backend works."""

    def forward(self, positions: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            square = (positions * positions).sum()
            forces = -2 * strength.reshape(()).to(positions) * positions
        return strength.reshape(()).to(torch.float64) * square, forces.contiguous()
