"""Evaluate TorchRef's density and gradient on request, inside whatever environment TorchRef is installed in.

`density_cpu.py` starts one such process for each version, so that versions that need different versions of torch are timed
alternately within one run. Requests come as lines of JSON on the standard input, each is answered by one line of JSON:

    {"do": "describe"}                                               version of TorchRef and of torch, its engine
    {"do": "load", "inputs": a.npz, "outputs": b.npz, "threads": 2}  nothing; b.npz has the results
    {"do": "run", "gradient": true}                                  seconds
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torchref

Splat = Callable[..., torch.Tensor]


def find_splat() -> tuple[str, Splat]:
    """Return the name and the function of the engine that this version of TorchRef takes on a CPU, or say why it has none."""
    version = tuple(int(part) for part in torchref.__version__.split(".")[:2])
    if version < (0, 6):
        from torchref.base.electron_density import main
        from torchref.base.kernels import cpu_scatter

        if cpu_scatter._get_module() is None:
            raise RuntimeError("its C++ scatter does not compile (is ninja on PATH?)")
        main.ISO_MAP_ENGINE_CPU = "separable"

        def separable(shape: tuple[int, ...], x: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
            # The engine reads nothing but the shape of the grid of coordinates.
            grid = torch.zeros(1).expand(*shape, 3)
            atoms = (x, inputs["b_factors"], inputs["occupancies"], inputs["a"], inputs["b"])
            cell = (inputs["fractional"], inputs["orthogonal"])
            return main.build_electron_density(
                grid, *atoms, *cell, inputs["radius"], inputs["voxel_size"], dtype=torch.float32
            )

        return "separable, C++ scatter", separable

    from torchref.base.electron_density.kernels.cpu import sphere_splat

    if sphere_splat._get_module() is None:
        raise RuntimeError(str(sphere_splat.last_error()))

    def sphere(shape: tuple[int, ...], x: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        atoms = (x, inputs["b_factors"], inputs["occupancies"], inputs["a"], inputs["b"])
        cell = (inputs["fractional"], inputs["orthogonal"])
        return sphere_splat.add_isotropic_cpu_sphere_var(torch.zeros(shape), *atoms, *cell, inputs["radii"])

    return ("C++ spheres" if version < (0, 7) else "Rust spheres"), sphere


class Worker:
    """Hold the inputs of one case and evaluate them."""

    def __init__(self) -> None:
        self.engine, self.splat = find_splat()
        self.inputs: dict[str, Any] = {}
        self.shape: tuple[int, ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return the name of what runs here."""
        return {"torchref": torchref.__version__, "torch": torch.__version__, "engine": self.engine}

    def load(self, inputs: str, outputs: str, threads: int) -> dict[str, Any]:
        """Take the inputs of a case, evaluate once, write density (x slowest) and gradient."""
        torch.set_num_threads(threads)
        with np.load(inputs) as arrays:
            self.inputs = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        self.shape = tuple(self.inputs.pop("shape").tolist())
        self.inputs["radius"] = float(self.inputs["radius"])
        self.inputs["radii"] = torch.full_like(self.inputs["b_factors"], self.inputs["radius"])
        _, density, gradient = self._evaluate(True)
        np.savez(outputs, density=density.detach().numpy(), gradient=gradient.numpy())
        return {}

    def run(self, gradient: bool) -> dict[str, Any]:
        """Evaluate the density, or density and gradient, with respect to the positions alone."""
        return {"seconds": self._evaluate(gradient)[0]}

    def _evaluate(self, with_gradient: bool) -> tuple[float, torch.Tensor, torch.Tensor | None]:
        start = time.perf_counter()
        gradient = None
        x = self.inputs["positions"].detach().requires_grad_(with_gradient)
        with torch.set_grad_enabled(with_gradient):
            density = self.splat(self.shape, x, self.inputs)
        if with_gradient:
            (gradient,) = torch.autograd.grad(density, x, self.inputs["weights"])
        return time.perf_counter() - start, density, gradient


def main() -> None:
    """Answer requests until the standard input ends."""
    # Whatever libraries print goes to the standard error: answers alone go where the benchmark reads.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or Worker()
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
