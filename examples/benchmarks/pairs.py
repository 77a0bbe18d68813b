"""Time Lennard-Jones with a switch and reaction-field Coulomb beside OpenMM's NonbondedForce and eager PyTorch, in one run.

Atoms as dense as in water, on a shaken lattice in a periodic cube, 10 Å, energy, forces and virial. "list kept" looks with it
whether a neighbour list with a skin of 1 Å still holds, as OpenMM does in every evaluation; "pairs" has the list already. OpenMM
has forces and energy, on CPUs by ``getState``, on CUDA in a step of its VerletIntegrator (mixed precision); eager PyTorch has the
list, and differentiates by autograd. On CUDA ours is a CUDA graph, replayed some times on end as OpenMM makes its steps, with
each pair listed twice (and once: "once"), PyTorch as it is. No list is made anew in what is timed, ours or OpenMM's; "copy" is
how fast the list is read, as a part of a copy's bandwidth.

    python examples/benchmarks/pairs.py --device cpu --atoms 1000 10648 97336 --threads 1 2 --json pairs.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openmm
import torch
from density_gpu import copy_bandwidth, microseconds, peak_arithmetic
from figures import write_figures
from interleaved import Case, Disagreement, Engine, measure, processor, show, timed
from neighbors_cpu import copy_bandwidth as cpu_copy_bandwidth
from neighbors_gpu import recorded
from openmm import unit
from rich.console import Console

from openmm_density.kernels.neighbors import NeighborList, listed_pairs
from openmm_density.kernels.pairs import NONBONDED, pairs

CUTOFF, SKIN, SWITCH = 1.0, 0.1, 0.9  # nm
COULOMB, DIELECTRIC = 138.93545764438198, 78.3
ATOMS_PER_VOLUME = 100.0  # 1/nm³
TOLERANCE = 1e-3
# A list's entry, the second atom's position and parameters, and its gradient read and written; distance, both forms with their
# derivatives, forces and virial. Listed twice, a pair is evaluated twice, and no gradient is read or written.
BYTES_PER_PAIR, OPERATIONS_PER_PAIR = 8 + 24 + 24, 85


class Problem:
    """Atoms in a cube, their list, and everything that evaluates them."""

    def __init__(self, n_atoms: int, device: str) -> None:
        self.both_ways = device == "cuda"
        per_side = round(n_atoms ** (1 / 3))
        self.n_atoms = per_side**3
        self.side = (self.n_atoms / ATOMS_PER_VOLUME) ** (1 / 3)
        generator = torch.Generator().manual_seed(0)
        places = torch.arange(per_side) / per_side
        lattice = torch.cartesian_prod(places, places, places) * self.side
        positions = lattice + 0.06 * torch.rand(self.n_atoms, 3, generator=generator)
        self.positions = positions.to(device)
        parameters = torch.tensor([0.15, 0.4, 0.4]).expand(self.n_atoms, 3).clone()
        parameters[::2, 2] *= -1
        self.parameters = parameters.to(device)
        self.box = self.side * torch.eye(3, device=device)
        room = int(1.2 * self.n_atoms * ATOMS_PER_VOLUME * 2.1 * (CUTOFF + SKIN) ** 3) + 1000
        self.once = NeighborList(self.n_atoms, CUTOFF, room, SKIN).to(device)
        listed = self.once(self.positions, self.box)
        self.kept = self.once
        if self.both_ways:
            self.kept = NeighborList(self.n_atoms, CUTOFF, 2 * room, SKIN, both_ways=True).to(device)
            self.kept(self.positions, self.box)
        first, second, steps = listed_pairs(*listed)
        self.entries = (first, second, steps.float() @ self.box)
        self.n_listed = len(first)
        vectors = self.positions[second] - self.positions[first] + self.entries[2]
        self.n_pairs = int((vectors.square().sum(1) < CUTOFF**2).sum())

    def evaluated(self, kept: NeighborList) -> tuple[torch.Tensor, ...]:
        """Evaluate with a list as it is."""
        return pairs(
            self.positions,
            self.box,
            kept.offsets,
            kept.neighbors,
            kept.shifts,
            self.parameters,
            NONBONDED,
            CUTOFF,
            [SWITCH, COULOMB, DIELECTRIC],
            None,
            None,
            kept.both_ways,
        )

    def ours(self) -> tuple[torch.Tensor, ...]:
        """Evaluate with the list as it is."""
        return self.evaluated(self.kept)

    def ours_with_list(self) -> tuple[torch.Tensor, ...]:
        """Look whether the list holds, and evaluate."""
        self.kept(self.positions, self.box)
        return self.ours()

    def eager(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate by eager PyTorch."""
        first, second, shift = self.entries
        x = self.positions.detach().requires_grad_()
        r = (x[second] - x[first] + shift).norm(dim=1)
        sigma, epsilon, charge = self.parameters.unbind(1)
        sixth = ((sigma[first] + sigma[second]) / 2 / r) ** 6
        t = ((r - SWITCH) / (CUTOFF - SWITCH)).clamp(0, 1)
        energy = 4 * (epsilon[first] * epsilon[second]).sqrt() * (sixth * sixth - sixth)
        energy = energy * (1 + t**3 * (-10 + t * (15 - 6 * t)))
        k = (DIELECTRIC - 1) / (2 * DIELECTRIC + 1) / CUTOFF**3
        c = 3 * DIELECTRIC / (2 * DIELECTRIC + 1) / CUTOFF
        electric = COULOMB * charge[first] * charge[second] * (1 / r + k * r * r - c)
        total = torch.where(r < CUTOFF, energy + electric, 0.0).sum(dtype=torch.float64)
        (gradient,) = torch.autograd.grad(total, x)
        return total.detach(), gradient

    def context(self, platform: str, properties: dict[str, str]) -> openmm.Context:
        """Return OpenMM's force in a Context."""
        system, force = openmm.System(), openmm.NonbondedForce()
        system.setDefaultPeriodicBoxVectors(*self.box.tolist())
        force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
        force.setCutoffDistance(CUTOFF)
        force.setUseSwitchingFunction(True)
        force.setSwitchingDistance(SWITCH)
        force.setReactionFieldDielectric(DIELECTRIC)
        force.setUseDispersionCorrection(False)
        for sigma, epsilon, charge in self.parameters.tolist():
            system.addParticle(1e12)
            force.addParticle(charge, sigma, epsilon)
        system.addForce(force)
        context = openmm.Context(
            system, openmm.VerletIntegrator(1e-6), openmm.Platform.getPlatformByName(platform), properties
        )
        context.setPositions(self.positions.tolist())
        return context

    def check(self, context: openmm.Context) -> dict[str, float]:
        """Return how far our forces, and those of eager PyTorch, are from OpenMM's."""
        forces = context.getState(forces=True).getForces(asNumpy=True)
        expected = -torch.from_numpy(forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer))
        found = {
            "ours": self.ours()[1],
            "each pair once": self.evaluated(self.once)[1],
            "eager": self.eager()[1],
        }
        deviations = {
            name: float((each.cpu() - expected).abs().max() / expected.abs().max())
            for name, each in found.items()
        }
        if not max(deviations.values()) < TOLERANCE:
            raise Disagreement(f"forces differ from OpenMM's: {deviations}")
        return deviations


