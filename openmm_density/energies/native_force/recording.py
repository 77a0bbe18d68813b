"""The graph of an energy module between OpenMM's positions and its forces, recorded by torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...base.stopwatch import counted_as
from .computation import Computation, check_particle_indices, evaluated
from .process import LoadedKernel, kernels_of_triton
from .slots import WANTS_ENERGY, WANTS_FORCES, Arrays

# They compile kernels, choose launch configurations and check tables, which cannot be recorded.
_WARM_UP_EVALUATIONS = 3


@dataclass(frozen=True)
class RecordedGraph:
    """A recorded graph with the memory that its kernels use, which lives as long as this does."""

    graph: torch.cuda.CUDAGraph  # One evaluation
    parameters: torch.Tensor  # float64 (P,), see `slots`
    used: tuple  # What the graph reads and is not torch's to keep: the module and the tables
    kernels: list[LoadedKernel]  # Those that Triton has loaded


@counted_as("compilation")
def record(computation: Computation, arrays: Arrays) -> RecordedGraph:
    """Record one evaluation."""
    from . import exchange

    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise RuntimeError(f"torch 2.8 or newer is needed, and this is {torch.__version__}")
    device = torch.device("cuda", arrays.device)
    # Fused kernels would be loaded by neither torch nor Triton: see cuda.cpp.
    with torch.cuda.device(device), torch.jit.optimized_execution(False):
        own = computation._replace(module=copy.deepcopy(computation.module).to(device).eval())
        rows = _row_of_particle(computation.particles, arrays.n_particles).to(device)
        n_taken = arrays.n_particles if computation.particles is None else len(computation.particles)
        dtype = {4: torch.float32, 8: torch.float64}[arrays.position_bytes]
        positions = torch.empty(n_taken, 3, dtype=dtype, device=device)
        read = torch.tensor(arrays.parameters[: arrays.n_parameters], dtype=torch.float64, device=device)
        asked = arrays.derivative_slots[: computation.n_strengths] if arrays.derivatives else []
        # Until the graph runs, nothing is added to OpenMM's sums.
        sum_of_derivative = torch.full((len(asked),), -1, dtype=torch.int32, device=device)
        sums = exchange.Sums(
            arrays.forces, arrays.n_padded, arrays.energy, arrays.energy_bytes, arrays.derivatives
        )
        wanted = read[WANTS_FORCES : WANTS_ENERGY + 1]
        wanted[:] = 0.0

        def exchanged() -> None:
            exchange.take_positions(
                arrays.positions, arrays.position_bytes, arrays.particle_of_slot, rows, positions
            )
            found = evaluated(own, positions, read, bool(asked))
            exchange.give(
                found.forces,
                found.energy,
                exchange.Derivatives(found.derivatives, sum_of_derivative) if asked else None,
                wanted,
                rows,
                arrays.particle_of_slot,
                sums,
            )

        graph = _recorded(exchanged, torch.cuda.Stream(device))
        sum_of_derivative[:] = torch.tensor(asked, dtype=torch.int32)
        torch.cuda.synchronize(device)
    used = own.module, rows, positions, sum_of_derivative
    return RecordedGraph(graph, read, used, kernels_of_triton())


def _recorded(called: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Return the graph of what a function launches."""
    torch.cuda.synchronize(stream.device)
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_EVALUATIONS):
            called()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    try:
        # OpenMM goes on meanwhile in other threads.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            called()
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise RuntimeError(
            f"the module works, but cannot be recorded as a CUDA graph ({first}): in its forward nothing may wait for the GPU "
            "(.item(), .cpu(), print, if on a tensor), have a shape that depends on values (nonzero, boolean masks, unique), or "
            "copy from the CPU (torch.tensor(...)); keep tables in buffers, and mask by torch.where"
        ) from error
    torch.cuda.synchronize(stream.device)
    return graph


def _row_of_particle(particles: np.ndarray | None, n_particles: int) -> torch.Tensor:
    if particles is None:
        return torch.arange(n_particles, dtype=torch.int32)
    check_particle_indices(particles, n_particles)
    rows = torch.full((n_particles,), -1, dtype=torch.int32)
    rows[torch.from_numpy(particles)] = torch.arange(len(particles), dtype=torch.int32)
    return rows
