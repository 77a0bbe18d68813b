"""What a step of a fit costs: adenylate kinase in the map of its closed form, by force.

The System is that of `openmm-density fit` (amber14 without solvent, cut off at 1 nm, 3 Da hydrogens, 4 fs, every restraint of the
protocols, the density at 5 Å). Steps are timed of the force field alone, of the force field and one other force, and of all
together, in Contexts that take turns, so that what else runs on the machine meets all alike. Then each force group of the whole
System is evaluated alone. On CPUs our kernels evaluate the force field, as in a fit, and in one Context OpenMM's.

    python examples/benchmarks/step.py --threads 2 --json step.json
    python examples/benchmarks/step.py --threads 1 --only DensityFit --model 6374_original_1.pdb
    python examples/benchmarks/step.py --platform CUDA --kernels
    python examples/benchmarks/step.py --threads 1 --backends TorchForce NativeForce PythonForce

The last compares ways of adding the forces of our own (density, planarity, Ramachandran maps) to OpenMM.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openmm
import torch
from figures import write_figures
from interleaved import processor

from openmm_density import DensityFit, DensityMap, PlanarityRestraint
from openmm_density.fitting.fit_systems import STABLE_FRACTION
from openmm_density.fitting.platforms import make_context, platform_named
from openmm_density.models import prepare, read_model
from openmm_density.models.preparation import Prepared
from openmm_density.restraints import RamachandranRestraint, make_restraints

MODELS = Path(__file__).parents[1] / "data"
RESOLUTION, VOXEL_SIZE = 5.0, 1.0
RESTRAINTS = ("chirality", "cis", "ramachandran", "water", "ss", "rotamers")
TIMESTEP, FRICTION, TEMPERATURE = 0.004, 5.0, 300.0
HYDROGEN_MASS = 3.0
STRENGTH = 20.0
FORCE_FIELD, ALL = "force field", "all"
OPENMM_KERNELS = "force field, OpenMM's kernels"
EXPRESSION = "RamachandranRestraint, custom"
"""OpenMM's expression for what our own operator does on the CPU platform."""
OWN = ("RamachandranRestraint", "PlanarityRestraint", "DensityFit")
"""Those whose energies are operators of our own."""
MakeForce = Callable[[], openmm.Force]


@dataclass
class Row:
    """One measurement.

    Attributes
    ----------
    forces : str
        What acts beside the force field.
    fastest, median : float
        ms of a step.
    added : float
        What the forces add to the fastest step of the force field alone, relative to it: others on the machine slow steps down,
        and never speed them up.
    """

    forces: str
    fastest: float
    median: float
    added: float


def forces_of_a_fit(
    model: Prepared, density_map: DensityMap, on_gpu: bool, backend: str | None = None
) -> dict[str, MakeForce]:
    """Return what makes the forces of a fit beside the force field, by name, and `EXPRESSION` in place of one of them."""
    plain = model.system(hydrogen_mass=HYDROGEN_MASS)
    options = {
        "parameter_derivative": False,
        "backend": backend or ("CudaGraphForce" if on_gpu else "auto"),
    }
    made: dict[str, MakeForce] = {}
    for restraint in make_restraints(RESTRAINTS, model.topology, model.positions):
        made[type(restraint).__name__] = restraint.create_force
        if isinstance(restraint, RamachandranRestraint) and not on_gpu:
            made[EXPRESSION] = restraint.create_force
            made[type(restraint).__name__] = partial(restraint.create_force, **options)
    planarity = PlanarityRestraint(model.topology, model.positions, system=plain)
    # As in a fit: what the time step bears.
    planarity.force_constant *= min(1.0, (STABLE_FRACTION * planarity.stable_timestep(plain) / TIMESTEP) ** 2)
    made["PlanarityRestraint"] = lambda: planarity.create_force(**options)
    fit = DensityFit(
        density_map,
        model.topology,
        RESOLUTION,
        positions=model.positions,
        system=plain,
        strength=STRENGTH,
    )
    made["DensityFit"] = lambda: fit.create_force(**options)
    return made


