"""Try the kernels on the GPU, in this process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from ..kernels import density, interpolation, molecules, planarity, scatter
from .diagnosis import GpuKernel


def probe_gpu() -> Iterator[GpuKernel]:
    """Try every operator on the GPU, in this process, and compare with the CPU.

    Yields
    ------
    GpuKernel
        As each is done.
    """
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
    """Return a small evaluation of every operator.

    Returns
    -------
    dict of str to callable
        By the operator's name; each takes the device, and gives the operator's results there.
    """
    random = np.random.default_rng(0)
    positions = torch.from_numpy(random.random((200, 3)) * 1.5).float()
    amplitudes, exponents = torch.ones(200, 1), torch.full((200, 1), 50.0)
    atoms = torch.arange(200)
    voxels = torch.from_numpy(random.random((16, 17, 18))).float()
    matrix, origin = torch.eye(3, dtype=torch.float64) / 10, torch.zeros(3, dtype=torch.float64)
    planes = planarity.pack_planes([(np.arange(200).reshape(40, 5), 0.02)])
    steps = torch.arange(8, dtype=torch.int32).repeat(20, 1)
    rows = torch.arange(48, dtype=torch.int32).reshape(1, 6, 8).repeat(20, 1, 1)
    operators = {
        "density_splat": (
            density.density_splat,
            (positions, amplitudes, exponents, 0.5, matrix, origin, list(voxels.shape), False),
        ),
        "density_gather": (
            density.density_gather,
            (voxels, positions, amplitudes, exponents, 0.5, matrix, origin, False),
        ),
        "density_similarity": (
            density.density_similarity,
            (
                *(
                    positions,
                    atoms,
                    amplitudes,
                    exponents,
                    0.5,
                    voxels,
                    density.target_moments(voxels),
                ),
                *(matrix, origin, False, density.CROSS_CORRELATION, 1.0),
            ),
        ),
        "planarity": (planarity.planarity, (positions, *planes)),
        "map_potential": (
            interpolation.map_potential,
            (positions, atoms, torch.ones(200), voxels, matrix, origin, False),
        ),
        "whole_molecules": (
            molecules.whole_molecules,
            (positions, atoms, atoms, 10 * torch.arange(21), torch.zeros(20, 3).double(), torch.eye(3)),
        ),
        "structured_scatter_add": (
            scatter.structured_scatter_add,
            (torch.ones(20, 8, 6, 8), 48 * steps, rows, 8 * 48),
        ),
        "structured_gather": (scatter.structured_gather, (torch.arange(384.0), 48 * steps, rows)),
    }

    def call(name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
        operator, arguments = operators[name]
        moved = [value.to(device) if isinstance(value, torch.Tensor) else value for value in arguments]
        with torch.no_grad():
            found = operator(*moved)
        return found if isinstance(found, tuple) else (found,)

    return {name: functools.partial(call, name) for name in operators}
