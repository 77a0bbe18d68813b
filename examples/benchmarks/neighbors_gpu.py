"""Time neighbour lists on the GPU beside brute force in PyTorch and other programs' that are installed, in one run.

Atoms as dense as in a solvated protein in a periodic cube, every pair once. "replay" is a call recorded in a CUDA graph, "eager"
one from Python; "kept" replays a list with a skin which still holds. Peers: vesin and nvalchemi-toolkit-ops, where they are
installed (both wait for the device), and all distances in PyTorch up to 40 000 atoms.

    python examples/benchmarks/neighbors_gpu.py --atoms 1024 32768 1048576 --cutoffs 5 --json neighbors.json
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from density_gpu import copy_bandwidth, microseconds, peak_arithmetic
from figures import write_figures
from neighbors_cpu import ATOMS_PER_VOLUME, BYTES_PER_PAIR, OPERATIONS_PER_PAIR

from openmm_density.kernels.neighbors import NeighborList, gpu, neighbors

MOST_FOR_BRUTE_FORCE = 40_000


def recorded(call: Callable[[], Any]) -> Callable[[], None]:
    """Return the replay of a call recorded in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def brute_force(positions: torch.Tensor, side: float, cutoff: float) -> torch.Tensor:
    """Return all pairs once, by all distances, some thousand atoms at a time."""
    found = []
    for begin in range(0, len(positions), 4096):
        vectors = positions[begin : begin + 4096, None] - positions
        vectors -= side * (vectors / side).round()
        i, j = (vectors.square().sum(-1) < cutoff**2).nonzero(as_tuple=True)
        found.append(torch.stack([i + begin, j])[:, i + begin < j])
    return torch.cat(found, dim=1)


def peers(positions: torch.Tensor, side: float, cutoff: float) -> dict[str, Callable[[], int]]:
    """Return what other programs do, where they are installed: each returns how many pairs it finds, listed once."""
    found: dict[str, Callable[[], int]] = {}
    if len(positions) <= MOST_FOR_BRUTE_FORCE:
        found["PyTorch"] = lambda: brute_force(positions, side, cutoff).shape[1]
    box = side * torch.eye(3, device="cuda", dtype=torch.float64)
    exact = positions.double()
    try:
        lists = importlib.import_module("vesin").NeighborList(cutoff=cutoff, full_list=False)
        options = {"points": exact, "box": box, "periodic": True, "quantities": "PS", "copy": False}
        found["vesin"] = lambda: len(lists.compute(**options)[0])
    except ImportError:
        pass
    try:
        search = importlib.import_module("nvalchemiops.torch.neighbors").cell_list
        periodic = torch.ones(1, 3, dtype=torch.bool, device="cuda")
        found["nvalchemi"] = lambda: int(
            search(positions, cutoff, cell=box.float()[None], pbc=periodic)[1].sum() // 2
        )
    except (ImportError, AttributeError):
        pass
    return found


def measure_case(
    n_atoms: int, cutoff: float, seconds: float, bandwidth: float, peak: float
) -> dict[str, Any]:
    """Check and time one system."""
    side = (n_atoms / ATOMS_PER_VOLUME) ** (1 / 3)
    generator = torch.Generator("cuda").manual_seed(0)
    positions = torch.rand(n_atoms, 3, generator=generator, device="cuda") * side
    box = side * torch.eye(3, device="cuda")
    n_pairs = int(neighbors(positions, box, cutoff)[3][0])
    expected = torch.ops.openmm_density.neighbors(positions.cpu(), box.cpu(), cutoff, False, None)
    capacity = n_pairs + 1024

    def once() -> tuple[torch.Tensor, ...]:
        return neighbors(positions, box, cutoff, False, capacity)

    kept = NeighborList(n_atoms, cutoff, int(1.8 * n_pairs) + 1024, skin=0.5).cuda()
    kept(positions, box)
    replay = microseconds(recorded(once), seconds)
    report: dict[str, Any] = {
        "atoms": n_atoms,
        "cutoff": cutoff,
        "pairs": n_pairs,
        "same_count_as_cpu": n_pairs == int(expected[3][0]),
        "same_bits": all(torch.equal(a[:n_pairs], b[:n_pairs]) for a, b in zip(once(), once())),
        "replay_us": replay,
        "kept_us": microseconds(recorded(lambda: kept(positions, box)), seconds),
        "eager_us": microseconds(once, seconds),
        "fraction_of_copy_bandwidth": BYTES_PER_PAIR * n_pairs / (1e-6 * replay) / bandwidth,
        "fraction_of_peak_arithmetic": OPERATIONS_PER_PAIR * n_pairs / (1e-6 * replay) / peak,
        "peers_us": {},
    }
    for name, call in peers(positions, side, cutoff).items():
        try:
            pairs = call()
            report["peers_us"][name] = microseconds(call, seconds)
            if abs(pairs - n_pairs) > 1e-5 * n_pairs:
                report.setdefault("disagree", {})[name] = pairs
        except Exception as error:  # a peer that fails must not end the run
            report.setdefault("failed", {})[name] = str(error)[:200]
    return report


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time neighbour lists on the GPU, and their peers.")
    parser.add_argument("--atoms", type=int, nargs="+", default=[1024, 8192, 32_768, 131_072, 1_048_576])
    parser.add_argument("--cutoffs", type=float, nargs="+", default=[5.0, 10.0], help="in Å")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure (default: %(default)s)")
    parser.add_argument("--cells", type=int, nargs=2, help="cells in a cut-off, across and along x")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here that torch can use")
    if arguments.cells:
        gpu._ACROSS, gpu._ALONG = arguments.cells
    bandwidth, peak = copy_bandwidth(), peak_arithmetic()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copies {bandwidth / 1e12:.2f} TB/s, "
        f"peak {peak / 1e12:.1f} TFLOP/s (float32)\n"
    )
    print(
        f"{'atoms':>10}{'Å':>5}{'pairs':>13}{'replay':>10}{'kept':>9}{'eager':>10}{'copy':>7}{'peak':>7}  peers; µs"
    )
    report = []
    for n_atoms in arguments.atoms:
        for cutoff in arguments.cutoffs:
            found = measure_case(n_atoms, cutoff, arguments.seconds, bandwidth, peak)
            report.append(found)
            others = ", ".join(
                f"{name} {value:.0f} ({value / found['replay_us']:.1f}x)"
                for name, value in found["peers_us"].items()
            )
            print(
                f"{n_atoms:10,}{cutoff:5g}{found['pairs']:13,}{found['replay_us']:10.1f}{found['kept_us']:9.1f}"
                f"{found['eager_us']:10.1f}{found['fraction_of_copy_bandwidth']:7.1%}"
                f"{found['fraction_of_peak_arithmetic']:7.1%}  {others}"
                + ("" if found["same_count_as_cpu"] and found["same_bits"] else "  WRONG")
                + (f"  {found.get('failed', '')} {found.get('disagree', '')}".rstrip()),
                flush=True,
            )
            torch.cuda.empty_cache()
            if arguments.json:
                write_figures(arguments.json, report, torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
