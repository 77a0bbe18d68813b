"""The graphs of an energy module between OpenMM's positions and its forces, recorded by torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..stopwatch import counted
from .computation import Computation, check_indices, evaluated
from .process import LoadedKernel, kernels_of_triton
from .slots import WANTS_ENERGY, WANTS_FORCES, Arrays

# They compile kernels, choose launch configurations and check tables, which cannot be recorded.
_WARM_UP_EVALUATIONS = 3


@dataclass(frozen=True)
class RecordedGraph:
    """Recorded graphs with the memory that their kernels use, which lives as long as this does.

    Attributes
    ----------
    graph : torch.cuda.CUDAGraph
        One evaluation.
    derivative_graph : torch.cuda.CUDAGraph or None
        What adds the derivatives that it found to OpenMM's; None where nobody asks for any.
    parameters : Tensor, shape (P,), float64
        See `slots`.
    used : tuple
        What the graph reads and is not torch's to keep: the module and the tables.
    kernels : list of LoadedKernel
        Those that Triton has loaded.
    """

    graph: torch.cuda.CUDAGraph
    derivative_graph: torch.cuda.CUDAGraph | None
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
    # Fused kernels would be loaded by neither torch nor Triton: see cuda.cpp.
    with torch.cuda.device(device), torch.jit.optimized_execution(False):
        own = computation._replace(module=copy.deepcopy(computation.module).to(device).eval())
        rows = _row_of_particle(computation.particles, arrays.n_particles).to(device)
        n_taken = arrays.n_particles if computation.particles is None else len(computation.particles)
        dtype = {4: torch.float32, 8: torch.float64}[arrays.position_bytes]
        positions = torch.empty(n_taken, 3, dtype=dtype, device=device)
        read = torch.tensor(arrays.parameters[: arrays.n_parameters], dtype=torch.float64, device=device)
        slots = arrays.derivative_slots[: computation.n_strengths] if arrays.derivatives else []
        slopes = torch.zeros(computation.n_strengths, dtype=torch.float64, device=device)
        slot_of_slope = torch.tensor(slots, dtype=torch.int32, device=device)
        wanted = read[WANTS_FORCES : WANTS_ENERGY + 1]
        # Nothing is added to OpenMM's sums before the graph runs.
        wanted[:] = 0.0

        def exchanged() -> None:
            exchange.take_positions(
                arrays.positions, arrays.position_bytes, arrays.particle_of_slot, rows, positions
            )
            found = evaluated(own, positions, read, bool(slots))
            if found.derivatives is not None:
                slopes.copy_(found.derivatives)
            exchange.give_forces(
                found.forces,
                found.energy,
                wanted,
                rows,
                arrays.particle_of_slot,
                arrays.forces,
                arrays.n_padded,
                arrays.energy,
                arrays.energy_bytes,
            )

        def added() -> None:
            exchange.give_derivatives(slopes, slot_of_slope, arrays.derivatives, arrays.energy_bytes)

        stream = torch.cuda.Stream(device)
        graph = _recorded(exchanged, stream, _WARM_UP_EVALUATIONS)
        derivative_graph = None
        if slots:
            slopes.zero_()
            derivative_graph = _recorded(added, stream, 1)
    used = own.module, rows, positions, slopes, slot_of_slope
    return RecordedGraph(graph, derivative_graph, read, used, kernels_of_triton())


def _recorded(called: Callable[[], None], stream: torch.cuda.Stream, warm_ups: int) -> torch.cuda.CUDAGraph:
    """Return the graph of what a function launches.

    Raises
    ------
    RuntimeError
        If it does something that cannot be recorded.
    """
    torch.cuda.synchronize(stream.device)
    with torch.cuda.stream(stream):
        for _ in range(warm_ups):
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
    check_indices(particles, n_particles)
    rows = torch.full((n_particles,), -1, dtype=torch.int32)
    rows[torch.from_numpy(particles)] = torch.arange(len(particles), dtype=torch.int32)
    return rows
