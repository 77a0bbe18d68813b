"""What replicas that exchange cost, in steps of a single simulation with the same force field, restraints and density.

    python examples/benchmarks/replica_exchange.py --platform CUDA

Adenylate kinase, a half of it and two of it side by side, without water. Each layout of the replicas is timed beside the single
simulation, by turns; exchanges are counted. The ratio is of the medians: 8 replicas in one Context on a GPU should cost less than
2.5 single simulations.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import gemmi
import numpy as np
import openmm

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.replica_exchange import Ladder, ReplicaExchange
from openmm_density.models import Prepared, prepare, read_model
from openmm_density.models.model import Model
from openmm_density.restraints import PlanarityRestraint, make_restraints

DATA = Path(__file__).resolve().parents[1] / "data"
RESOLUTION = 5.0
STRENGTH = 50.0
TIMESTEP, FRICTION, HYDROGEN_MASS = 0.004, 5.0, 3.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--platform", default="CPU")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="between exchanges")
    parser.add_argument("--rounds", type=int, default=5, help="in each timing")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layouts", nargs="+", default=["merged", "separate"])
    parser.add_argument("--residues", nargs="+", type=int, default=[107, 214, 428])
    parser.add_argument("--threads", type=int, default=1, help="for separate replicas")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    found = [figures for residues in options.residues for figures in measured(residues, options)]
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measured(residues: int, options: argparse.Namespace) -> list[dict[str, float]]:
    """Time all layouts for a protein of so many residues, and print a line for each."""
    prepared = prepare(protein(residues))
    system, density, planarity = simulated(prepared, options.platform)
    positions = minimized(system, prepared.positions, options.platform)
    single = single_simulation(system, positions, options.platform, density)
    ladder = Ladder.of_strength(0.1 * STRENGTH, STRENGTH, options.replicas)
    exchanges = {
        layout: ReplicaExchange(
            system,
            density,
            ladder,
            positions,
            planarity=planarity,
            friction=FRICTION,
            timestep=TIMESTEP,
            platform=options.platform,
            threads=options.threads,
            layout=layout,
        )
        for layout in options.layouts
    }
    steps = options.steps * options.rounds
    times: dict[str, list[float]] = {name: [] for name in ("single", *exchanges)}
    for repeat in range(options.repeats + 1):
        for name in times:
            began = time.perf_counter()
            if name == "single":
                single.getIntegrator().step(steps)
                single.getState(positions=True)
            else:
                exchanges[name].run(options.rounds, options.steps)
            if repeat:
                times[name].append((time.perf_counter() - began) / steps * 1e3)
    own = float(np.median(times["single"]))
    lines = []
    for name, exchange in exchanges.items():
        cost = float(np.median(times[name]))
        print(
            f"{residues} residues, {system.getNumParticles()} atoms: a single step {own:.3f} ms, {options.replicas} replicas "
            f"{name} {cost:.3f} ms, ratio {cost / own:.2f}, acceptance "
            + " ".join("–" if part is None else f"{part:.2f}" for part in exchange.record.acceptance),
            flush=True,
        )
        lines.append({"residues": residues, "layout": name, "single_ms": own, "replicas_ms": cost})
    return lines


def protein(residues: int) -> Model:
    """Return adenylate kinase, cut to its first residues, or with a second chain beside it."""
    structure = gemmi.read_structure(str(DATA / "adk_closed.pdb"))
    structure.setup_entities()
    chain = structure[0][0]
    whole = len(chain)
    if residues > whole:
        second = chain.clone()
        second.name = "B"
        for residue in second:
            for atom in residue:
                atom.pos += gemmi.Position(60.0, 0.0, 0.0)
        del second[residues - whole :]
        structure[0].add_chain(second)
    else:
        del chain[residues:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pdb"
        structure.write_pdb(str(path))
        return read_model(path)


def simulated(prepared: Prepared, platform: str) -> tuple[openmm.System, DensityFit, PlanarityRestraint]:
    """Return the System as fits have it, and what made its forces."""
    system = prepared.system(hydrogen_mass=HYDROGEN_MASS)
    density_map = DensityMap.simulate(prepared.topology, prepared.positions, RESOLUTION, 1.2, noise=0.1)
    density = DensityFit(
        density_map, prepared.topology, RESOLUTION, positions=prepared.positions, system=system
    )
    names = "cis,chirality,ramachandran,planarity"
    restraints = make_restraints(
        names, prepared.topology, prepared.positions, options={"planarity": {"system": system}}
    )
    (planarity,) = (each for each in restraints if isinstance(each, PlanarityRestraint))
    backend = {"backend": "CudaGraphForce"} if platform == "CUDA" else {}
    for each in restraints:
        system.addForce(each.create_force(**(backend if each is planarity else {})))
    system.addForce(density.create_force(**backend))
    return system, density, planarity


def context_of(system: openmm.System, integrator: openmm.Integrator, platform: str) -> openmm.Context:
    """Return a Context as fits have it."""
    found = openmm.Platform.getPlatformByName(platform)
    wanted = {"Precision": "mixed", "DeterministicForces": "true", "Threads": "1"}
    properties = {name: value for name, value in wanted.items() if name in found.getPropertyNames()}
    return openmm.Context(system, integrator, found, properties)


def minimized(system: openmm.System, positions: np.ndarray, platform: str) -> np.ndarray:
    """Return positions in Å of which dynamics can begin."""
    context = context_of(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=100)
    return 10 * context.getState(positions=True).getPositions(asNumpy=True)._value


def single_simulation(
    system: openmm.System, positions: np.ndarray, platform: str, density: DensityFit
) -> openmm.Context:
    """Return a Context of the System at full strength, warm."""
    context = context_of(system, openmm.LangevinMiddleIntegrator(300.0, FRICTION, TIMESTEP), platform)
    context.setPositions(positions / 10)
    context.setVelocitiesToTemperature(300.0, 1)
    context.setParameter(density.parameter_name, STRENGTH * density.n_fitted_atoms)
    return context


if __name__ == "__main__":
    main()
