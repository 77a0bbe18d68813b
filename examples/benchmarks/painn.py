"""Time PaiNN's energy and forces beside SchNetPack's, and eager PyTorch's with `torch.compile`, in one run.

Atoms as dense as in molecules (100 in a nm³) on a shaken lattice, 5 Å, three layers, 20 radial functions. All have the same
weights, and forces are compared first. The others are given their pairs; ours finds its own, of 100 atoms or fewer among all, of
more by `neighbors`. On CUDA ours is a replayed CUDA graph, and its step in OpenMM that of a `CudaGraphForce`; the others run as
they are.

SchNetPack takes part where it can be imported (``pip install schnetpack``; 2.1.1 asks torch 2.9 for a name that it no longer has,
which is put there for it).

    python examples/benchmarks/painn.py --device cpu --atoms 30 50 100 500 5000 --threads 1 2 --json painn.json
"""

from __future__ import annotations

import argparse
import sys
import time
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openmm
import torch
from density_gpu import copy_bandwidth, microseconds, peak_arithmetic
from figures import write_figures
from interleaved import Case, Engine, compare, measure, processor, show, timed
from neighbors_cpu import copy_bandwidth as cpu_copy_bandwidth
from neighbors_gpu import recorded
from rich.console import Console

from openmm_density.energies import PaiNN
from openmm_density.energies.native_force import CudaGraphForce
from openmm_density.energies.painn_network import NORM_FLOOR, PaiNNNetwork
from openmm_density.kernels.neighbors import listed_pairs, neighbors

ATOMS_PER_VOLUME, CUTOFF, LAYERS, RADIAL = 100.0, 0.5, 3, 20
TOLERANCE = 1e-3
Evaluation = Callable[[], tuple[torch.Tensor, torch.Tensor]]


