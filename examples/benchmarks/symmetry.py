"""Time a step of one unit whose copies follow from operators against the whole assembly.

Adenylate kinase stands around a fourfold axis, and in a crystal (P 43 21 2). Force field, density and contacts are those of a
fit. Timed in turns, by processor time (on a GPU by the clock), while atoms hardly move: the unit alone, which sees no copies, and
its force field alone; the unit with operators, and that with the density or the contacts of its copies alone; and all copies of
the assembly. Forces on the unit are compared with those on the first copy.

    python examples/benchmarks/symmetry.py --threads 1 --json symmetry.json
    python examples/benchmarks/symmetry.py --platform CUDA --steps 500
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import openmm
from figures import write_figures
from openmm import app, unit

from openmm_density import DensityFit, DensityMap, SymmetryOperators
from openmm_density.energies.mate_contacts import add_symmetry_contacts
from openmm_density.models import Prepared, prepare, read_model

RESOLUTION = 4.0
MODEL = Path(__file__).parents[1] / "data" / "adk_open.pdb"
NEAREST = 3.0
SYMBOL = "P 43 21 2"


def around_axis(n: int) -> SymmetryOperators:
    """Return the rotations about z of a cyclic group."""
    angles = 2 * np.pi * np.arange(n) / n
    turns = [[[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]] for a in angles]
    return SymmetryOperators.from_matrices(turns, np.zeros((n, 3)))


def beside_axis(positions: np.ndarray, operators: SymmetryOperators) -> np.ndarray:
    """Return a model moved away from the axis until no atoms of two copies are nearer than 3 Å."""
    from scipy.spatial import cKDTree

    centred = positions - positions.mean(axis=0)
    for radius in np.arange(0.0, 200.0, 1.0):
        moved = centred + np.array([radius, 0.0, 0.0])
        copy = operators.expanded(moved)[1]
        if cKDTree(moved).query(copy)[0].min() > NEAREST:
            return moved
    raise SystemExit("no place beside the axis was found")


def copied(prepared: Prepared, n: int) -> app.Topology:
    """Return the topology of n copies."""
    positions = prepared.positions / 10 * unit.nanometer
    modeller = app.Modeller(prepared.topology, positions)
    for _ in range(n - 1):
        modeller.add(prepared.topology, positions)
    return modeller.topology


class Machine(NamedTuple):
    """Where Contexts run."""

    platform: str
    threads: int

    def context(self, system: openmm.System, positions: np.ndarray) -> openmm.Context:
        """Return a Context with positions in Å."""
        properties = {"Threads": str(self.threads)} if self.platform == "CPU" else {"Precision": "mixed"}
        platform = openmm.Platform.getPlatformByName(self.platform)
        context = openmm.Context(system, openmm.VerletIntegrator(1e-9), platform, properties)
        context.setPositions(positions / 10)
        return context

    def clock(self) -> float:
        """Return seconds of processor time, or on a GPU of the clock."""
        return time.process_time() if self.platform == "CPU" else time.perf_counter()


def context_of(
    machine: Machine,
    topology: app.Topology,
    positions: np.ndarray,
    density_map: DensityMap,
    operators: SymmetryOperators | None = None,
    with_density: bool = True,
    with_contacts: bool = True,
) -> openmm.Context:
    """Return a Context with the force field, and the density and the contacts with copies of a model."""
    forcefield = app.ForceField("amber14-all.xml")
    system = forcefield.createSystem(
        topology, nonbondedMethod=app.CutoffNonPeriodic, nonbondedCutoff=1.0, removeCMMotion=False
    )
    if with_density:
        fit = DensityFit(
            density_map,
            topology,
            RESOLUTION,
            strength=5.0,
            system=system,
            positions=positions,
            operators=operators,
        )
        system.addForce(fit.create_force("NativeForce", parameter_derivative=False))
    if operators is not None and with_contacts:
        add_symmetry_contacts(system, topology, positions, operators, backend="NativeForce")
    return machine.context(system, positions)


def all_of_unit(
    machine: Machine,
    topology: app.Topology,
    positions: np.ndarray,
    density_map: DensityMap,
    operators: SymmetryOperators,
) -> dict[str, openmm.Context]:
    """Return the Contexts of a unit."""
    model = machine, topology, positions, density_map
    return {
        "force field": context_of(*model, with_density=False),
        "unit alone": context_of(*model),
        "contacts with copies": context_of(*model, operators, with_density=False),
        "density of copies": context_of(*model, operators, with_contacts=False),
        "unit with operators": context_of(*model, operators),
    }


def forces_of(context: openmm.Context) -> np.ndarray:
    """Return the forces of a Context in kJ/mol/nm."""
    return np.asarray(context.getState(forces=True).getForces(asNumpy=True)._value)


def timed(machine: Machine, contexts: dict[str, openmm.Context], steps: int, rounds: int) -> dict[str, float]:
    """Return ms of a step of each, the median of some rounds."""
    taken: dict[str, list[float]] = {name: [] for name in contexts}
    for number in range(rounds + 1):
        for name, context in contexts.items():
            started = machine.clock()
            context.getIntegrator().step(steps)
            context.getState(energy=True)
            if number:  # the first warms up
                taken[name].append(1000 * (machine.clock() - started) / steps)
    return {name: float(np.median(each)) for name, each in taken.items()}


def assembly(machine: Machine, prepared: Prepared, n: int, steps: int, rounds: int) -> dict[str, float]:
    """Compare the unit of a ring with all of it."""
    operators = around_axis(n)
    positions = beside_axis(prepared.positions, operators)
    everything = operators.expanded(positions).reshape(-1, 3)
    topology = copied(prepared, n)
    density_map = DensityMap.simulate(topology, everything, RESOLUTION, 1.3, margin=15.0)
    moved = positions + np.random.default_rng(0).normal(0, 0.02, positions.shape)
    contexts = all_of_unit(machine, prepared.topology, moved, density_map, operators)
    all_moved = operators.expanded(moved).reshape(-1, 3)
    contexts["all copies"] = context_of(machine, topology, all_moved, density_map)
    found = forces_of(contexts["unit with operators"])
    wanted = forces_of(contexts["all copies"])[: len(found)]
    off = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    return timed(machine, contexts, steps, rounds) | {"forces differ by": off}


def crystal(machine: Machine, prepared: Prepared, steps: int, rounds: int) -> dict[str, float]:
    """Compare the unit of a crystal with the unit alone."""
    operators = SymmetryOperators.crystal((80.0, 80.0, 110.0, 90.0, 90.0, 90.0), SYMBOL)
    positions = prepared.positions - prepared.positions.mean(axis=0) + np.array([10.0, 32.0, 20.0])
    # What the map holds does not matter to the time.
    noise = np.random.default_rng(0).normal(size=(88, 64, 64)).astype(np.float32)
    density_map = DensityMap(noise, np.diag([1.25] * 3), np.zeros(3), True)
    contexts = all_of_unit(machine, prepared.topology, positions, density_map, operators)
    return timed(machine, contexts, steps, rounds)


def show(title: str, found: dict[str, float], per: str) -> None:
    """Print the times and what the unit with operators takes of each."""
    print(f"{title}: ms of a step")
    for name, value in found.items():
        if name != "forces differ by":
            print(f"  {name:22}{value:9.2f}")
    ratio = found[per] / found["unit with operators"]
    print(f"  {per} / unit with operators: {ratio:.2f}")
    if "forces differ by" in found:
        print(f"  forces differ by {found['forces differ by']:.1e} of the largest")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=4, help="of the ring (4)")
    parser.add_argument("--platform", default="CPU", help="CPU or CUDA (CPU)")
    parser.add_argument("--threads", type=int, default=1, help="of OpenMM and the density on a CPU (1)")
    parser.add_argument("--steps", type=int, default=5, help="in a round (5)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is shown (5)")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    if arguments.copies < 2:
        sys.exit("a ring has at least 2 copies")
    prepared = prepare(read_model(MODEL))
    machine = Machine(arguments.platform, arguments.threads)
    how = arguments.steps, arguments.rounds
    ring = assembly(machine, prepared, arguments.copies, *how)
    show(f"C{arguments.copies}", ring, "all copies")
    lattice = crystal(machine, prepared, *how)
    show(SYMBOL, lattice, "unit alone")
    if arguments.json:
        write_figures(arguments.json, {"ring": ring, "crystal": lattice})


if __name__ == "__main__":
    main()
