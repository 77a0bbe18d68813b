"""What fits of large models take: seconds by part, and memory of the fit and of the processes beside it.

A block of adenylate kinases, open, is fitted into the simulated map of the same block, closed. Memory is what the system
counts as each process's own, with its share of what several have (PSS), looked at twice a second. With `--sizes` blocks of
so many non-hydrogen atoms are not fitted but set up, in their own map and each in a process of its own, and a step and its
forces are timed.

    python examples/benchmarks/large_models.py --copies 2 3 2 --steps 1000
    python examples/benchmarks/large_models.py --copies 5 5 2 --steps 5000 --platform CUDA --json large.json
    python examples/benchmarks/large_models.py --sizes 1700 10000 100000 1000000 --platform CUDA --json sizes.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from figures import write_figures

from openmm_density.base.atomic_files import write_text

MODELS = Path(__file__).resolve().parents[1] / "data"
SPACING = 75.0
"""Å from one copy to the next."""
RESOLUTION, VOXEL = 4.0, 1.2
COPY = 1656
"""Non-hydrogen atoms of an adenylate kinase."""


def main() -> None:
    """Make the block, fit it, and print what that took; or set blocks up."""
    arguments = _arguments()
    if arguments.only:
        print(json.dumps(set_up(arguments.only, arguments.platform)), flush=True)
    elif arguments.sizes:
        rows = []
        for size in arguments.sizes:
            rows.append(_by_itself(size, arguments.platform))
            if arguments.json:
                write_figures(arguments.json, rows)
    else:
        _fit(arguments)


def _by_itself(size: int, platform: str) -> dict[str, Any]:
    """Return what `set_up` does in a process of its own."""
    command = [sys.executable, "-u", __file__, "--only", str(size), "--platform", platform]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
    if process.returncode:
        raise SystemExit(f"{size} atoms ended with status {process.returncode}")
    found: dict[str, Any] = json.loads(line)
    return found


def set_up(size: int, platform: str) -> dict[str, Any]:
    """Set a block up as a fit does; print the seconds of each part as they come, and return all figures.

    ``alone``: the density force of the non-hydrogen atoms and no other, ms; ``density``: the same in the whole System.
    """
    import openmm

    from openmm_density import DensityFit, DensityMap, FlexibleFit
    from openmm_density.base.stopwatch import Stopwatch
    from openmm_density.fitting.measurements import density_milliseconds
    from openmm_density.fitting.platforms import make_context, platform_named
    from openmm_density.models import read_model
    from openmm_density.validation.map_checks import MapChecks

    copies = max(round(size / COPY), 1)
    side = int(np.ceil(round(copies ** (1 / 3), 6)))
    told: dict[str, Any] = {"size": size, "seconds": {}, "ms": {}}
    begun = [time.monotonic()]

    def took(part: str) -> None:
        now = time.monotonic()
        told["seconds"][part] = now - begun[0]
        told["megabytes"] = _megabytes_at_most()
        print(f"{size} atoms: {part} {now - begun[0]:.1f} s, {told['megabytes']:.0f} MB", flush=True)
        begun[0] = time.monotonic()

    def timed(what: str, call: Callable[[], object], times: int = 5) -> None:
        ticks = [time.perf_counter()]
        for _ in range(times + 1):
            call()
            ticks.append(time.perf_counter())
        told["ms"][what] = 1000 * float(np.median(np.diff(ticks[1:])))
        print(f"{size} atoms: {what} {told['ms'][what]:.2f} ms", flush=True)

    def stepping(system: openmm.System, positions: np.ndarray, name: str) -> openmm.Context:
        context = make_context(system, openmm.VerletIntegrator(1e-6), platform_named(platform))
        context.setPositions(positions / 10)
        context.setParameter(name, 10.0 * size)
        return context

    def step(context: openmm.Context, times: int = 10) -> None:
        context.getIntegrator().step(times)
        context.getState(energy=True)

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "open.cif"
        write_block("open", islice(product(range(side), repeat=3), copies), path)
        took("made")
        model = read_model(path)
        took("reading")
        simulated = DensityMap.simulate(model.topology, model.positions, RESOLUTION, voxel_size=VOXEL)
    told |= {"atoms": len(model.positions), "voxels": int(np.prod(simulated.shape))}
    took("map simulated")
    alone = DensityFit(simulated, model.topology, RESOLUTION, positions=model.positions, force_group=2)
    system = openmm.System()
    for _ in model.positions:
        system.addParticle(12.0)
    system.addForce(alone.create_force())
    context = stepping(system, model.positions, alone.parameter_name)
    took("density alone")
    told["ms"]["alone"] = density_milliseconds(context)
    timed("10 steps with density alone", lambda: step(context))
    del context, system, alone
    begun[0] = time.monotonic()
    watch = Stopwatch()
    options = {"platform": platform, "place": "off", "map_checks": MapChecks(), "stopwatch": watch}
    fit = FlexibleFit(model, simulated, RESOLUTION, "quick", search="off", **options)
    told["particles"] = fit.system.getNumParticles()
    told["within"] = watch.seconds_within
    took("preparation")
    context = stepping(fit.system, fit.prepared.positions, fit.density.parameter_name)
    took("Context")
    told["ms"]["density"] = density_milliseconds(context)
    timed("10 steps", lambda: step(context))
    told["gpu_megabytes"] = _gpu_megabytes()
    fit.beside.end()
    return told


def _megabytes_at_most() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _gpu_megabytes() -> float | None:
    """Return what the GPU holds, of all processes; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    free, there = torch.cuda.mem_get_info()
    return (there - free) / 1e6


