"""Try the kernels on the GPU, in this process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch

from openmm_density.kernels.library import Example, operator_folders

from .diagnosis import GpuKernel


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