class Bench:
    """Contexts with the same start."""

    def __init__(
        self, model: Prepared, forces: dict[str, MakeForce], platform: str, threads: int | None
    ) -> None:
        self.model = model
        self.platform = platform_named(platform, threads)
        context = self.context({})
        context.setPositions(model.positions / 10)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=200)
        start = context.getState(positions=True)
        context = self.context(forces)
        context.setState(start)
        # Strained where the other forces hold it otherwise.
        context.getIntegrator().setStepSize(TIMESTEP / 8)
        context.setVelocitiesToTemperature(TEMPERATURE, 1)
        context.getIntegrator().step(500)
        self.start = context.getState(positions=True, velocities=True)

    def context(
        self, forces: dict[str, MakeForce], grouped: bool = False, own_kernels: bool = True
    ) -> openmm.Context:
        """Build a Context of the force field and some forces, these in force groups from 1 on where asked."""
        system = self.model.system(hydrogen_mass=HYDROGEN_MASS)
        for number, make in enumerate(forces.values()):
            force = make()
            force.setForceGroup(1 + number if grouped else 0)
            system.addForce(force)
        integrator = openmm.LangevinMiddleIntegrator(TEMPERATURE, FRICTION, TIMESTEP)
        integrator.setRandomNumberSeed(1)
        if own_kernels:
            return make_context(system, integrator, self.platform)
        return openmm.Context(system, integrator, *self.platform)

    def started(self, forces: dict[str, MakeForce], **options: bool) -> openmm.Context:
        """Return a Context that has taken its first steps: kernels are compiled, graphs recorded."""
        context = self.context(forces, **options)
        context.setState(self.start)
        context.getIntegrator().step(20)
        return context


def stepped(context: openmm.Context, n_steps: int) -> float:
    """Return the ms of a step."""
    start = time.perf_counter()
    context.getIntegrator().step(n_steps)
    # Waits for a GPU.
    context.getState()
    return (time.perf_counter() - start) / n_steps * 1e3


def measure_steps(contexts: dict[str, openmm.Context], rounds: int, seconds: float) -> list[Row]:
    """Time steps of all Contexts in turns."""
    n_steps = max(10, round(seconds / rounds / stepped(contexts[FORCE_FIELD], 50) * 1e3))
    times: dict[str, list[float]] = {name: [] for name in contexts}
    for _ in range(rounds):
        for name, context in contexts.items():
            times[name].append(stepped(context, n_steps))
    bare = min(times[FORCE_FIELD])
    return [
        Row(name, min(each), statistics.median(each), min(each) / bare - 1.0) for name, each in times.items()
    ]


def compare_backends(bench: Bench, made: dict[str, dict[str, MakeForce]], options: Any) -> list[Row]:
    """Print what forces of our own add to a step by each backend, and relative to the first of them."""
    contexts = {FORCE_FIELD: bench.started({})}
    contexts |= {backend: bench.started(forces) for backend, forces in made.items()}
    rows = measure_steps(contexts, options.rounds, options.seconds)
    bare, first = rows[0], rows[1]
    print(
        f"{'backend':<20}{'fastest ms':>12}{'added ms':>10}{'ratio':>8}{'median ms':>12}{'added ms':>10}{'ratio':>8}"
    )
    for row in rows:
        added = row.fastest - bare.fastest, row.median - bare.median
        ratios = added[0] / (first.fastest - bare.fastest), added[1] / (first.median - bare.median)
        print(
            f"{row.forces:<20}{row.fastest:>12.4f}{added[0]:>10.4f}{ratios[0]:>8.2f}"
            f"{row.median:>12.4f}{added[1]:>10.4f}{ratios[1]:>8.2f}"
        )
    return rows


def measure_groups(context: openmm.Context, names: list[str], rounds: int) -> dict[str, float]:
    """Return the ms that the forces of each group take alone, less what an evaluation of none takes."""

    def evaluated(group: int) -> float:
        start = time.perf_counter()
        context.getState(forces=True, groups={group})
        return (time.perf_counter() - start) * 1e3

    none = len(names)
    times = [[evaluated(group) for group in range(len(names) + 1)] for _ in range(rounds)]
    medians = np.median(np.array(times), axis=0)
    return {name: float(medians[group] - medians[none]) for group, name in enumerate(names)}


