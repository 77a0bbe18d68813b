"""What the engine of a batch costs: the time of each job that is not its fit's, and the memory of scheduler and workers.

In place of fits, programs that do nothing but end; with ``--steps`` short fits of a peptide. Time is given by the clock and of
processor time, which other load on the machine changes less.

    python examples/benchmarks/batch_engine.py --jobs 500 --workers 2
    python examples/benchmarks/batch_engine.py --jobs 500 --workers 32 --steps 200
    python examples/benchmarks/batch_engine.py --jobs 500 --one-by-one
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from openmm_density.atomic_files import write_text
from openmm_density.batch import Batch, Job, JobResult
from openmm_density.batch.clusters import local_engine
from openmm_density.batch.devices import Slot
from openmm_density.batch.engines import OneByOne
from openmm_density.batch.run_job import RunSettings

MODELS = Path(__file__).resolve().parents[1] / "data"
RESIDUES = 24
# A fit that is over at once, and says how long its process lived.
_NOTHING = """
import json, sys, time
from pathlib import Path

def main():
    folder = Path(sys.argv[sys.argv.index("--output") + 1])
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / __import__("os").sysconf("SC_CLK_TCK")
    (folder / "summary.json").write_text(json.dumps({"interrupted": False, "wall_seconds": seconds}))
    __import__("os")._exit(0)  # the end of an interpreter is no part of an engine
"""


def main() -> None:
    """Run the batch, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--one-by-one", action="store_true", help="without Dask")
    parser.add_argument(
        "--steps", type=int, default=0, metavar="N", help="of fits in place of programs that do nothing"
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measured(options, Path(folder))
    for name, value in report.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if options.json:
        write_text(options.json, json.dumps(report, indent=2) + "\n")


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what a batch cost."""
    settings = RunSettings("benchmark", ("--threads", "1"))
    if options.steps:
        jobs = fits(options.jobs, options.steps, folder)
    else:
        jobs, settings = nothing(options.jobs, folder, settings)
    workers = 1 if options.one_by_one else options.workers
    starting = nullcontext(OneByOne()) if options.one_by_one else local_engine([Slot()] * workers)
    batch = Batch(jobs, folder / "out")
    before, began = cpu_seconds(), time.monotonic()
    memory = [own_memory()]
    results: list[JobResult] = []
    first = 0.0
    for result in batch.run_on(starting, settings):
        # Workers take a second to start, once.
        first = first or time.monotonic()
        results.append(result)
        memory.append(own_memory())
    wall = time.monotonic() - first
    assert all(result.is_finished for result in results), next(each.error for each in results if each.error)
    in_fits = sum(result.figures["wall_seconds"] for result in results[1:])
    return {
        "jobs": len(results),
        "workers": workers,
        "seconds to the first result": first - began,
        "seconds for the others": wall,
        "ms of a job in its process, median": 1000
        * statistics.median(result.figures["wall_seconds"] for result in results),
        "ms of a job beside its process": 1000 * (wall * workers - in_fits) / (len(results) - 1),
        "ms of processor time of scheduler and client a job": 1000 * (cpu_seconds() - before) / len(results),
        "MB of scheduler and client before": memory[0] / 1e6,
        "MB of scheduler and client, most": max(memory) / 1e6,
        "kB of scheduler and client a job": (memory[-1] - memory[min(len(memory) // 10, 50)])
        / len(results)
        / 1e3,
        "load of the machine": os.getloadavg()[0],
    }


def nothing(count: int, folder: Path, settings: RunSettings) -> tuple[list[Job], RunSettings]:
    """Return jobs that do nothing, and how they are run."""
    module = folder / "program" / "fit_that_does_nothing.py"
    module.parent.mkdir()
    module.write_text(_NOTHING, encoding="utf-8")
    sys.path.insert(0, str(module.parent))
    for name in ("model.pdb", "map.mrc"):
        (folder / name).write_text("")
    jobs = [
        Job(
            f"job{number}",
            str(folder / "out" / f"job{number}"),
            str(folder / "model.pdb"),
            str(folder / "map.mrc"),
            5.0,
            number,
        )
        for number in range(count)
    ]
    return jobs, replace(settings, program=module.stem)


def fits(count: int, steps: int, folder: Path) -> list[Job]:
    """Return short fits of a peptide."""
    import gemmi

    from openmm_density import DensityMap
    from openmm_density.batch import jobs_of
    from openmm_density.models import read_model

    structure = gemmi.read_structure(str(MODELS / "adk_closed.pdb"))
    del structure[0][0][RESIDUES:]
    structure.setup_entities()
    structure.write_pdb(str(folder / "peptide.pdb"))
    model = read_model(folder / "peptide.pdb")
    DensityMap.simulate(model.topology, model.positions, 5.0, 1.2, noise=0.1).write(folder / "map.mrc")
    return jobs_of(
        [folder / "peptide.pdb"], [folder / "map.mrc"], 5.0, folder / "out", range(count), steps=steps
    )


def own_memory() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    used = os.times()
    return used.user + used.system


if __name__ == "__main__":
    main()
