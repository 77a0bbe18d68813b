"""Time the density kernel against those who do the same, alternating between engines within one run.

    python examples/benchmarks/density_cpu.py
    python examples/benchmarks/density_cpu.py --torchref env053/bin/python,env064/bin/python,env070/bin/python --json density.json

Peers take part where they are installed: GROMACS (`gmx` on PATH), gemmi (in this environment), TorchRef (in this environment, or
in those whose interpreters are named, since its versions need different versions of torch). All get the same atoms, Gaussians and
cut-off radius, in single precision; before anything is timed, densities and gradients are compared, and the run stops where they
differ by more than cut-offs allow. TorchRef and gemmi cut their atoms off hard, this kernel brings value and slope to zero there.

What is timed:

- density: `density_splat`, and what peers have for it, with the grid's allocation;
- density + gradient: `density_splat`, then `density_gather` of a given grid of weights; TorchRef's forward and backward
  pass. Both are asked for the gradient with respect to the positions alone; from 0.6 on, TorchRef computes those of B factors
  and occupancies too, asked or not;
- similarity + forces: `density_similarity`, which compares with a target as well, and what a step of dynamics calls;
- density term: the difference of steps with and without it, of OpenMM and of GROMACS (with 1 thread and with all, since it is
  not always quicker with more); and for comparison, what the State of the density's force group alone takes in OpenMM.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gromacs_density
import torch
from density_cases import ALONE, CASES, MEMORY, Settings, memory_figures
from density_models import DENSITY, GRADIENT, SIMILARITY
from density_peers import start_torchref
from figures import write_figures
from interleaved import Case, Disagreement, Engine, processor, show
from rich.console import Console
from rich.table import Table

from openmm_density.kernels import compilation


@dataclass
class Goal:
    """A ratio, of medians and of fastest calls, and what it is meant to be; of the medians where ``met`` is asked."""

    what: str
    found: float
    of_fastest: float | None
    wanted: float
    at_most: bool = False

    @classmethod
    def ratio(cls, what: str, over: Engine, under: Engine, wanted: float, at_most: bool = False) -> Goal:
        """Build the goal for the ratio of two times."""
        return cls(what, over.median / under.median, over.fastest / under.fastest, wanted, at_most)

    @property
    def met(self) -> bool:
        """Whether it is what it is meant to be."""
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted


def goals(cases: dict[str, Case], memory: dict[str, Any] | None, threads: int) -> Iterator[Goal]:
    """Yield what is to be shown, as far as it was measured."""
    if "dynamics" in cases:
        case = cases["dynamics"]
        ours = ("OpenMM, DensityFit", "OpenMM, DensityFit, by default")
        terms = [engine for engine in case.engines if engine.name in ours]
        for mine in terms:
            theirs = [
                engine
                for engine in case.engines
                if engine.operation == mine.operation and engine.name.startswith("GROMACS")
            ]
            if theirs:
                best = min(theirs, key=lambda engine: engine.median)
                yield Goal.ratio(
                    f"{mine.operation}: {best.name}, {in_words(best.threads)} / {mine.name}", best, mine, 30
                )
        for which in (", by default", ""):
            term = next(engine for engine in case.engines if engine.name == f"OpenMM, DensityFit{which}")
            n_atoms = term.operation.split()[-2]
            step = case.find(f"OpenMM step with density of {n_atoms} atoms{which}", "step", threads)
            floor = case.find(f"OpenMM, a module that does nothing{which}", term.operation, threads)
            least = f"a module that does nothing: {floor.median / step.median:.3g}"
            yield Goal.ratio(f"{term.operation}{which} / step with it ({least})", term, step, 0.15, True)
    if "5k-5g" in cases:
        case = cases["5k-5g"]
        mine = case.find("density_splat, density_gather", GRADIENT, threads)
        for engine in case.engines:
            if engine.name.startswith("TorchRef"):
                wheel = engine.name.startswith("TorchRef 0.7") and "native" not in engine.name
                wanted = 10 if engine.name.startswith("TorchRef 0.5") else 50 if wheel else 12
                yield Goal.ratio(f"{GRADIENT}: {engine.name}", engine, mine, wanted)
            if engine.name.startswith("gemmi"):
                single = case.find("density_splat", DENSITY, 1)
                yield Goal.ratio(f"{DENSITY}, 1 thread each: {engine.name}", engine, single, 6)
    if "triclinic" in cases:
        case = cases["triclinic"]
        peers = [engine for engine in case.engines if engine.name.startswith("TorchRef")]
        if peers:
            best = min(peers, key=lambda engine: engine.median)
            mine = case.find("density_splat, density_gather", GRADIENT, threads)
            yield Goal.ratio(f"{GRADIENT}, triclinic, the best: {best.name}", best, mine, 6)
    if "boxes" in cases:
        smallest, *_, largest = cases["boxes"].engines
        what = f"{SIMILARITY}: {largest.name} / {smallest.name.split()[-1]}"
        yield Goal.ratio(what, largest, smallest, 1.2, True)
    for name in ("20k-5g", "20k-1g"):
        if name in cases and threads > 1:
            for operation, kernel in (
                (GRADIENT, "density_splat, density_gather"),
                (SIMILARITY, "density_similarity"),
            ):
                one, more = (cases[name].find(kernel, operation, n) for n in (1, threads))
                alone = cases[name].find(f"{kernel}, {ALONE}", operation, threads)
                allowed = f"the machine allows {one.median / alone.median:.2f}"
                what = f"{operation}, {name}: {threads} threads against 1 ({allowed})"
                yield Goal.ratio(what, one, more, 1.8)
    if memory is not None:
        scratch, held = memory["scratch"], memory["map"]
        what = f"peak scratch of density_similarity / map, {memory['atoms']} atoms, 5 Gaussians, {memory['size']}³"
        yield Goal(what, scratch["scratch_bytes"] / scratch["map_bytes"], None, 0.5, True)
        fitted, bare = (held[name]["Context"] for name in ("DensityFit", "bare TorchForce"))
        what = f"copies of the map besides the caller's: DensityFit in a Context ({fitted:.2f}) / a bare TorchForce"
        yield Goal(what, fitted / bare, None, 1.05, True)


def in_words(threads: int) -> str:
    """Write a number of threads."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def show_goals(console: Console, found: list[Goal]) -> None:
    """Print the table of goals."""
    table = Table(title="Goals", title_justify="left", title_style="bold")
    for heading in ("", "of medians", "of fastest", "goal", "met"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for goal in found:
        sign = "≤" if goal.at_most else "≥"
        fastest = "" if goal.of_fastest is None else f"{goal.of_fastest:.3g}"
        met = "yes" if goal.met else "no"
        table.add_row(goal.what, f"{goal.found:.3g}", fastest, f"{sign} {goal.wanted:g}", met)
    console.print(table)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--peers", default="torchref,gemmi,gromacs", help="who takes part, where installed; may be empty"
    )
    parser.add_argument(
        "--torchref",
        metavar="PYTHON[,…]",
        help="interpreters of environments with TorchRef, each as path or label=path, with the label native where "
        "torchref-kernels was built for this processor; this environment's by default",
    )
    parser.add_argument("--cases", default=",".join([*CASES, MEMORY]), help="which cases")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine that has them")
    parser.add_argument("--repeats", type=int, default=7, help="rounds of each engine")
    parser.add_argument("--limit", type=float, default=15.0, help="seconds of timing for a case, about")
    parser.add_argument("--quick", action="store_true", help="small inputs: whether it runs, not how fast")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    arguments.peers = [name for name in arguments.peers.split(",") if name]
    arguments.cases = [name for name in arguments.cases.split(",") if name]
    for name, given, known in (
        ("--peers", arguments.peers, ("torchref", "gemmi", "gromacs")),
        ("--cases", arguments.cases, (*CASES, MEMORY)),
    ):
        unknown = set(given) - set(known)
        if unknown:
            parser.error(f"{name} knows {', '.join(known)}, found {', '.join(sorted(unknown))}")
    if arguments.threads < 1 or arguments.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    return arguments