def on_cpu(
    problem: Problem, threads: list[int], rounds: int, seconds: float, console: Console
) -> dict[str, Any]:
    """Time a system on the CPU."""
    engines = []
    for n in threads:
        context = problem.context("CPU", {"Threads": str(n)})
        if n == threads[0]:
            deviations = problem.check(context)

        def openmm_call(context: openmm.Context = context) -> float:
            start = time.perf_counter()
            context.getState(forces=True, energy=True)
            return time.perf_counter() - start

        engines += [
            timed("openmm-density, list kept", "energy and forces", n, problem.ours_with_list),
            timed("openmm-density, pairs", "energy and forces", n, problem.ours),
            Engine("OpenMM NonbondedForce", "energy and forces", n, openmm_call),
            timed("eager PyTorch", "energy and forces", n, problem.eager),
        ]
    measure(engines, rounds, seconds)
    case = Case(
        f"{problem.n_atoms:,} atoms, {problem.n_pairs:,} pairs, {problem.n_listed:,} listed",
        engines,
        deviations,
    )
    show(console, case)
    bandwidth = cpu_copy_bandwidth()
    report: dict[str, Any] = {"engines": [each.figures() for each in engines], "ratios": {}}
    for n in threads:
        kept, ours, native, eager = (each for each in engines if each.threads == n)
        report["ratios"][n] = {"OpenMM": native.median / kept.median, "eager": eager.median / ours.median}
        console.print(
            f"  {n} threads: {native.median / kept.median:.2f} times as fast as OpenMM, "
            f"{eager.median / ours.median:.1f} times as eager PyTorch; "
            f"{OPERATIONS_PER_PAIR * problem.n_pairs / (1e6 * ours.median):.1f} GFLOP/s, "
            f"{BYTES_PER_PAIR * problem.n_pairs / (1e6 * ours.median):.1f} GB/s between registers and caches, "
            f"{8 * problem.n_listed / (1e-3 * ours.median) / bandwidth:.0%} of a copy's bandwidth for the list"
        )
    return report