class Problem:
    """A molecule, its network, and everything that evaluates it."""

    def __init__(self, n_atoms: int, features: int, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        per_side = round((n_atoms - 1) ** (1 / 3)) + 1
        places = torch.arange(float(per_side))
        lattice = torch.cartesian_prod(places, places, places)
        nearest = (lattice - lattice.mean(0)).square().sum(1).argsort(stable=True)[:n_atoms]
        shaken = lattice[nearest] + 0.4 * torch.rand(len(nearest), 3, generator=generator)
        self.positions = (shaken / ATOMS_PER_VOLUME ** (1 / 3)).to(device)
        self.n_atoms, self.features = len(shaken), features
        torch.manual_seed(0)
        self.network = PaiNNNetwork(
            ([6, 1, 8, 1, 7] * self.n_atoms)[: self.n_atoms], features, LAYERS, RADIAL, CUTOFF
        ).to(device)
        self.painn = PaiNN(self.network).to(device)
        first, second, _ = listed_pairs(*neighbors(self.positions, None, CUTOFF, True)[:3])
        order = (first * self.n_atoms + second).argsort()
        self.first, self.second = first[order], second[order]
        self.n_pairs = len(first) // 2

    def ours(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate by this project's kernels."""
        return self.painn(self.positions)

    def with_forces(self, energy_of: Callable[[torch.Tensor], torch.Tensor]) -> Evaluation:
        """Return the evaluation of an energy, with forces by autograd."""

        def evaluate() -> tuple[torch.Tensor, torch.Tensor]:
            x = self.positions.detach().requires_grad_()
            energy = energy_of(x)
            (gradient,) = torch.autograd.grad(energy, x)
            return energy.detach(), -gradient

        return evaluate

    def eager_energy(self, x: torch.Tensor) -> torch.Tensor:
        """Return the energy by plain PyTorch, of the pairs within the cut-off."""
        network, first, second = self.network, self.first, self.second
        d = x[second] - x[first]
        r = d.norm(dim=1, keepdim=True)
        angle = torch.pi / CUTOFF * r
        basis = torch.sin(angle * network.orders) / (10 * r)
        envelope = 0.5 * (torch.cos(angle) + 1)
        direction = (d / r)[:, :, None]
        scalars = network.embedding(network.kinds)
        vectors = scalars.new_zeros(len(x), 3, self.features)
        for layer in network.layers:
            sent = layer.message(scalars)[second] * (layer.filter(basis) * envelope)
            s, along, carried = sent.split(self.features, -1)
            scalars = scalars.index_add(0, first, s)
            moved = along[:, None] * direction + carried[:, None] * vectors[second]
            vectors = vectors.index_add(0, first, moved)
            p, q = layer.mix(vectors).split(self.features, -1)
            length = torch.sqrt((q * q).sum(1) + NORM_FLOOR)
            grown, added, turned = layer.update(torch.cat([scalars, length], -1)).split(self.features, -1)
            scalars = scalars + added + turned * (p * q).sum(1)
            vectors = vectors + grown[:, None] * p
        return network.readout(scalars).sum()

    def schnetpack(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the energy by SchNetPack, with the same weights.

        Raises
        ------
        ImportError
            If it is not installed, or not with all that it imports.
        """
        from torch.utils.data import dataloader

        if not hasattr(dataloader, "T_co"):
            dataloader.T_co = typing.TypeVar("T_co", covariant=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from schnetpack.nn.cutoff import CosineCutoff
            from schnetpack.nn.radial import BesselRBF
            from schnetpack.representation import PaiNN as SchNetPackPaiNN
        theirs = SchNetPackPaiNN(
            self.features,
            LAYERS,
            BesselRBF(RADIAL, 10 * CUTOFF),
            CosineCutoff(10 * CUTOFF),
            epsilon=NORM_FLOOR,
        ).to(self.positions.device)
        _copy_weights(self.network, theirs)
        numbers = torch.tensor(self.network.elements, device=self.positions.device)

        def energy(x: torch.Tensor) -> torch.Tensor:
            found = theirs(
                {
                    "_atomic_numbers": numbers,
                    "_idx_i": self.first,
                    "_idx_j": self.second,
                    "_Rij": 10 * (x[self.second] - x[self.first]),
                }
            )
            return self.network.readout(found["scalar_representation"]).sum()

        return energy

    def operations(self) -> float:
        """Return how many operations there have to be: products of matrices, and of each pair filter and derivative, once."""
        f = self.features
        dense = (2 * 4 * (LAYERS - 1) + 2 * 11 * LAYERS + 1) * f * f
        pair = 2 * (RADIAL + 1) * 3 * f + 2 * 25 * f
        return 2.0 * (self.n_atoms * dense + self.n_pairs * pair * LAYERS)

    def bytes(self) -> float:
        """Return how many bytes have to be read and written once: features kept for the gradients, filters' inputs, weights."""
        f = self.features
        weights = 4 * LAYERS * (30 * f * f + (RADIAL + 1) * 3 * f)
        return weights + 2 * 4.0 * LAYERS * (self.n_atoms * 19 * f) + 4 * 2 * 2 * self.n_pairs * (RADIAL + 1)


def _copy_weights(ours: PaiNNNetwork, theirs: Any) -> None:
    """Give SchNetPack's network our weights: its first two thirds of what an update adds are in the other order."""
    f = ours.features
    with torch.no_grad():
        for kind, number in enumerate(ours.present):
            theirs.embedding.weight[number] = ours.embedding.weight[kind]
        filters = [layer.filter for layer in ours.layers]
        theirs.filter_net.weight.copy_(torch.cat([each.weight for each in filters]))
        theirs.filter_net.bias.copy_(torch.cat([each.bias for each in filters]))
        for layer, message, update in zip(ours.layers, theirs.interactions, theirs.mixing):
            for k, each in enumerate((0, 2)):
                message.interatomic_context_net[k].weight.copy_(layer.message[each].weight)
                message.interatomic_context_net[k].bias.copy_(layer.message[each].bias)
            update.mu_channel_mix.weight.copy_(layer.mix.weight.roll(f, 0))
            update.intraatomic_context_net[0].weight.copy_(layer.update[0].weight)
            update.intraatomic_context_net[0].bias.copy_(layer.update[0].bias)
            swapped = [torch.cat([each[f : 2 * f], each[:f], each[2 * f :]]) for each in
                       (layer.update[2].weight, layer.update[2].bias)]  # fmt: skip
            update.intraatomic_context_net[1].weight.copy_(swapped[0])
            update.intraatomic_context_net[1].bias.copy_(swapped[1])


def evaluations(
    problem: Problem, compiled: bool, notes: list[str]
) -> tuple[dict[str, Evaluation], dict[str, float]]:
    """Return everything that evaluates a problem, and how far the forces of each are from those of eager PyTorch."""
    found: dict[str, Evaluation] = {"openmm-density": problem.ours}
    try:
        found["SchNetPack, eager"] = problem.with_forces(problem.schnetpack())
    except ImportError as error:
        notes.append(f"SchNetPack does not take part: {error}")
    found["eager PyTorch"] = problem.with_forces(problem.eager_energy)
    if compiled:
        torch._dynamo.reset()
        energy = torch.compile(problem.eager_energy, dynamic=False)
        found["torch.compile"] = problem.with_forces(energy)
    expected = found["eager PyTorch"]()[1].cpu()
    deviations = {name: compare(name, each()[1].cpu(), expected, TOLERANCE) for name, each in found.items()}
    return found, deviations


def by_processor_time(name: str, function: Evaluation) -> Engine:
    """Build an engine of a function in one thread whose time is that which the processor gave it."""

    def call() -> float:
        torch.set_num_threads(1)
        start = time.process_time()
        function()
        return time.process_time() - start

    return Engine(name, "energy and forces", 1, call)


def peak_of_products() -> float:
    """Return the operations per second of one thread in a product of matrices by torch's library, by the processor's time."""
    torch.set_num_threads(1)
    a = torch.rand(768, 768)
    times = []
    for _ in range(10):
        start = time.process_time()
        a @ a
        times.append(time.process_time() - start)
    return 2 * 768**3 / min(times)


def on_cpu(
    problem: Problem, arguments: argparse.Namespace, notes: list[str], console: Console
) -> dict[str, Any]:
    """Time a molecule on the CPU."""
    found, deviations = evaluations(problem, arguments.compile, notes)
    if arguments.processor_time:
        arguments.threads = [1]
        engines = [by_processor_time(name, each) for name, each in found.items()]
    else:
        engines = [
            timed(name, "energy and forces", n, each)
            for n in arguments.threads
            for name, each in found.items()
        ]
    measure(engines, arguments.rounds, arguments.seconds)
    title = f"{problem.n_atoms:,} atoms, {problem.n_pairs:,} pairs, {problem.features} features"
    show(console, Case(title, engines, deviations))
    peak, bandwidth = peak_of_products(), cpu_copy_bandwidth()
    report: dict[str, Any] = {"engines": [each.figures() for each in engines], "ratios": {}}
    for n in arguments.threads:
        ours, *others = (each for each in engines if each.threads == n)
        ratios = {each.name: each.fastest / ours.fastest for each in others}
        report["ratios"][n] = ratios
        seconds = ours.fastest / 1e3
        console.print(
            f"  {n} threads, fastest calls: "
            + ", ".join(f"{ratio:.1f} times as fast as {name}" for name, ratio in ratios.items())
            + f"; {problem.operations() / seconds / 1e9:.0f} GFLOP/s of what has to be done, "
            f"{problem.operations() / seconds / (n * peak):.0%} of torch's products of matrices; "
            f"{problem.bytes() / seconds / bandwidth:.0%} of a copy's bandwidth"
        )
    return report


def step_of_force(problem: Problem) -> float:
    """Return the µs of a step of Verlet's integrator with a `CudaGraphForce`, on the CUDA platform."""
    system = openmm.System()
    for _ in range(problem.n_atoms):
        system.addParticle(1e12)
    system.addForce(CudaGraphForce(PaiNN(problem.network)))
    integrator = openmm.VerletIntegrator(1e-6)
    context = openmm.Context(
        system, integrator, openmm.Platform.getPlatformByName("CUDA"), {"Precision": "mixed"}
    )
    context.setPositions(problem.positions.tolist())

    def steps() -> float:
        integrator.step(20)
        context.getState(energy=True)
        start = time.perf_counter()
        integrator.step(200)
        context.getState(energy=True)
        return 1e6 * (time.perf_counter() - start) / 200

    return min(steps() for _ in range(3))


def on_gpu(
    problem: Problem, arguments: argparse.Namespace, notes: list[str], console: Console
) -> dict[str, Any]:
    """Time a molecule on a GPU."""
    found, deviations = evaluations(problem, arguments.compile, notes)
    seconds = min(1.0, arguments.seconds)
    times = {name: microseconds(each, seconds) for name, each in found.items()}
    ours = microseconds(recorded(problem.ours), seconds)
    step = step_of_force(problem)
    ratios = {name: each / ours for name, each in times.items() if name != "openmm-density"}
    peak, bandwidth = peak_arithmetic(), copy_bandwidth()
    console.print(
        f"{problem.n_atoms:,} atoms, {problem.n_pairs:,} pairs, {problem.features} features: {ours:.1f} µs by replay "
        f"({times['openmm-density']:.0f} without), {step:.1f} µs a step of OpenMM; "
        + ", ".join(f"{ratio:.1f} times as fast as {name}" for name, ratio in ratios.items())
        + f"; {1e6 * problem.operations() / ours / peak:.1%} of peak, "
        f"{1e6 * problem.bytes() / ours / bandwidth:.1%} of a copy's bandwidth"
    )
    return {"replay_us": ours, "step_us": step, "eager_us": times, "ratios": ratios, "deviations": deviations}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time PaiNN's energy and forces beside others'.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--atoms", type=int, nargs="+", default=[30, 50, 100, 500, 5000])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument(
        "--processor-time", action="store_true", help="one thread, on a machine that others use as well"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each engine (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="for each molecule (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    console = Console(width=130)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no GPU here that torch can use")
    machine = processor() if arguments.device == "cpu" else torch.cuda.get_device_name()
    console.print(machine)
    report, notes = [], []
    for n_atoms in arguments.atoms:
        problem = Problem(n_atoms, arguments.features, arguments.device)
        sizes = {"atoms": problem.n_atoms, "pairs": problem.n_pairs, "features": problem.features}
        measured = on_cpu if arguments.device == "cpu" else on_gpu
        report.append(sizes | measured(problem, arguments, notes, console))
        if arguments.json:
            write_figures(arguments.json, report, machine)
    for note in dict.fromkeys(notes):
        console.print(note)


if __name__ == "__main__":
    main()
