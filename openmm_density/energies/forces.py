"""Energy modules as OpenMM forces, through one of several adapters."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import openmm
import torch
from openmm import unit

from ..base.errors import InputError, as_argument, level_outside
from ..base.plugins import openmm_torch_problem, openmmtorch, platform_names
from . import native_force
from .modules import ProbeEnergy
from .native_force.forms import kernel_problem

ON_ALL_PLATFORMS = ("TorchForce", "NativeForce", "PythonTorchForce", "PythonForce")
BACKENDS = (*ON_ALL_PLATFORMS, "CudaGraphForce")
# One implementation under two names: the second is refused where there is no CUDA platform.
OWN = ("NativeForce", "CudaGraphForce")
# What runs without openmm-torch and is no slower stands in for it without a warning.
_AS_GOOD = ("TorchForce", "NativeForce")
WITH_DERIVATIVES = ("TorchForce", *OWN)


class BackendUnavailable(InputError):
    """The installed versions do not provide a way of adding a force, or it does not work."""


class _Computation:
    """Call an energy module with what a ``State`` holds; picklable, on the CPU, so that a System can be serialised."""

    def __init__(self, module: torch.nn.Module, parameter_name: str, periodic: bool) -> None:
        self.module = module
        self.parameter_name = parameter_name
        self.periodic = periodic
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "module": copy.deepcopy(self.module).cpu(),
            "parameter_name": self.parameter_name,
            "periodic": self.periodic,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def parameter(self, state: openmm.State) -> float:
        return state.getParameters()[self.parameter_name]

    def box(self, state: openmm.State) -> np.ndarray | None:
        """Return the box vectors in rows, in nm, if the module takes them."""
        if not self.periodic:
            return None
        vectors = state.getPeriodicBoxVectors().value_in_unit(unit.nanometer)
        return np.array([tuple(vector) for vector in vectors])


class _PythonForceComputation(_Computation):
    """What `openmm.PythonForce` calls: positions come from the CPU and forces go back there, on every platform."""

    def __init__(
        self,
        module: torch.nn.Module,
        parameter_name: str,
        periodic: bool,
        device: torch.device | None = None,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__(module, parameter_name, periodic)
        self.device = device
        self.cuda_graphs = cuda_graphs
        self.used_device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._evaluation: _CudaEvaluation | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "device": self.device, "cuda_graphs": self.cuda_graphs}

    def __call__(self, state: openmm.State) -> tuple[float, np.ndarray]:
        positions = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
        k, box = self.parameter(state), self.box(state)
        if self.used_device.type == "cuda":
            # One Context at a time has the buffers.
            with self._lock:
                if self._evaluation is None or self._evaluation.n_particles != len(positions):
                    self._evaluation = _CudaEvaluation(
                        self.module, len(positions), self.periodic, self.used_device, self.cuda_graphs
                    )
                return self._evaluation(positions, box, k)
        inputs = [torch.from_numpy(np.ascontiguousarray(positions))]
        if box is not None:
            inputs.append(torch.from_numpy(box))
        energy, forces = self.module(*inputs, torch.tensor(k, dtype=torch.float64))
        return float(energy), forces.numpy()


class _CudaEvaluation:
    """A module on a GPU for positions on the CPU: one copy there and one back, and with CUDA graphs one launch for all of it."""

    # They compile kernels and check tables, which cannot be captured.
    WARM_UP_STEPS = 3

    def __init__(
        self,
        module: torch.nn.Module,
        n_particles: int,
        periodic: bool,
        device: torch.device,
        cuda_graphs: bool,
    ) -> None:
        self.module = copy.deepcopy(module).to(device)
        self.n_particles = n_particles
        self.stream = torch.cuda.Stream(device)
        self.graph = torch.cuda.CUDAGraph() if cuda_graphs else None
        self.warm_up_steps = 0
        n_coordinates = 3 * n_particles
        sizes = (n_coordinates, 9 if periodic else 0, 1)
        self.sent = torch.empty(sum(sizes), dtype=torch.float64, pin_memory=True)
        self.received = torch.empty(n_coordinates + 1, dtype=torch.float64, pin_memory=True)
        self.inputs = self.sent.to(device)
        self.outputs = self.received.to(device)
        positions, box, k = self.inputs.split(sizes)
        self.arguments = [positions.view(-1, 3), *([box.view(3, 3)] if periodic else []), k.view(())]

    def __call__(self, positions: np.ndarray, box: np.ndarray | None, k: float) -> tuple[float, np.ndarray]:
        n_coordinates = 3 * self.n_particles
        sent = self.sent.numpy()
        sent[:n_coordinates] = positions.reshape(-1)
        if box is not None:
            sent[n_coordinates:-1] = box.reshape(-1)
        sent[-1] = k
        with torch.cuda.stream(self.stream), torch.no_grad():
            if self.graph is None or self.warm_up_steps < self.WARM_UP_STEPS:
                self._evaluate()
                self.warm_up_steps += 1
            elif self.warm_up_steps == self.WARM_UP_STEPS:
                # OpenMM goes on meanwhile in other threads.
                with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                    self._evaluate()
                self.warm_up_steps += 1
                self.graph.replay()
            else:
                self.graph.replay()
        self.stream.synchronize()
        received = self.received.numpy()
        return float(received[-1]), received[:-1].reshape(-1, 3).copy()

    def _evaluate(self) -> None:
        self.inputs.copy_(self.sent, non_blocking=True)
        energy, forces = self.module(*self.arguments)
        self.outputs[:-1].copy_(forces.reshape(-1))
        self.outputs[-1:].copy_(energy.reshape(1))
        self.received.copy_(self.outputs, non_blocking=True)


class _PythonTorchForceComputation(_Computation):
    """What openmm-torch's PythonTorchForce calls: positions are a tensor on the platform's device."""

    def __init__(self, module: torch.nn.Module, parameter_name: str, periodic: bool) -> None:
        super().__init__(module, parameter_name, periodic)
        self._on_devices: dict[torch.device, torch.nn.Module] = {}

    def __call__(self, state: openmm.State, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        device = positions.device
        with self._lock:
            if device not in self._on_devices:
                self._on_devices[device] = copy.deepcopy(self.module).to(device)
        inputs = [positions.detach()]
        box = self.box(state)
        if box is not None:
            inputs.append(torch.from_numpy(box).to(device))
        k = torch.full((), self.parameter(state), dtype=torch.float64, device=device)
        return self._on_devices[device](*inputs, k)


def create_force(
    module: torch.nn.Module,
    parameter_name: str,
    default: float,
    *,
    periodic: bool,
    name: str,
    backend: str = "auto",
    force_group: int = 0,
    parameter_derivative: bool | None = None,
    device: torch.device | str | None = None,
    cuda_graphs: bool = False,
    of_particles: tuple[np.ndarray, Callable[[], torch.nn.Module]] | None = None,
) -> openmm.Force:
    """Wrap an energy module as an OpenMM force with one global parameter."""
    if backend == "auto":
        backend = best_backend(module)
    _check_backend(backend, bool(parameter_derivative), module)
    where = _device(backend, device, cuda_graphs), cuda_graphs
    derivative = backend in WITH_DERIVATIVES if parameter_derivative is None else parameter_derivative
    force = _construct(backend, module, parameter_name, default, periodic, derivative, *where, of_particles)
    force.setForceGroup(force_group)
    force.setName(name)
    return force


def _check_backend(backend: str, parameter_derivative: bool, module: torch.nn.Module) -> None:
    """Raise an error where a backend is not known, does not work here, or has no parameter derivatives but should."""
    if backend not in BACKENDS:
        raise InputError(
            "must be a known backend",
            argument="backend",
            found=f'"{backend}"',
            remedy=f'use "auto", {", ".join(BACKENDS)}',
        )
    problem = _problem_with(backend, module)
    if problem is not None:
        raise BackendUnavailable(f'backend="{backend}" does not work here: {problem}')
    if parameter_derivative and backend not in WITH_DERIVATIVES:
        raise InputError(
            f"{backend} has no energy derivatives with respect to parameters",
            remedy=f"use {' or '.join(WITH_DERIVATIVES[:2])}, or {as_argument('parameter_derivative', False)}",
        )


def best_backend(module: torch.nn.Module | None = None) -> str:
    """Return the first backend that works here; warn, saying why, when that is slower than TorchForce."""
    problems = []
    for backend in ON_ALL_PLATFORMS:
        problem = _problem_with(backend, module)
        if problem is None:
            if backend not in _AS_GOOD:
                warnings.warn(f"using {backend}, because {'; '.join(problems)}", stacklevel=level_outside())
            return backend
        problems.append(f"{backend} does not work here ({problem.rstrip('.')})")
    raise BackendUnavailable(
        f"no way to add a torch energy to OpenMM works here: {'; '.join(problems)}; "
        "`pip install 'openmm-density[torchforce]'` installs versions that fit together."
    )


def _problem_with(backend: str, module: torch.nn.Module | None) -> str | None:
    """Return why a backend does not work here, or not for that energy."""
    problem = backend_problem(backend)
    if problem is None and backend == "NativeForce" and module is not None:
        problem = kernel_problem(module)
    return problem


@functools.cache
def backend_problem(backend: str) -> str | None:
    """Return why a backend does not work here, or None where a one-atom System with it gives the right force."""
    platform = "CUDA" if backend == "CudaGraphForce" else "Reference"
    if platform not in platform_names():
        return "this OpenMM has no CUDA platform; on a machine with an NVIDIA GPU, pip install 'openmm[cuda13]' adds it"
    if backend == "TorchForce" and (problem := openmm_torch_problem()) is not None:
        return problem
    try:
        force = _construct(backend, ProbeEnergy(), "k", 3.0, periodic=False)
    except BackendUnavailable as error:
        return str(error)
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
            system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName(platform)
        )
        context.setPositions([openmm.Vec3(1, 2, 3)])
        state = context.getState(getEnergy=True, getForces=True)
    except Exception as error:
        return f"its first evaluation fails: {str(error).strip().splitlines()[0]}"
    force = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    if not np.allclose(force, [[-6.0, -12.0, -18.0]], rtol=1e-5):
        return f"its first evaluation gives a wrong force ({force[0]})"
    return None


def _device(backend: str, device: torch.device | str | None, cuda_graphs: bool) -> torch.device | None:
    if cuda_graphs and backend == "PythonTorchForce":
        raise InputError(
            "is not for PythonTorchForce",
            argument="cuda_graphs",
            remedy=f"leave it out, or name another {as_argument('backend')}",
        )
    if device is None:
        return None
    if backend != "PythonForce":
        raise InputError(
            f"is for PythonForce, and with {backend} the platform decides",
            argument="device",
            remedy="leave it out",
        )
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"cannot be used ({str(error).strip().splitlines()[0]})",
            argument="device",
            found=f'"{device}"',
            remedy='use "cpu", or "cuda" where torch finds a GPU',
        ) from None
    return found


def _construct(
    backend: str,
    module: torch.nn.Module,
    parameter_name: str,
    default: float,
    periodic: bool,
    derivative: bool = False,
    device: torch.device | None = None,
    cuda_graphs: bool = False,
    of_particles: tuple[np.ndarray, Callable[[], torch.nn.Module]] | None = None,
) -> openmm.Force:
    """Make a force, with the derivative where the backend has one."""
    if backend in OWN:
        return _own_force(backend, module, parameter_name, default, periodic, derivative, of_particles)
    parameters = {parameter_name: default}
    if backend == "TorchForce":
        force = openmmtorch().TorchForce(torch.jit.script(module))
        force.setOutputsForces(True)
        force.addGlobalParameter(parameter_name, default)
        if derivative:
            force.addEnergyParameterDerivative(parameter_name)
        if cuda_graphs:
            force.setProperty("useCUDAGraphs", "true")
    else:
        kind = openmmtorch().PythonTorchForce if backend == "PythonTorchForce" else openmm.PythonForce
        particles = None
        if of_particles is not None and hasattr(kind, "setParticles"):
            particles, make = of_particles
            module = make()
        if backend == "PythonTorchForce":
            computation: Any = _PythonTorchForceComputation(module, parameter_name, periodic)
        else:
            computation = _PythonForceComputation(module, parameter_name, periodic, device, cuda_graphs)
        force = kind(computation, parameters)
        if particles is not None:
            force.setParticles([int(particle) for particle in particles])
    force.setUsesPeriodicBoundaryConditions(periodic)
    return force


def _own_force(
    backend: str,
    module: torch.nn.Module,
    parameter_name: str,
    default: float,
    periodic: bool,
    derivative: bool,
    of_particles: tuple[np.ndarray, Callable[[], torch.nn.Module]] | None = None,
) -> openmm.Force:
    particles = None
    if of_particles is not None:
        particles, make = of_particles
        module = make()
    computation = native_force.Computation(module, particles, periodic)
    try:
        return native_force.make_force(computation, parameter_name, default, derivative, kind=backend)
    except native_force.BuildError as error:
        said = f" ({error.first_error})" if error.first_error else ""
        raise BackendUnavailable(f"{error}{said}") from error
    except OSError as error:
        raise BackendUnavailable(f"it cannot be stored or loaded ({error})") from error


def own_backend(platform: str) -> tuple[str, str | None]:
    """Return which forces of our own a platform has, and why they do not work here: found out once, in a second on a GPU."""
    backend = "CudaGraphForce" if platform == "CUDA" else "NativeForce"
    return backend, backend_problem(backend)
