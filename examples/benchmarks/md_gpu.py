"""What the density force costs in molecular dynamics: ns/day of a protein in water, with and without it.

Adenylate kinase (214 residues) in a box of about 100 000 atoms (amber14, TIP3P-FB, PME, 1.5 Da hydrogens, 4 fs). Two cases: the
density of the protein's heavy atoms, pulled into the closed conformation's map at 5 Å; and the density of all atoms of the box.
Each runs through every way of adding a force that works here, without and with CUDA graphs, evaluated at every step
(LangevinMiddleIntegrator) and at every fourth (MTSLangevinIntegrator); what it adds is measured against the same integrator
without the force, in turns: steps of one System alone vary by some per cent from minute to minute. Where the time goes: the
module's kernels on the GPU, the whole of the force's own evaluation in a Context, and what each way of adding a force costs by
itself, measured with a module that does nothing ("nothing"): no module costs less.

    python examples/benchmarks/md_gpu.py --json md.json
    python examples/benchmarks/md_gpu.py --quick --platform CPU
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openmm
import torch
from empty_module import EmptyModule
from figures import write_figures
from openmm import app, unit

from openmm_density import DensityFit, DensityMap
from openmm_density.base.plugins import platform_names
from openmm_density.energies.forces import BACKENDS, backend_problem, create_force

MODELS = Path(__file__).parents[1] / "data"
RESOLUTION = 5.0
VOXEL_SIZE = 1.0
TIMESTEP = 0.004
EVERY = 4
RUNS = 10
DENSITY_GROUP = 1
ATOMS_PER_CUBIC_NANOMETRE = 100.0


@dataclass
class Model:
    """The solvated protein and what its density is compared with."""

    topology: app.Topology
    positions: np.ndarray
    """In Å."""
    system: openmm.System
    targets: dict[str, DensityMap]
    """By the name of the selection."""


@dataclass
class Row:
    """One measurement.

    Attributes
    ----------
    case : str
        What is fitted; "nothing" where as many atoms are handed to a module that does nothing.
    n_fitted, every : int
        Number of fitted atoms; the force is evaluated at every so many steps.
    backend : str
        "none", or the way of adding the force, with "+ graphs" where CUDA graphs are on.
    ns_per_day, step : float
        Speed, and ms of a step of 4 fs.
    added, share : float
        What the force adds to a step, in ms and relative to a step without it.
    evaluation, kernels : float or None
        ms of one evaluation of the force alone in the Context; ms of its module on the GPU, launched from a CUDA graph.
    """

    case: str
    n_fitted: int
    every: int
    backend: str
    ns_per_day: float
    step: float
    added: float = 0.0
    share: float = 0.0
    evaluation: float | None = None
    kernels: float | None = None


def solvated(n_atoms: int) -> Model:
    """Put adenylate kinase into a cube of water of about so many atoms."""
    opened, closed = (app.PDBFile(str(MODELS / f"adk_{state}.pdb")) for state in ("open", "closed"))
    forcefield = app.ForceField("amber14-all.xml", "amber14/tip3pfb.xml")
    modeller = app.Modeller(opened.topology, opened.positions)
    modeller.addHydrogens(forcefield)
    protein = in_angstrom(modeller.positions)
    smallest = float(np.ptp(protein, axis=0).max()) / 10 + 1.0
    edge = max(smallest, (n_atoms / ATOMS_PER_CUBIC_NANOMETRE) ** (1 / 3))
    modeller.addSolvent(forcefield, model="tip3p", boxSize=openmm.Vec3(edge, edge, edge) * unit.nanometer)
    positions = in_angstrom(modeller.positions)
    system = forcefield.createSystem(
        modeller.topology,
        nonbondedMethod=app.PME,
        nonbondedCutoff=0.9 * unit.nanometer,
        constraints=app.HBonds,
        hydrogenMass=1.5 * unit.dalton,
        removeCMMotion=False,
    )
    # Solvation moves the protein to the middle of the box.
    shift = positions[: len(protein)].mean(axis=0) - protein.mean(axis=0)
    targets = {
        "heavy": DensityMap.simulate(
            closed.topology, in_angstrom(closed.positions) + shift, RESOLUTION, VOXEL_SIZE
        ),
        "all": DensityMap.simulate(modeller.topology, positions, RESOLUTION, VOXEL_SIZE),
    }
    return Model(modeller.topology, positions, system, targets)


def in_angstrom(positions: Any) -> np.ndarray:
    """Return positions with a unit as an array."""
    return np.array(positions.value_in_unit(unit.angstrom))


def integrator(every: int) -> tuple[openmm.Integrator, float]:
    """Return an integrator that evaluates the density at every so many steps, and the ns of one of its steps."""
    if every == 1:
        return openmm.LangevinMiddleIntegrator(300, 1, TIMESTEP), TIMESTEP / 1000
    whole = every * TIMESTEP
    groups = [(DENSITY_GROUP, 1), (0, every)]
    return openmm.MTSLangevinIntegrator(300, 1, whole, groups), whole / 1000


class Bench:
    """Contexts of one model on one platform."""

    def __init__(self, model: Model, platform_name: str, seconds: float) -> None:
        self.model = model
        self.platform = openmm.Platform.getPlatformByName(platform_name)
        self.properties = {"Precision": "mixed"} if platform_name in ("CUDA", "OpenCL", "HIP") else {}
        self.seconds = seconds
        context = self.context(openmm.LangevinMiddleIntegrator(300, 1, 0.001))
        context.setPositions(model.positions / 10)
        openmm.LocalEnergyMinimizer.minimize(context, maxIterations=50)
        context.setVelocitiesToTemperature(300, 1)
        context.getIntegrator().step(500 if self.properties else 5)
        self.state = context.getState(positions=True, velocities=True)

    def context(self, integrator: openmm.Integrator) -> openmm.Context:
        """Build a Context of the System as it is now."""
        return openmm.Context(self.model.system, integrator, self.platform, self.properties)

    def started(self, every: int) -> tuple[openmm.Context, float]:
        """Return a Context with the starting state, and the ns of one of its steps."""
        stepper, nanoseconds = integrator(every)
        context = self.context(stepper)
        context.setState(self.state)
        return context, nanoseconds

    def steps(self, *contexts: openmm.Context) -> list[list[float]]:
        """Return the seconds of one step of the integrator of each Context, in so many runs, which take turns."""

        def run(context: openmm.Context, n_steps: int) -> float:
            start = time.perf_counter()
            context.getIntegrator().step(n_steps)
            # Waits for the GPU.
            context.getState(positions=True)
            return (time.perf_counter() - start) / n_steps

        # Kernels are compiled, graphs captured, clocks raised.
        for context in contexts:
            run(context, 8)
        n_steps = max(2, round(self.seconds / RUNS / run(contexts[-1], 4)))
        seconds = [[run(context, n_steps) for context in contexts] for _ in range(RUNS)]
        for context in contexts:
            positions = context.getState(positions=True).getPositions(asNumpy=True)._value
            if not np.isfinite(positions).all():
                raise SystemExit(f"the dynamics broke down after {RUNS * n_steps} steps")
        return [list(of_one) for of_one in zip(*seconds)]

    def evaluation(self, context: openmm.Context) -> float:
        """Return the seconds that the density force alone takes in a Context, energy and forces."""

        def run() -> float:
            start = time.perf_counter()
            context.getState(energy=True, forces=True, groups={DENSITY_GROUP})
            return time.perf_counter() - start

        def empty() -> float:
            start = time.perf_counter()
            context.getState(energy=True, forces=True, groups={31})
            return time.perf_counter() - start

        times = [(run(), empty()) for _ in range(20)]
        return statistics.median(full - without for full, without in times)


def kernel_seconds(module: torch.nn.Module, n_particles: int, model: Model) -> float | None:
    """Return the seconds of a module's kernels on the GPU, replayed from a CUDA graph; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    module = module.cuda()
    positions = torch.from_numpy(model.positions / 10).float().cuda()
    assert len(positions) == n_particles
    vectors = model.system.getDefaultPeriodicBoxVectors()
    box = np.array([tuple(vector.value_in_unit(unit.nanometer)) for vector in vectors])
    arguments = (positions, torch.from_numpy(box).float().cuda(), torch.ones(1, device="cuda"))
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                module(*arguments)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module(*arguments)
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 10e3)
    return statistics.median(times)


