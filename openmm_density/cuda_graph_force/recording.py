"""The graph of an energy module between OpenMM's positions and its forces, recorded by torch."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch

from ..stopwatch import counted
from .computation import Computation, check_indices
from .process import LoadedKernel, kernels_of_triton
from .slots import WANTS_ENERGY, WANTS_FORCES, Arrays

# They compile kernels, choose launch configurations and check tables, which cannot be recorded.
_WARM_UP_EVALUATIONS = 3


@dataclass(frozen=True)
class RecordedGraph:
    """A recorded graph with the memory that its kernels use, which lives as long as this does.

    Attributes
    ----------
    graph : torch.cuda.CUDAGraph
    parameters : Tensor, shape (P,), float64
        See `slots`.
    used : tuple
        What the graph reads and is not torch's to keep: the module and the tables.
    kernels : list of LoadedKernel
        Those that Triton has loaded.
    """

    graph: torch.cuda.CUDAGraph
    parameters: torch.Tensor
    used: tuple
    kernels: list[LoadedKernel]


@counted("compilation")
def record(computation: Computation, arrays: Arrays) -> RecordedGraph:
    """Record one evaluation.

    Parameters
    ----------
    computation : Computation
    arrays : Arrays
        With the positions of the present.
    """
    from . import exchange

    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise RuntimeError(f"torch 2.8 or newer is needed, and this is {torch.__version__}")
    device = torch.device("cuda", arrays.device)
    # Fused kernels would be loaded by neither torch nor Triton: see force.cpp.
    with torch.cuda.device(device), torch.no_grad(), torch.jit.optimized_execution(False):
        module = copy.deepcopy(computation.module).to(device).eval()
        rows = _row_of_particle(computation.particles, arrays.n_particles).to(device)
        n_taken = arrays.n_particles if computation.particles is None else len(computation.particles)
        dtype = {4: torch.float32, 8: torch.float64}[arrays.position_bytes]
        positions = torch.empty(n_taken, 3, dtype=dtype, device=device)
        read = torch.tensor(arrays.parameters[: arrays.n_parameters], dtype=torch.float64, device=device)
        inputs = computation.inputs(positions, read)
        wanted = read[WANTS_FORCES : WANTS_ENERGY + 1]
        # Nothing is added to OpenMM's sums before the graph runs.
        wanted[:] = 0.0

        def exchanged() -> None:
            exchange.take_positions(
                arrays.positions, arrays.position_bytes, arrays.particle_of_slot, rows, positions
            )
            energy, forces = module(*inputs)
            exchange.give_forces(
                forces,
                energy,
                wanted,
                rows,
                arrays.particle_of_slot,
                arrays.forces,
                arrays.n_padded,
                arrays.energy,
                arrays.energy_bytes,
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
    return RecordedGraph(graph, read, (module, rows, positions), kernels_of_triton())


def _row_of_particle(particles: np.ndarray | None, n_particles: int) -> torch.Tensor:
    if particles is None:
        return torch.arange(n_particles, dtype=torch.int32)
    check_indices(particles, n_particles)
    rows = torch.full((n_particles,), -1, dtype=torch.int32)
    rows[torch.from_numpy(particles)] = torch.arange(len(particles), dtype=torch.int32)
    return rows
