"""What searches do with a stretch of a model, by the kernel and by OpenMM: processor time, which other load changes less.

Residues of adenylate kinase (``--residues``) in their own map, simulated at 3 Å, among what is fixed around them: making the
small system, minimising the stretch, and annealing it, on one thread each, in alternation.

    python examples/benchmarks/local_dynamics.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.rebuilding.bonded_terms import BondedTerms
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.local_system import LocalSystem
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.extensions.rebuilding.stretch_trial import ANNEALING, ANNEALING_STEPS
from openmm_density.models import prepare, read_model

MODEL = Path(__file__).resolve().parents[1] / "data" / "adk_closed.pdb"
RESOLUTION, STRENGTH = 3.0, 170.0


def main() -> None:
    """Time both, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--residues", type=int, default=14, metavar="N")
    parser.add_argument("--first", type=int, default=60, metavar="N", help="the first of them, from 0")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    options = parser.parse_args()
    prepared = prepare(read_model(MODEL))
    molecule = Molecule(prepared.topology)
    target = DensityMap.simulate(prepared.topology, prepared.positions, RESOLUTION, 1.0, noise=0.05, seed=1)
    fit = DensityFit(target, prepared.topology, RESOLUTION, positions=prepared.positions)
    density = DensityModel.of_fit(fit, molecule, STRENGTH * fit.n_fitted_atoms)
    bonded = BondedTerms(prepared.system(constraints=None, rigidWater=False))
    residues = np.arange(options.first, options.first + options.residues)

    def made(compiled: bool) -> LocalSystem:
        return LocalSystem(bonded, molecule, density, prepared.positions, residues, compiled=compiled)

    systems = {"kernel": made(True), "OpenMM": made(False)}
    start = prepared.positions.copy()
    moving = systems["kernel"].moving
    start[moving] += np.random.default_rng(1).normal(0, 0.2, (len(moving), 3))
    print(
        f"{len(moving)} atoms move, of {len(systems['kernel']._members)}; processor time in ms, medians of {options.repeats}"
    )
    print(f"{'':12}{'kernel':>10}{'OpenMM':>10}{'ratio':>8}")
    for what, work in (
        ("made", lambda name: made(name == "kernel")),
        ("minimised", lambda name: systems[name].minimized(start)),
        ("annealed", lambda name: systems[name].annealed(start, ANNEALING, ANNEALING_STEPS)),
    ):
        times = {name: [] for name in systems}
        for _ in range(options.repeats):
            for name in systems:
                times[name].append(milliseconds(work, name))
        ours, theirs = (statistics.median(times[name]) for name in ("kernel", "OpenMM"))
        print(f"{what:12}{ours:10.1f}{theirs:10.1f}{theirs / ours:8.1f}")


def milliseconds(work: Callable[[str], Any], name: str) -> float:
    """Return the processor time of a call, of all threads."""
    before = time.process_time()
    work(name)
    return 1000 * (time.process_time() - before)


if __name__ == "__main__":
    main()
