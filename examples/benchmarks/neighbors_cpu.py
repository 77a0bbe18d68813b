"""Time neighbour lists on the CPU beside other programs' that are installed (vesin, matscipy, mdtraj), in one run.

Atoms as dense as in a solvated protein in a periodic cube, every pair once (matscipy and mdtraj list each twice), with shifts
(mdtraj has none). Peers write into memory of their own, vesin without a copy. "kept" is a list whose memory is there already,
as in a simulation; the first row allocates it, as the peers do; "unpacked" has i, j and the shift's three numbers, in int64.

    python examples/benchmarks/neighbors_cpu.py --atoms 1000 10000 100000 --cutoffs 6 12 --threads 1 2 --json neighbors.json
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import write_figures
from interleaved import Case, Disagreement, Engine, measure, processor, show, timed
from rich.console import Console

from openmm_density.kernels import compilation
from openmm_density.kernels.neighbors import NeighborList, listed_pairs, neighbors

ATOMS_PER_VOLUME = 0.1  # 1/Å³, hydrogens with them
BYTES_PER_PAIR, OPERATIONS_PER_PAIR = 8, 9
LONGEST_PEER = 10.0  # seconds


def cube(n_atoms: int) -> tuple[np.ndarray, float]:
    """Return positions at random in a cube, in Å, and its side."""
    side = (n_atoms / ATOMS_PER_VOLUME) ** (1 / 3)
    return np.random.default_rng(0).uniform(0, side, (n_atoms, 3)), side


def clocked(function: Callable[[], Any]) -> Callable[[], float]:
    """Return a function that returns the seconds another takes."""

    def call() -> float:
        start = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - start
        del result
        return seconds

    return call


def peers(positions: np.ndarray, side: float, cutoff: float, threads: int, n_pairs: int) -> list[Engine]:
    """Return what other programs do, if they are installed, each of which must find as many pairs."""
    box, found = side * np.eye(3), []

    def vesin() -> Callable[[], int]:
        lists = importlib.import_module("vesin").NeighborList(
            cutoff=cutoff, full_list=False, n_threads=threads
        )
        options = {"points": positions, "box": box, "periodic": True, "quantities": "PS", "copy": False}
        return lambda: len(lists.compute(**options)[0])

    def matscipy() -> Callable[[], int]:
        search = importlib.import_module("matscipy.neighbours").neighbour_list
        options = {"cell": box, "pbc": [True] * 3, "positions": positions, "cutoff": cutoff}
        return lambda: len(search("ijS", **options)[0]) // 2

    def mdtraj() -> Callable[[], int]:
        library = importlib.import_module("mdtraj")
        topology = library.Topology()
        residue = topology.add_residue("X", topology.add_chain())
        for _ in positions:
            topology.add_atom("X", library.element.carbon, residue)
        trajectory = library.Trajectory(
            positions / 10, topology, unitcell_lengths=[[side / 10] * 3], unitcell_angles=[[90] * 3]
        )
        return lambda: sum(map(len, library.compute_neighborlist(trajectory, cutoff / 10))) // 2

    # mdtraj sees one image of each atom; it and matscipy have one thread.
    alone = [matscipy, mdtraj] if 2 * cutoff < side else [matscipy]
    for make in [vesin] + alone * (threads == 1):
        try:
            function = make()
        except ImportError:
            continue
        start = time.perf_counter()
        pairs = function()
        if abs(pairs - n_pairs) > 1e-5 * n_pairs + 2:  # mdtraj works in float32
            raise Disagreement(f"{make.__name__} finds {pairs} pairs, expected are {n_pairs}")
        engine = Engine(make.__name__, "list", threads, clocked(function))
        engine.deviations["pairs"] = abs(pairs - n_pairs) / max(1, n_pairs)
        if time.perf_counter() - start > LONGEST_PEER:
            engine.rounds.append([1000 * (time.perf_counter() - start)])
            engine.call = lambda seconds=engine.rounds[0][0] / 1000: seconds
        found.append(engine)
    return found


def engines(n_atoms: int, cutoff: float, threads: list[int]) -> tuple[list[Engine], int]:
    """Return everything that is timed for a system, and how many pairs it has."""
    positions, side = cube(n_atoms)
    tensor, box = torch.from_numpy(positions).float(), side * torch.eye(3)
    exact, exact_box = torch.from_numpy(positions), side * torch.eye(3, dtype=torch.float64)
    n_pairs = int(neighbors(exact, exact_box, cutoff)[3][0])
    kept = NeighborList(n_atoms, cutoff, n_pairs + 1000)
    found = []
    for n in threads:
        torch.set_num_threads(n)
        found += [
            timed("openmm-density", "list", n, lambda: neighbors(exact, exact_box, cutoff)),
            timed("openmm-density, kept", "list", n, lambda: kept(tensor, box)),
            timed(
                "openmm-density, unpacked",
                "list",
                n,
                lambda: listed_pairs(*neighbors(tensor, box, cutoff)[:3]),
            ),
            *peers(positions, side, cutoff, n, n_pairs),
        ]
    return found, n_pairs


def copy_bandwidth() -> float:
    """Measure bytes read and written per second by a large copy, in one thread."""
    torch.set_num_threads(1)
    source = torch.zeros(1 << 26)
    copy = source.clone()
    return 2 * source.nbytes / min(clocked(lambda: copy.copy_(source))() for _ in range(5))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time neighbour lists on the CPU, and their peers.")
    parser.add_argument("--atoms", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--cutoffs", type=float, nargs="+", default=[6.0, 12.0], help="in Å")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each engine (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="for each system (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if not compilation.load("neighbors"):
        sys.exit("there is no C++ compiler here")
    console = Console(width=130)
    bandwidth = copy_bandwidth()
    console.print(f"{processor()}; a copy in one thread: {bandwidth / 1e9:.1f} GB/s\n")
    report: dict[str, Any] = {"processor": processor(), "copy_bytes_per_second": bandwidth, "cases": []}
    for n_atoms in arguments.atoms:
        for cutoff in arguments.cutoffs:
            found, n_pairs = engines(n_atoms, cutoff, arguments.threads)
            measure(found, arguments.rounds, arguments.seconds)
            case = Case(f"{n_atoms:,} atoms, {cutoff:g} Å, {n_pairs:,} pairs", found)
            show(console, case)
            ratios = {}
            for n in arguments.threads:
                ours = case.find("openmm-density", "list", n)
                others = [each for each in found if each.threads == n and "openmm" not in each.name]
                if others:
                    ratios[n] = min(each.median for each in others) / ours.median
                written = BYTES_PER_PAIR * n_pairs / (1e-3 * ours.median)
                console.print(
                    f"  {n} threads: {written / 1e9:.2f} GB/s written ({written / bandwidth:.0%} of the copy), "
                    f"{OPERATIONS_PER_PAIR * n_pairs / (1e6 * ours.median):.2f} GFLOP/s of pairs listed"
                    + (f"; {ratios[n]:.1f} times faster than the best peer" if others else "")
                )
            console.print()
            report["cases"].append(
                {
                    "atoms": n_atoms,
                    "cutoff": cutoff,
                    "pairs": n_pairs,
                    "ratios": ratios,
                    "engines": [each.figures() for each in found],
                }
            )
            if arguments.json:
                write_figures(arguments.json, report)


if __name__ == "__main__":
    main()
