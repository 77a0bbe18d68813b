"""Time the planarity kernel against eager PyTorch on the same planes, side by side in one run.

Eager PyTorch does what one would write by hand: for each size of plane gather, centre, `torch.linalg.eigh`, then autograd
backward. In its quickest form the normal is held fixed in the backward pass, which is exact here (one sigma for each plane); the
other form differentiates through `eigh`. The ratio is to the quickest.

    python examples/benchmarks/planarity_cpu.py --planes 20000 --threads 2 --json planarity.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from openmm_density.kernels import build
from openmm_density.kernels.planarity import pack_planes, planarity, reference
from turns import processor

from openmm_density.whole_files import write_text

SIZES = (4, 5, 6, 7, 9, 10, 12)
Group = tuple[np.ndarray, np.ndarray]
Engine = Callable[[], tuple[torch.Tensor, torch.Tensor]]


def random_planes(n_planes: int) -> tuple[np.ndarray, list[Group]]:
    """Give nearly flat groups, turned at random in a box of 200 Å, and for each size their indices and sigmas."""
    random = np.random.default_rng(0)
    positions, groups, n_atoms = [], [], 0
    for size, share in zip(SIZES, np.array_split(np.arange(n_planes), len(SIZES))):
        flat = random.normal(size=(len(share), size, 3)) * (1.5, 1.5, 0.03)
        turns = np.linalg.qr(random.normal(size=(len(share), 3, 3)))[0]
        positions.append((flat @ turns + random.uniform(0, 200, (len(share), 1, 3))).reshape(-1, 3))
        indices = n_atoms + np.arange(len(share) * size).reshape(len(share), size)
        groups.append((indices, random.uniform(0.01, 0.05, len(share))))
        n_atoms += indices.size
    return np.concatenate(positions), groups


def eager(
    positions: torch.Tensor, groups: list[tuple[torch.Tensor, torch.Tensor]], through_eigh: bool
) -> Engine:
    """Give energy and gradient by plain PyTorch and autograd."""

    def evaluate() -> tuple[torch.Tensor, torch.Tensor]:
        x = positions.detach().requires_grad_()
        energy = torch.zeros((), dtype=torch.float64)
        for indices, sigmas in groups:
            atoms = x[indices]
            centred = atoms - atoms.mean(1, keepdim=True)
            with torch.set_grad_enabled(through_eigh):
                normal = torch.linalg.eigh(centred.transpose(1, 2) @ centred)[1][..., :1]
            distance = (centred @ normal)[..., 0]
            energy = energy + 0.5 * (distance / sigmas[:, None]).square().sum(dtype=torch.float64)
        (gradient,) = torch.autograd.grad(energy, x)
        return energy.detach(), gradient

    return evaluate


def check(engines: dict[str, Engine], expected: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    """Give each engine's largest error of the gradient over the largest gradient, or stop where engines disagree."""
    energy, gradient = expected
    errors = {}
    for name, engine in engines.items():
        found_energy, found_gradient = engine()
        errors[name] = ((found_gradient - gradient).abs().max() / gradient.abs().max()).item()
        energy_error = abs(found_energy.item() / energy.item() - 1.0)
        if not (errors[name] < 1e-3 and energy_error < 1e-3):
            sys.exit(f"{name} is wrong: energy by {energy_error:.1e}, gradient by {errors[name]:.1e}")
    return errors


def timed(engine: Engine) -> float:
    """Give the seconds of one call."""
    start = time.perf_counter()
    engine()
    return time.perf_counter() - start


def measure(engines: dict[str, Engine], seconds: float) -> dict[str, list[float]]:
    """Time the engines in turns, each for about so many seconds: the milliseconds of every call."""
    calls = {}
    for name, engine in engines.items():
        calls[name] = max(1, round(seconds / 10 / min(timed(engine) for _ in range(3))))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(10):
        for name, engine in engines.items():
            for _ in range(calls[name]):
                times[name].append(1e3 * timed(engine))
    return times


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time the planarity kernel against eager PyTorch.")
    parser.add_argument("--planes", type=int, default=20_000, help="number of planes (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both (default: %(default)s)")
    parser.add_argument(
        "--precision", choices=("single", "double"), default="single", help="type of the positions"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time for each engine (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.planes < len(SIZES):
        parser.error(f"--planes must be at least {len(SIZES)}, one for each size")
    if not build.load("planarity"):
        sys.exit(f"the kernel does not compile here:\n{build.error_text('planarity')}")

    torch.set_num_threads(arguments.threads)
    dtype = torch.float32 if arguments.precision == "single" else torch.float64
    coordinates, groups = random_planes(arguments.planes)
    positions = torch.from_numpy(coordinates).to(dtype)
    planes = pack_planes(groups, n_atoms=len(positions))
    tensors = [(torch.from_numpy(indices), torch.from_numpy(sigmas).to(dtype)) for indices, sigmas in groups]
    engines: dict[str, Engine] = {
        "C++ kernel": lambda: planarity(positions, *planes),
        "eager, normal fixed": eager(positions, tensors, through_eigh=False),
        "eager, through eigh": eager(positions, tensors, through_eigh=True),
    }
    errors = check(engines, reference.planarity(positions, *planes))
    times = measure(engines, arguments.seconds)

    medians = {name: statistics.median(values) for name, values in times.items()}
    fastest = {name: min(values) for name, values in times.items()}
    ratio, ratio_of_fastest = (
        min(value for name, value in figures.items() if name != "C++ kernel") / figures["C++ kernel"]
        for figures in (medians, fastest)
    )
    print(
        f"{arguments.planes} planes of {SIZES[0]} to {SIZES[-1]} atoms, {len(positions)} atoms in {dtype}: energy and gradient"
    )
    print(f"{processor()}; {torch.get_num_threads()} threads; torch {torch.__version__}\n")
    print(f"{'':22}{'median':>10}{'fastest':>9}{'10%':>9}{'90%':>9}{'calls':>8}   error of the gradient")
    report: dict[str, dict[str, float]] = {}
    for name, values in times.items():
        low, high = np.percentile(values, (10, 90))
        report[name] = {
            "median_ms": medians[name],
            "fastest_ms": fastest[name],
            "p10_ms": low,
            "p90_ms": high,
            "calls": len(values),
            "error": errors[name],
        }
        print(
            f"{name:22}{medians[name]:7.3f} ms{fastest[name]:9.3f}{low:9.3f}{high:9.3f}{len(values):8d}   {errors[name]:.1e}"
        )
    print(
        f"\nThe kernel is {ratio:.1f} times faster than the quickest eager form (fastest calls: {ratio_of_fastest:.1f})."
    )

    if arguments.json:
        figures = {
            "planes": arguments.planes,
            "atoms": len(positions),
            "precision": arguments.precision,
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "engines": report,
            "ratio": ratio,
            "ratio_of_fastest": ratio_of_fastest,
        }
        write_text(arguments.json, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
