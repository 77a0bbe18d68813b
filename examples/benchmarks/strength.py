"""Fit starts into simulated maps of known models, at fixed strengths and at the automatic one: what ends nearest to the truth.

    python examples/benchmarks/strength.py [--cases adk,5925] [--resolutions 3,5] [--strengths 20,80,auto] [--output DIR]

Every case is a protein, complete and without strain, and a start displaced from it: another conformation (adk), low normal
modes (tmv, 1g8a), or molecular dynamics at 500 K (5925, 6374). Its maps have B factors that vary, solvent around the molecule,
and noise for which the FSC of half maps falls to 0.143 at the stated resolution (`noisy_maps.py`). The fit goes into the mean of
two half maps; the free CC is that with a third, whose noise it has never seen. Rows are kept in DIR/fits.jsonl as they come, and
a run that was interrupted goes on from there; --tabulate FILES shows what files hold without fitting anything. All but adk need
the folder of maps and models: $OPENMM_DENSITY_DATA, else ../shared/data beside the project. A fit takes minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from known_truth import CASES, alpha_carbons, make_models, rmsd_to_truth, root_mean_square_distance
from noisy_maps import NoisyMaps, noisy_maps, relative_b_factors
from rich.console import Console
from strength_results import KEYS, figures_of_geometry, plot, read_rows, summary, table

from openmm_density.base.errors import InputError
from openmm_density.fitting import FitResult, FlexibleFit, Protocol, find_protocol
from openmm_density.models import Model
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.model_geometry import geometry_of_model

PROJECT = Path(__file__).resolve().parents[2]
MODELS = PROJECT / "examples" / "data"
RESOLUTIONS = (3.0, 4.0, 5.0, 6.5, 8.0)
STRENGTHS = ("2", "5", "10", "20", "40", "80", "200", "auto")


@dataclass(frozen=True)
class Task:
    """One fit: of which case, and how."""

    case: str
    resolution: float
    strength: str
    protocol: str = "standard"
    steps: int | None = None
    search: str = "auto"
    seed: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other fits."""
        return tuple(asdict(self)[name] for name in KEYS)


@dataclass(frozen=True)
class Place:
    """Where fits run: folders, OpenMM's platform, and threads of each fit."""

    data: Path
    output: Path
    platform: str = "CPU"
    threads: int | None = 1

    def models(self, case: str) -> tuple[Model, Model]:
        """Return truth and start of a case."""
        return make_models(CASES[case], (self.data, MODELS), self.output / "models" / case, self.platform)


def fit_task(task: Task, place: Place) -> dict[str, Any]:
    """Fit, and return the figures of one row."""
    truth, start = place.models(task.case)
    relative = relative_b_factors(truth.topology, truth.positions)
    maps = noisy_maps(truth.topology, truth.positions, task.resolution, relative, task.seed)
    protocol = find_protocol(task.protocol, task.resolution)
    if task.steps is not None:
        protocol = protocol.with_steps(task.steps)
    started = time.perf_counter()
    result = FlexibleFit(
        start,
        maps.full,
        task.resolution,
        with_strength(protocol, task.strength),
        platform=place.platform,
        threads=place.threads,
        seed=task.seed,
        search=task.search,
        place="off",
    ).run()
    seconds = time.perf_counter() - started
    return asdict(task) | {"seconds": seconds} | figures(truth, start, maps, task.resolution, result)


def with_strength(protocol: Protocol, words: str) -> Protocol:
    """Return a protocol with a strength, such as "auto" or "40", or with one to pull and one to end, such as "200>40"."""
    pull, _, final = words.partition(">")
    strengths = [word if word == "auto" else float(word) for word in (pull, final) if word]
    return replace(protocol, strength=strengths[0], final_strength=strengths[1] if final else None)


def figures(
    truth: Model, start: Model, maps: NoisyMaps, resolution: float, result: FitResult
) -> dict[str, Any]:
    """Return how far start and end are from the truth, their correlations, and their geometry."""
    prepared = result.prepared
    final = prepared.input_positions(result.as_simulated().final)
    relaxed = prepared.input_positions(result.relaxed)
    correlations = {
        "cc": MapCorrelation(maps.full, truth.topology, resolution),
        "cc_noiseless": MapCorrelation(maps.noiseless, truth.topology, resolution),
        "cc_free": MapCorrelation(maps.halves[2], truth.topology, resolution),
    }
    alpha = alpha_carbons(truth)
    reports = [geometry_of_model(start, where) for where in (relaxed, final, truth.positions)]
    return {
        "n_residues": len(alpha),
        "found_strength": result.strength,
        "final_strength": result.final_strength,
        "rmsd": [rmsd_to_truth(truth, where) for where in (start.positions, final)],
        "ca_rmsd": [
            root_mean_square_distance(where[alpha], truth.positions[alpha])
            for where in (start.positions, final)
        ],
        **{
            name: [each.cc_mask(where) for where in (start.positions, final, truth.positions)]
            for name, each in correlations.items()
        },
        "relaxed": figures_of_geometry(reports[0]),
        "final": figures_of_geometry(reports[1]),
        "truth": figures_of_geometry(reports[2]),
        "blow_ups": len(result.blow_ups),
    }