def show_kernels(context: openmm.Context, n_steps: int = 200) -> list[tuple[str, float, float]]:
    """Print which kernels a step launches on a GPU, how often, and the µs that they take."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    context.getIntegrator().step(50)
    with torch.profiler.profile(activities=activities) as profile:
        context.getIntegrator().step(n_steps)
        context.getState()
    rows = [
        (each.key, each.count / n_steps, each.device_time_total / n_steps) for each in profile.key_averages()
    ]
    rows = sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])
    print(f"{'kernel':<70}{'a step':>8}{'µs':>9}")
    for name, count, microseconds in rows:
        print(f"{name[:68]:<70}{count:>8.2f}{microseconds:>9.2f}")
    print(f"{'all':<70}{sum(row[1] for row in rows):>8.2f}{sum(row[2] for row in rows):>9.2f}")
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="CPU", help="OpenMM platform (%(default)s)")
    parser.add_argument("--threads", type=int, help="of the CPU platform and of the kernels (all cores)")
    parser.add_argument("--model", type=Path, help="this one in a map of its own (adenylate kinase)")
    parser.add_argument("--rounds", type=int, default=20, help="in each of which every Context steps")
    parser.add_argument("--seconds", type=float, default=5.0, help="of every Context (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="FORCE", help="these forces alone, as in DensityFit")
    parser.add_argument(
        "--backends", nargs="+", metavar="NAME", help="compare these, as TorchForce NativeForce"
    )
    parser.add_argument("--kernels", action="store_true", help="list a step's kernels on a GPU")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="using .*Force, because")
    if options.threads:
        torch.set_num_threads(options.threads)
    cuda = options.platform == "CUDA"
    model = prepare(read_model(options.model or MODELS / "adk_open.pdb"))
    target = read_model(options.model or MODELS / "adk_closed.pdb")
    density_map = DensityMap.simulate(target.topology, target.positions, RESOLUTION, VOXEL_SIZE)
    if options.backends:
        by_backend = {}
        for backend in options.backends:
            made = forces_of_a_fit(model, density_map, False, backend)
            by_backend[backend] = {name: made[name] for name in options.only or OWN}
        bench = Bench(model, by_backend[options.backends[0]], options.platform, options.threads)
        rows = compare_backends(bench, by_backend, options)
        if options.json:
            results = {"platform": options.platform, "device": processor(), "threads": options.threads}
            write_figures(options.json, results | {"backends": [asdict(row) for row in rows]})
        return
    made = forces_of_a_fit(model, density_map, cuda)
    if options.only:
        made = {name: made[name] for name in options.only}
    of_a_fit = {name: make for name, make in made.items() if name != EXPRESSION}
    bench = Bench(model, of_a_fit, options.platform, options.threads)
    contexts = {FORCE_FIELD: bench.started({})}
    if options.platform == "CPU":
        contexts[OPENMM_KERNELS] = bench.started({}, own_kernels=False)
    contexts |= {name: bench.started({name: make}) for name, make in made.items()}
    contexts[ALL] = bench.started(of_a_fit)
    device = torch.cuda.get_device_name(0) if cuda else processor()
    threads = f", {options.threads} threads" if options.threads else ""
    print(f"{options.platform} platform{threads}, {device}, OpenMM {openmm.__version__}")
    print(f"{'forces':<32}{'fastest ms':>12}{'median ms':>12}{'added':>9}")
    rows = measure_steps(contexts, options.rounds, options.seconds)
    for row in rows:
        print(f"{row.forces:<32}{row.fastest:>12.4f}{row.median:>12.4f}{100 * row.added:>8.1f}%")
    groups = measure_groups(bench.started(made, grouped=True), [FORCE_FIELD, *made], 10 * options.rounds)
    print(f"\n{'force group alone':<32}{'median ms':>12}")
    for name, milliseconds in groups.items():
        print(f"{name:<32}{milliseconds:>12.4f}")
    kernels = []
    if options.kernels:
        print()
        kernels = show_kernels(contexts[ALL])
    if options.json:
        about = {"platform": options.platform, "device": device, "threads": options.threads}
        results = {"steps": [asdict(row) for row in rows], "groups": groups, "kernels": kernels}
        write_figures(options.json, {**about, **results})


if __name__ == "__main__":
    main()
