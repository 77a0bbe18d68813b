"""The graph of an energy module between OpenMM's positions and its forces, recorded by torch."""

from __future__ import annotations

import copy
import ctypes
import gc
from dataclasses import dataclass

import numpy as np
import torch

from .computation import N_PARAMETERS, Computation, check_indices

# They compile kernels, choose launch configurations and check tables, which cannot be recorded.
_WARM_UP_EVALUATIONS = 3


class OpenMMArrays(ctypes.Structure):
    """OpenMM's memory on a GPU, see `exchange`, as force.cpp hands it over.

    Attributes
    ----------
    device : int
        The number of the GPU.
    n_particles, n_padded : int
        Number of particles, and of slots that the sums have room for.
    position_word, energy_word : int
        Bytes of a coordinate and of the sum of the energies.
    positions, particle_of_slot, forces, energy : int
        Addresses.
    parameters : pointer to N_PARAMETERS float64
        Those of the present, on the CPU.
    """

    _fields_ = (
        ("device", ctypes.c_int),
        ("n_particles", ctypes.c_int),
        ("n_padded", ctypes.c_int),
        ("position_word", ctypes.c_int),
        ("energy_word", ctypes.c_int),
        ("positions", ctypes.c_ulonglong),
        ("particle_of_slot", ctypes.c_ulonglong),
        ("forces", ctypes.c_ulonglong),
        ("energy", ctypes.c_ulonglong),
        ("parameters", ctypes.POINTER(ctypes.c_double)),
    )


@dataclass(frozen=True)
class Recording:
    """A recorded graph with the memory that its kernels use, which lives as long as this does.

    Attributes
    ----------
    graph : torch.cuda.CUDAGraph
    parameters : Tensor, shape (N_PARAMETERS,), float64
    used : tuple
        What the graph reads and is not torch's to keep: the module and the tables.
    binaries : list of (function, image, name)
        The kernels that Triton has loaded: the CUDA driver's handle, the code, and the name of the kernel therein.
    """

    graph: torch.cuda.CUDAGraph
    parameters: torch.Tensor
    used: tuple
    binaries: list[tuple[int, bytes, str]]


def record(computation: Computation, arrays: OpenMMArrays) -> Recording:
    """Record one evaluation.

    Parameters
    ----------
    computation : Computation
    arrays : OpenMMArrays
        With the positions of the present.
    """
    from . import exchange

    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise RuntimeError(f"torch 2.8 or newer is needed, and this is {torch.__version__}")
    device = torch.device("cuda", arrays.device)
    # Fused kernels would be loaded by neither torch nor Triton: see force.cpp.
    with torch.cuda.device(device), torch.no_grad(), torch.jit.optimized_execution(False):
        module = copy.deepcopy(computation.module).to(device).eval()
        places = _place_of_particle(computation.particles, arrays.n_particles).to(device)
        n_taken = arrays.n_particles if computation.particles is None else len(computation.particles)
        dtype = {4: torch.float32, 8: torch.float64}[arrays.position_word]
        positions = torch.empty(n_taken, 3, dtype=dtype, device=device)
        read = torch.tensor(arrays.parameters[:N_PARAMETERS], dtype=torch.float64, device=device)
        inputs = computation.inputs(positions, read)
        # Nothing is added to OpenMM's sums before the graph runs.
        read[10:] = 0.0

        def exchanged() -> None:
            exchange.take_positions(
                arrays.positions, arrays.position_word, arrays.particle_of_slot, places, positions
            )
            energy, forces = module(*inputs)
            exchange.give_forces(
                forces,
                energy,
                read[10:],
                places,
                arrays.particle_of_slot,
                arrays.forces,
                arrays.n_padded,
                arrays.energy,
                arrays.energy_word,
            )

        stream = torch.cuda.Stream(device)
        torch.cuda.synchronize(device)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_EVALUATIONS):
                exchanged()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        # OpenMM goes on meanwhile in other threads.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            exchanged()
        torch.cuda.synchronize(device)
    return Recording(graph, read, (module, places, positions), _loaded_by_triton())


def _place_of_particle(particles: np.ndarray | None, n_particles: int) -> torch.Tensor:
    if particles is None:
        return torch.arange(n_particles, dtype=torch.int32)
    check_indices(particles, n_particles)
    places = torch.full((n_particles,), -1, dtype=torch.int32)
    places[torch.from_numpy(particles)] = torch.arange(len(particles), dtype=torch.int32)
    return places


def _loaded_by_triton() -> list[tuple[int, bytes, str]]:
    """List the kernels that Triton has loaded; it has no list of them, and keeps them in caches that change with its version."""
    from triton.compiler import CompiledKernel

    # By type(): isinstance would wake up lazy objects of others.
    kernels = [found for found in gc.get_objects() if type(found) is CompiledKernel]
    return [
        (int(kernel.function), kernel.asm["cubin"], kernel.name)
        for kernel in kernels
        if getattr(kernel, "function", None)
    ]