def _fit(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for conformation in ("open", "closed"):
            write_block(conformation, product(*map(range, arguments.copies)), folder / f"{conformation}.cif")
        command = [sys.executable, "-m", "openmm_density"]
        resolution = ["--resolution", f"{RESOLUTION:g}"]
        target = [
            str(folder / "closed.cif"),
            "--voxel-size",
            f"{VOXEL:g}",
            "--output",
            str(folder / "map.mrc"),
        ]
        subprocess.run([*command, "simulate", *target, *resolution], check=True)
        given = [
            str(folder / "open.cif"),
            str(folder / "map.mrc"),
            *resolution,
            "--output",
            str(folder / "fit"),
        ]
        how = ["--protocol", "quick", "--search", "off", "--steps", str(arguments.steps)]
        how += ["--platform", arguments.platform]
        begun = time.monotonic()
        fit = subprocess.Popen([*command, "fit", *given, *how])
        memory = watched(fit)
        if fit.returncode:
            raise SystemExit(f"the fit ended with status {fit.returncode}")
        summary = json.loads((folder / "fit" / "summary.json").read_text(encoding="utf-8"))
    told = {
        "atoms": summary["n_atoms"],
        "seconds": time.monotonic() - begun,
        "parts": summary["seconds_by_part"],
        "megabytes": memory,
        "cc": [summary["cc_initial"], summary["cc_final"]],
    }
    print(json.dumps(told, indent=2))
    if arguments.json:
        write_text(arguments.json, json.dumps(told, indent=2) + "\n")


def write_block(conformation: str, places: Iterable[tuple[int, ...]], path: Path) -> None:
    """Write a block of copies of adenylate kinase, each a chain of its own."""
    given = gemmi.read_structure(str(MODELS / f"adk_{conformation}.pdb"))
    block, model = gemmi.Structure(), gemmi.Model(1)
    for number, place in enumerate(places, start=1):
        for chain in given[0]:
            copy = chain.clone()
            copy.name = f"{chain.name}{number}"
            for residue in copy:
                for atom in residue:
                    atom.pos += gemmi.Position(*(SPACING * step for step in place))
            model.add_chain(copy)
    block.add_model(model)
    block.setup_entities()
    block.assign_label_seq_id()
    block.make_mmcif_document().write_file(str(path))


def watched(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Wait for a process; return the most memory in MB that it had, and that all had that it started, it among them."""
    most = {"main": 0.0, "all": 0.0}
    while process.poll() is None:
        sizes = [_megabytes(number) for number in _below(process.pid)]
        most["main"], most["all"] = max(most["main"], sizes[0]), max(most["all"], sum(sizes))
        time.sleep(0.5)
    return most


def _below(number: int) -> list[int]:
    found = [number]
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{number}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _below(int(child))
    return found


def _megabytes(number: int) -> float:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--copies", type=int, nargs=3, default=[2, 3, 2], metavar="N", help="along x, y and z"
    )
    parser.add_argument("--sizes", type=int, nargs="+", metavar="ATOMS", help="set blocks of these up")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--platform", default="CPU")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