def main() -> None:
    """Run the benchmark."""
    arguments = parse()
    if not compilation.load("density"):
        sys.exit(f"the kernel does not compile here:\n{compilation.error_text('density')}")
    started, load = time.perf_counter(), os.getloadavg()[0]
    console = Console(width=max(160, Console().width))
    notes: list[str] = []
    gromacs = gromacs_density.find() if "gromacs" in arguments.peers else None
    if "gromacs" in arguments.peers and gromacs is None:
        notes.append("GROMACS is not installed here: there is no gmx on PATH")
    torch.set_num_threads(arguments.threads)
    peers = start_torchref(arguments.torchref, notes) if "torchref" in arguments.peers else []
    versions = {name: importlib.metadata.version(name) for name in ("openmm-density", "torch", "openmm")}
    console.print(
        f"{processor()}; {in_words(arguments.threads)} unless the table says otherwise; load {load:.1f}"
    )
    console.print("; ".join(f"{name} {version}" for name, version in versions.items()))
    for note in notes:
        console.print(note)
    console.print(
        "Ratios are to the first line where the same is timed; deviations are those of density and gradient.\n"
    )

    cases: dict[str, Case] = {}
    memory = None
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for peer in peers:
            stack.callback(peer.close)
        settings = Settings(
            arguments.threads,
            arguments.repeats,
            min(arguments.limit, 1.0) if arguments.quick else arguments.limit,
            arguments.quick,
            "gemmi" in arguments.peers,
            gromacs,
            peers,
            Path(folder),
        )
        try:
            for name in arguments.cases:
                if name == MEMORY:
                    memory = memory_figures(settings)
                    continue
                cases[name] = CASES[name](settings)
                show(console, cases[name])
        except Disagreement as error:
            sys.exit(f"{name}: {error}. Nothing is timed where engines disagree.")
        except RuntimeError as error:
            sys.exit(f"{name}: {error}")
    found = list(goals(cases, memory, arguments.threads))
    if found:
        show_goals(console, found)
    seconds = time.perf_counter() - started
    console.print(f"{seconds:.0f} s in all")

    if arguments.json:
        figures = {
            "processor": processor(),
            "threads": arguments.threads,
            "load": load,
            "quick": arguments.quick,
            "versions": versions,
            "peers": [peer.name for peer in peers] + ([f"GROMACS {gromacs}"] if gromacs else []),
            "notes": notes,
            "cases": {
                name: {
                    "title": case.title,
                    "agreement": case.agreement,
                    "engines": [engine.figures() for engine in case.engines if len(engine.times)],
                }
                for name, case in cases.items()
            },
            "memory": memory,
            "goals": [{**vars(goal), "met": goal.met} for goal in found],
            "seconds": seconds,
        }
        write_figures(arguments.json, figures)


if __name__ == "__main__":
    main()