def streamed(call: Callable[[], Any], seconds: float, n: int = 20) -> float:
    """Return the time of a call's replay, of several on end."""
    replay = recorded(call)

    def replays() -> None:
        for _ in range(n):
            replay()

    return microseconds(replays, seconds) / n


def on_gpu(problem: Problem, seconds: float, bandwidth: float, peak: float) -> dict[str, Any]:
    """Time a system on a GPU."""
    context = problem.context("CUDA", {"Precision": "mixed"})
    deviations = problem.check(context)
    integrator = context.getIntegrator()

    def step() -> float:
        integrator.step(20)
        context.getState(energy=True)
        start = time.perf_counter()
        integrator.step(200)
        context.getState(energy=True)
        return 1e6 * (time.perf_counter() - start) / 200

    native = min(step() for _ in range(3))
    kept, ours = streamed(problem.ours_with_list, seconds), streamed(problem.ours, seconds)
    once = streamed(lambda: problem.evaluated(problem.once), seconds)
    eager = microseconds(problem.eager, seconds)
    print(
        f"{problem.n_atoms:10,}{problem.n_pairs:13,}{kept:10.1f}{ours:10.1f}{once:10.1f}{native:10.1f}{eager:10.1f}"
        f"{native / kept:8.2f}{eager / ours:8.1f}"
        f"{OPERATIONS_PER_PAIR * problem.n_pairs / (1e-6 * ours) / peak:8.1%}"
        f"{16 * problem.n_listed / (1e-6 * ours) / bandwidth:8.1%}{deviations['ours']:10.1e}",
        flush=True,
    )
    return {
        "kept_us": kept,
        "pairs_us": ours,
        "each_pair_once_us": once,
        "openmm_step_us": native,
        "eager_us": eager,
        "deviations": deviations,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time pair forces, OpenMM's and eager PyTorch's.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--atoms", type=int, nargs="+", default=[1000, 10_648, 97_336], help="cubes of numbers"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each engine (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="for each system (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    console = Console(width=130)
    report: list[Any] = []
    measured: Callable[[Problem], dict[str, Any]]
    if arguments.device == "cpu":
        console.print(processor())

        def measured(problem: Problem) -> dict[str, Any]:
            return on_cpu(problem, arguments.threads, arguments.rounds, arguments.seconds, console)
    else:
        if not torch.cuda.is_available():
            sys.exit("there is no GPU here that torch can use")
        bandwidth, peak = copy_bandwidth(), peak_arithmetic()
        print(
            f"{torch.cuda.get_device_name()}: copies {bandwidth / 1e12:.2f} TB/s, peak {peak / 1e12:.1f} TFLOP/s; µs"
        )
        headings = ("list kept", "pairs", "once", "OpenMM", "eager", "ratio", "ratio", "peak", "copy")
        print(
            f"{'atoms':>10}{'pairs':>13}"
            + "".join(f"{each:>{10 if k < 5 else 8}}" for k, each in enumerate(headings))
        )

        def measured(problem: Problem) -> dict[str, Any]:
            return on_gpu(problem, min(1.0, arguments.seconds), bandwidth, peak)

    for n_atoms in arguments.atoms:
        problem = Problem(n_atoms, arguments.device)
        sizes = {"atoms": problem.n_atoms, "pairs": problem.n_pairs, "listed": problem.n_listed}
        report.append(sizes | measured(problem))
        if arguments.json:
            write_figures(
                arguments.json, report, torch.cuda.get_device_name() if arguments.device == "cuda" else ""
            )


if __name__ == "__main__":
    main()