def ways() -> list[tuple[str, bool]]:
    """Return the ways of adding a force that work here: backend, and whether with CUDA graphs."""
    found = []
    for backend in BACKENDS:
        problem = backend_problem(backend)
        if problem is not None:
            print(f"{backend} does not work here: {problem}")
            continue
        found.append((backend, False))
        if torch.cuda.is_available() and backend in ("TorchForce", "PythonForce"):
            found.append((backend, True))
    return found


def measure(bench: Bench, cases: list[str], only: str | None, show: Callable[[Row], None]) -> list[Row]:
    """Run every case in every way."""
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        show(row)

    system = bench.model.system
    without: dict[int, openmm.Context] = {}
    for every in (1, EVERY):
        without[every], nanoseconds = bench.started(every)
        (runs,) = bench.steps(without[every])
        seconds = statistics.median(runs)
        add(Row("no density", 0, every, "none", nanoseconds / seconds * 86400, seconds / every * 1e3))
    n_particles = system.getNumParticles()
    for case in cases:
        fit = DensityFit(
            bench.model.targets[case],
            bench.model.topology,
            RESOLUTION,
            atoms=case,
            system=system,
            positions=bench.model.positions,
            force_group=DENSITY_GROUP,
        )
        kernels = kernel_seconds(fit.create_module(), n_particles, bench.model)
        for backend, graphs in ways() if only is None else [w for w in ways() if w[0] == only]:
            nothing = create_force(
                EmptyModule(n_particles, torch.float32),
                "nothing",
                0.0,
                periodic=True,
                name="nothing",
                backend=backend,
                force_group=DENSITY_GROUP,
                parameter_derivative=False,
                cuda_graphs=graphs,
                of_particles=(fit.atoms, lambda n=fit.n_fitted_atoms: EmptyModule(n, torch.float32)),
            )
            density = fit.create_force(backend, parameter_derivative=False, cuda_graphs=graphs)
            for name, force in (("nothing", nothing), (case, density)):
                index = system.addForce(force)
                for every in (1, EVERY):
                    context, nanoseconds = bench.started(every)
                    bare, runs = bench.steps(without[every], context)
                    seconds = statistics.median(runs)
                    added = statistics.median(own - other for own, other in zip(runs, bare)) / every
                    add(
                        Row(
                            name,
                            fit.n_fitted_atoms,
                            every,
                            backend + " + graphs" * graphs,
                            nanoseconds / seconds * 86400,
                            seconds / every * 1e3,
                            added * 1e3,
                            added * every / statistics.median(bare),
                            bench.evaluation(context) * 1e3 if every == 1 else None,
                            kernels * 1e3 if kernels is not None and force is density else None,
                        )
                    )
                    del context
                system.removeForce(index)
    return rows


