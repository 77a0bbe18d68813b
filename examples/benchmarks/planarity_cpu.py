"""Time the planarity kernel against eager PyTorch on the same planes, side by side in one run.

Eager PyTorch does what one would write by hand: for each size of plane gather, centre, `torch.linalg.eigh`, then autograd
backward. In its quickest form the normal is held fixed in the backward pass, which is exact here (one sigma for each plane); the
other form differentiates through `eigh`. The ratio is to the quickest.

    python examples/benchmarks/planarity_cpu.py --planes 20000 --threads 2 --json planarity.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from figures import write_figures
from interleaved import Case, Disagreement, compare, measure, processor, show, timed
from rich.console import Console

from openmm_density.kernels import compilation
from openmm_density.kernels.planarity import pack_planes, planarity, reference

SIZES = (4, 5, 6, 7, 9, 10, 12)
Group = tuple[np.ndarray, np.ndarray]
Evaluation = Callable[[], tuple[torch.Tensor, torch.Tensor]]
# Of the largest value, in float32.
TOLERANCE = 1e-3


def random_planes(n_planes: int) -> tuple[np.ndarray, list[Group]]:
    """Return nearly flat groups, turned at random in a box of 200 Å, and for each size their indices and sigmas."""
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
) -> Evaluation:
    """Return energy and gradient by plain PyTorch and autograd."""

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


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time the planarity kernel against eager PyTorch.")
    parser.add_argument("--planes", type=int, default=20_000, help="number of planes (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both (default: %(default)s)")
    parser.add_argument(
        "--precision", choices=("single", "double"), default="single", help="type of the positions"
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="rounds of each engine (default: %(default)s)"
    )
    parser.add_argument(
        "--limit", type=float, default=10.0, help="seconds of timing, about (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.planes < len(SIZES):
        parser.error(f"--planes must be at least {len(SIZES)}, one for each size")
    if arguments.threads < 1 or arguments.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    if not compilation.load("planarity"):
        sys.exit(f"the kernel does not compile here:\n{compilation.error_text('planarity')}")

    torch.set_num_threads(arguments.threads)
    dtype = torch.float32 if arguments.precision == "single" else torch.float64
    coordinates, groups = random_planes(arguments.planes)
    positions = torch.from_numpy(coordinates).to(dtype)
    planes = pack_planes(groups, n_atoms=len(positions))
    tensors = [(torch.from_numpy(indices), torch.from_numpy(sigmas).to(dtype)) for indices, sigmas in groups]
    evaluations: dict[str, Evaluation] = {
        "C++ kernel": lambda: planarity(positions, *planes),
        "eager, normal fixed": eager(positions, tensors, through_eigh=False),
        "eager, through eigh": eager(positions, tensors, through_eigh=True),
    }
    expected = reference.planarity(positions, *planes)
    engines = []
    for name, evaluate in evaluations.items():
        engine = timed(name, "energy + gradient", arguments.threads, evaluate)
        try:
            for what, found, right in zip(("energy", "gradient"), evaluate(), expected):
                engine.deviations[what] = compare(f"{what} of {name}", found, right, TOLERANCE)
        except Disagreement as error:
            sys.exit(f"{error}. Nothing is timed where engines disagree.")
        engines.append(engine)
    measure(engines, arguments.repeats, arguments.limit)

    kernel, *others = engines
    ratio = min(engine.median for engine in others) / kernel.median
    ratio_of_fastest = min(engine.fastest for engine in others) / kernel.fastest
    sizes = f"{SIZES[0]} to {SIZES[-1]} atoms"
    case = Case(f"{arguments.planes} planes of {sizes}, {len(positions)} atoms in {dtype}", engines)
    console = Console(width=max(160, Console().width))
    console.print(f"{processor()}; torch {torch.__version__}\n")
    show(console, case)
    console.print(
        f"The kernel is {ratio:.1f} times faster than the quickest eager form (fastest calls: {ratio_of_fastest:.1f})."
    )

    if arguments.json:
        figures = {
            "planes": arguments.planes,
            "atoms": len(positions),
            "precision": arguments.precision,
            "processor": processor(),
            "threads": arguments.threads,
            "torch": torch.__version__,
            "engines": [engine.figures() for engine in engines],
            "ratio": ratio,
            "ratio_of_fastest": ratio_of_fastest,
        }
        write_figures(arguments.json, figures)


if __name__ == "__main__":
    main()