def run_tasks(tasks: list[Task], place: Place, jobs: int, gpus: int, console: Console) -> None:
    """Run fits in processes of their own; keep each row, and show it, as it comes."""
    rows = place.output / "fits.jsonl"
    spawn = multiprocessing.get_context("spawn")
    numbers = spawn.Queue()
    for number in range(jobs):
        numbers.put(number)
    with ProcessPoolExecutor(jobs, spawn, _choose_gpu, (numbers, gpus)) as pool:
        cases = {task.case for task in tasks}
        for made in [pool.submit(_make_models, place, case) for case in cases]:
            made.result()
        pending = {pool.submit(_fit_safely, task, place): task for task in tasks}
        for done in as_completed(pending):
            row = done.result()
            if "error" in row:
                console.print(f"{pending[done]}: {row['error']}", markup=False)
                continue
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            console.print(table([row], caption=""))


def _make_models(place: Place, case: str) -> None:
    place.models(case)


def _choose_gpu(numbers: Any, gpus: int) -> None:
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        devices = visible.split(",")[:gpus]
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[numbers.get() % len(devices)]


def _fit_safely(task: Task, place: Place) -> dict[str, Any]:
    try:
        return fit_task(task, place)
    except Exception:  # one fit must not end the others
        return {"error": traceback.format_exc()}


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    data = Path(os.environ.get("OPENMM_DENSITY_DATA", PROJECT.parent / "shared" / "data"))
    add = parser.add_argument
    add("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)} (all)")
    add("--resolutions", default=",".join(f"{d:g}" for d in RESOLUTIONS), help="in Å (%(default)s)")
    add(
        "--strengths",
        default=",".join(STRENGTHS),
        help="kJ/mol per fitted atom, auto, or one to pull and one to end: 200>40 (%(default)s)",
    )
    add("--protocol", default="standard", help="a protocol's name or TOML file (standard)")
    add("--steps", type=int, help="of all stages (those of the protocol)")
    add("--search", default="auto", choices=("auto", "full", "off"), help="as of fit (auto)")
    add("--seed", type=int, default=0, help="of the noise in the map and of the fit (0)")
    add("--data", type=Path, default=data, help="folder of maps and models")
    add("--output", type=Path, default=Path("strength_benchmark"), help="folder of models, rows and the plot")
    add("--platform", default="CPU", help="OpenMM's (CPU)")
    add("--threads", type=int, default=1, help="of the CPU platform, in each fit (1)")
    add("--jobs", type=int, default=1, help="fits at the same time (1)")
    add("--gpus", type=int, default=0, help="share the fits out to so many GPUs")
    add("--json", type=Path, help="also write all rows to this file as a list")
    add("--tabulate", type=Path, nargs="+", metavar="FILE", help="only show the rows of these files")
    return parser.parse_args(arguments)


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Return the fits that are asked for.

    Raises
    ------
    InputError
        If a case is not known.
    """
    unknown = [case for case in options.cases.split(",") if case not in CASES]
    if unknown:
        raise InputError(
            "must be a case that is known",
            argument="cases",
            found=unknown[0],
            remedy=f"use {', '.join(CASES)}",
        )
    combined = product(options.strengths.split(","), options.resolutions.split(","), options.cases.split(","))
    return [
        Task(case, float(d), strength, options.protocol, options.steps, options.search, options.seed)
        for strength, d, case in combined
    ]


def main() -> None:
    """Fit what is not fitted yet; show and plot all."""
    options = parsed()
    console = Console(width=max(170, Console().width))
    files = options.tabulate
    if files is None:
        options.output.mkdir(parents=True, exist_ok=True)
        files = [options.output / "fits.jsonl"]
        try:
            tasks = tasks_of(options)
            done = {tuple(row[name] for name in KEYS) for row in read_rows(files)}
            tasks = [task for task in tasks if task.key not in done]
            place = Place(options.data, options.output, options.platform, options.threads)
            run_tasks(tasks, place, options.jobs, options.gpus, console)
        except InputError as error:
            sys.exit(str(error))
    rows = read_rows(files)
    console.print(table(rows))
    console.print(summary(rows))
    options.output.mkdir(parents=True, exist_ok=True)
    plot(rows, options.output / "strength.png")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
