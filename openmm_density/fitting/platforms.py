"""What a fit asks of OpenMM's platforms."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import openmm

from openmm_density.kernels import compilation

from ..base.plugins import platform_names
from ..base.stopwatch import counted_as
from ..base.wording import one_line
from ..energies.forces import backend_problem, own_backend
from ..energies.native_force import OWN_KERNELS, context_with_own_constraints, own_kernels
from .platform_errors import refuse_platform, without_cuda
from .run_numbers import check_threads
from .worker_process import available_cores


def repeats_itself(platform: openmm.Platform, properties: Mapping[str, str]) -> bool:
    """Return whether a state leads to the same bits in any new Context: not on GPUs, nor in several threads."""
    threads = int(properties.get("Threads") or available_cores())
    return platform.getName() == "Reference" or (platform.getName() == "CPU" and threads == 1)


def platform_properties(platform: openmm.Platform, threads: int | None = None) -> dict[str, str]:
    """Return what a Context asks of a platform: the same forces each time and sums in double precision, where it can choose."""
    wanted = {"Precision": "mixed", "DeterministicForces": "true"}
    if threads is not None:
        wanted["Threads"] = str(threads)
    return {name: value for name, value in wanted.items() if name in platform.getPropertyNames()}


def platform_named(name: str, threads: int | None = None) -> tuple[openmm.Platform, dict[str, str]]:
    """Return a platform and its properties, the last two arguments of a Context."""
    platform = openmm.Platform.getPlatformByName(name)
    return platform, platform_properties(platform, threads)


def make_context(
    system: openmm.System,
    integrator: openmm.Integrator,
    platform: tuple[openmm.Platform, dict[str, str]],
) -> openmm.Context:
    """Build a Context, and count the time: on a GPU the platform compiles its kernels for it.

    On a CPU kernels of ours evaluate nonbonded forces, angles and torsions, where they can: OpenMM's take most of a step. A
    solver of ours constrains bonds to hydrogens: OpenMM's takes minutes to prepare for large models.
    """
    with counted_as("contexts"):
        if platform[0].getName() != "CPU" or backend_problem("NativeForce") is not None:
            return openmm.Context(system, integrator, *platform)
        otherwise = "OpenMM computes {}, and steps take longer"
        served = [
            folder
            for folder, evaluated in OWN_KERNELS.items()
            if compilation.kernel_serves(folder, otherwise.format(evaluated))
        ]
        with own_kernels(served):
            return context_with_own_constraints(system, integrator, *platform)


def load_gpu_code(name: str) -> threading.Thread | None:
    """Load in a thread what a platform's GPU kernels need, while a fit is prepared; what fails is told where it is needed."""
    if name != "CUDA":
        return None

    def load() -> None:
        with suppress(Exception):
            import torch

            torch.cuda.init()
            from triton.runtime.cache import triton_key

            triton_key()

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def in_double_precision(
    platform: openmm.Platform, properties: dict[str, str]
) -> tuple[openmm.Platform, dict[str, str]]:
    """Return a platform, or in its place Reference, with the properties with which it computes in double precision."""
    if "Precision" in platform.getPropertyNames():
        properties = {**properties, "Precision": "double"}
        try:
            _try(platform, properties)
            return platform, properties
        except openmm.OpenMMException:  # as of a GPU that has no such numbers
            pass
    return openmm.Platform.getPlatformByName("Reference"), {}


def check_platform(name: str, threads: int | None = None) -> None:
    """Refuse a platform that is not here or does not run, and numbers of threads that it cannot make."""
    check_threads(threads)
    check_platform_name(name)
    refuse_platform(name, [name], failure_of(name))


def check_platform_name(name: str) -> None:
    """Refuse a platform that is not here, whether or not it runs."""
    refuse_platform(name, platform_names(), None)


def platform_of_command(named: str | None, say: Callable[[str], object]) -> str:
    """Return the platform of a command: the one named, if it is here; else CUDA where it and our forces run, else CPU.

    On the other platforms of GPUs our forces are slower. `say`: called with why CUDA is not taken where OpenMM has it.
    """
    if named is not None:
        check_platform_name(named)
        return named
    if "CUDA" not in platform_names():
        return "CPU"
    problem = failure_of("CUDA") or own_backend("CUDA")[1]
    if problem is None:
        return "CUDA"
    say(without_cuda(problem))
    return "CPU"


def failure_of(name: str) -> str | None:
    """Return why a platform that is here does not run, in a line; None where it does."""
    try:
        _try_named(name)
    except openmm.OpenMMException as error:
        return one_line(error)
    return None


@functools.cache
def _try_named(name: str) -> None:
    """Raise what a platform's Context does; where it does not, it is tried once: on a GPU that takes a tenth of a second."""
    _try(*platform_named(name))


def _try(platform: openmm.Platform, properties: dict[str, str]) -> None:
    system = openmm.System()
    system.addParticle(1.0)
    openmm.Context(system, openmm.VerletIntegrator(0.001), platform, properties)