def show(row: Row) -> None:
    """Print a row of the table."""
    cost = f"{row.added:9.3f} {100 * row.share:6.1f}%" if row.backend != "none" else " " * 17
    parts = "".join(
        f"{value:11.3f}" if value is not None else " " * 11 for value in (row.evaluation, row.kernels)
    )
    print(
        f"{row.case:<11}{row.n_fitted:>7} {row.every:>5}  {row.backend:<22}{row.ns_per_day:>8.1f}{row.step:>9.3f}{cost}{parts}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoms", type=int, default=100_000, help="of the box, about (%(default)s)")
    parser.add_argument("--platform", help="OpenMM platform (CUDA if it is there, else CPU)")
    parser.add_argument("--cases", nargs="+", choices=("heavy", "all"), default=["heavy", "all"])
    parser.add_argument("--backend", choices=BACKENDS, help="this way of adding the force only")
    parser.add_argument("--seconds", type=float, default=5.0, help="of every measurement (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="as little water as possible, and a second each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="using .*Force, because")
    name = options.platform or ("CUDA" if "CUDA" in platform_names() else "CPU")
    start = time.perf_counter()
    model = solvated(0 if options.quick else options.atoms)
    n_particles = model.system.getNumParticles()
    print(f"{n_particles} atoms built in {time.perf_counter() - start:.0f} s", flush=True)
    bench = Bench(model, name, 1.0 if options.quick else options.seconds)
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else platform.processor()
    print(
        f"{name} platform, {device}, OpenMM {openmm.__version__}, torch {torch.__version__}, {TIMESTEP * 1000:g} fs"
    )
    print(
        f"{'fitted':<11}{'atoms':>7} every  {'force':<22}{'ns/day':>8}{'ms/step':>9}{'added ms':>10}{'':>7}"
        f"{'evaluation':>11}{'kernels':>11}"
    )
    rows = measure(bench, ["heavy"] if options.quick else options.cases, options.backend, show)
    if options.json:
        about = {
            "atoms": n_particles,
            "platform": name,
            "device": device,
            "versions": {"openmm": openmm.__version__, "torch": torch.__version__},
            "timestep_fs": TIMESTEP * 1000,
        }
        write_figures(options.json, {**about, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
