"""What replicas that share a map cost: side by side in one Context, or each in a Context of its own.

Adenylate kinase without water, in a 5 Å map. ``merged`` is `EnsembleFit` in one Context. ``separate`` is a Context and a thread
for each replica with a density force of its own: what an exchange of densities would cost comes on top, so that it is a lower
bound.

    python examples/benchmarks/ensemble.py --platform CPU --threads 2 --replicas 1 2 4 8
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openmm
import torch

from openmm_density import DensityFit, DensityMap, EnsembleFit
from openmm_density.models import prepare, read_model
from openmm_density.models.merging import displacements_apart, merge_systems
from openmm_density.models.preparation import Prepared

DATA = Path(__file__).parents[1] / "data"


def main() -> None:
    """Time both, for each number of replicas."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="CPU")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    prepared = prepare(read_model(DATA / "adk_open.pdb"))
    density_map = DensityMap.simulate(prepared.topology, prepared.positions, 5.0, 1.0)
    fit = DensityFit(density_map, prepared.topology, 5.0, positions=prepared.positions)
    print("ms a step of all replicas, by the clock and of processor time")
    print(
        "replicas  merged (clock, processor)  separate (clock, processor)  separate / merged (clock, processor)"
    )
    for replicas in options.replicas:
        timed = [
            way(prepared, fit, replicas, options) for way in (merged_milliseconds, separate_milliseconds)
        ]
        (clock, cpu), (own_clock, own_cpu) = timed
        print(
            f"{replicas:8d}  {clock:12.2f} {cpu:12.2f}  {own_clock:14.2f} {own_cpu:12.2f}  "
            f"{own_clock / clock:16.2f} {own_cpu / cpu:18.2f}",
            flush=True,
        )


def context_of(
    system: openmm.System, positions: np.ndarray, options: argparse.Namespace, threads: int
) -> openmm.Context:
    """Build a Context in which a step has been made."""
    platform = openmm.Platform.getPlatformByName(options.platform)
    properties = {"Threads": str(threads)} if options.platform == "CPU" else {"Precision": "mixed"}
    if options.platform in ("Reference", "OpenCL"):
        properties = {}
    integrator = openmm.LangevinMiddleIntegrator(300, 5, 0.004)
    integrator.setRandomNumberSeed(1)
    context = openmm.Context(system, integrator, platform, properties)
    context.setPositions(positions)
    context.applyConstraints(1e-6)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=20)
    integrator.step(20)
    context.getState(positions=True)
    return context


def merged_milliseconds(
    prepared: Prepared, fit: DensityFit, replicas: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Return the time of a step of all replicas in one Context, by the clock and of the processor."""
    torch.set_num_threads(options.threads)
    one = prepared.system(hydrogen_mass=3.0)
    positions = [prepared.positions / 10] * replicas
    merged = merge_systems([one] * replicas, displacements_apart(positions, 5.0))
    backend = "CudaGraphForce" if options.platform == "CUDA" else "NativeForce"
    merged.system.addForce(EnsembleFit(fit, replicas).create_force(merged, backend))
    context = context_of(merged.system, merged.merged_positions(positions), options, options.threads)
    started = time.perf_counter(), time.process_time()
    context.getIntegrator().step(options.steps)
    context.getState(positions=True)
    return _milliseconds(started, options.steps)


def separate_milliseconds(
    prepared: Prepared, fit: DensityFit, replicas: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Return the same of a step of all replicas in Contexts of their own, which never wait for each other."""
    one = prepared.system(hydrogen_mass=3.0)
    one.addForce(fit.create_force("CudaGraphForce" if options.platform == "CUDA" else "NativeForce"))
    threads = min(options.threads, replicas)
    own = max(1, options.threads // replicas)
    torch.set_num_threads(own)
    contexts = [context_of(one, prepared.positions / 10, options, own) for _ in range(replicas)]
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(own,)) as pool:
        started = time.perf_counter(), time.process_time()
        list(pool.map(lambda context: context.getIntegrator().step(options.steps), contexts))
        for context in contexts:
            context.getState(positions=True)
        return _milliseconds(started, options.steps)


def _milliseconds(started: tuple[float, float], steps: int) -> tuple[float, float]:
    ended = time.perf_counter(), time.process_time()
    return tuple(1000 * (end - begin) / steps for begin, end in zip(started, ended))


if __name__ == "__main__":
    main()
