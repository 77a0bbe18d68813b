"""What the engine of a batch costs: the time of each job that is not its fit's, and the memory of the batch.

In place of fits, programs that do nothing but end; with ``--steps`` short fits of a peptide, and what the batch's tables, page
and consensus cost after them. Time is given by the clock and of processor time, which other load on the machine changes less.
What is between two processes of a place is the engine's: the end of one, until the system has seen it, the folder of the next
job, and the start of its process. With ``--minutes`` the batch is ended after so many.

    python examples/benchmarks/batch_engine.py --jobs 500 --workers 2
    python examples/benchmarks/batch_engine.py --jobs 500 --workers 2 --steps 200 --output many
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from figures import write_figures

from openmm_density.extensions.batch import Batch, Job, JobResult, jobs_of
from openmm_density.extensions.batch.engines import ThisMachine
from openmm_density.extensions.batch.run_job import PROGRAM_OF_FIT, RunSettings

MODELS = Path(__file__).resolve().parents[1] / "data"
RESIDUES = 24
_PEPTIDE = f"""
import sys
from pathlib import Path
import gemmi
from openmm_density import DensityMap
from openmm_density.models import read_model

structure, folder = gemmi.read_structure(sys.argv[1]), Path(sys.argv[2])
del structure[0][0][{RESIDUES}:]
structure.setup_entities()
structure.write_pdb(str(folder / "peptide.pdb"))
model = read_model(folder / "peptide.pdb")
DensityMap.simulate(model.topology, model.positions, 5.0, 1.2, noise=0.1).write(folder / "map.mrc")
"""
# A fit that is over at once.
_NOTHING = """
import sys
from pathlib import Path

def main():
    folder = Path(sys.argv[sys.argv.index("--output") + 1])
    (folder / "summary.json").write_text('{"interrupted": false}')
"""
# What runs a program in a process of its own, and notes when that began and ended, in seconds since the machine started, and what
# it used. The little that it takes itself counts as the engine's.
_TIMED = """
import os, sys

def main():
    began = float(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    sys.argv[1] = str(os.getpid())
    pid = os.fork()
    if pid == 0:
        from {program} import main
        main()
        sys.exit(0)
    _, code, used = os.wait4(pid, 0)
    import json, time
    told = dict(began=began, ended=time.clock_gettime(time.CLOCK_BOOTTIME))
    told.update(processor=used.ru_utime + used.ru_stime, memory=1024 * used.ru_maxrss)
    folder = sys.argv[sys.argv.index("--output") + 1]
    open(os.path.join(folder, "process.json"), "w").write(json.dumps(told))
    os._exit(abs(os.waitstatus_to_exitcode(code)))
"""


def main() -> None:
    """Run the batch, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument(
        "--steps", type=int, default=0, metavar="N", help="of fits in place of programs that do nothing"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which the batch is ended")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where its folders stay; nowhere by default"
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with nullcontext(options.output) if options.output else tempfile.TemporaryDirectory() as folder:
        report = measured(options, Path(folder).absolute())
    for name, value in report.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if options.json:
        write_figures(options.json, report)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what a batch cost."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = replace(RunSettings(("--threads", "1")), program=timed_program(options, folder))
    jobs = fits(options.jobs, options.steps, folder) if options.steps else nothing(options.jobs, folder)
    workers = options.workers
    starting = nullcontext(ThisMachine([{}] * workers))
    batch = Batch(jobs, folder / "out")
    before, began, since = cpu_seconds(), time.monotonic(), boot_seconds()
    memory = [own_memory()]
    results: list[JobResult] = []
    for result in batch.run_on(starting, settings):
        results.append(result)
        memory.append(own_memory())
        if time.monotonic() - began > 60 * options.minutes:
            break
    finished = [result for result in results if result.is_finished]
    report = {
        "jobs": len(results),
        "of them finished": len(finished),
        "of them at the first attempt": sum(result.attempts == 1 for result in finished),
        "workers": workers,
        **of_processes(finished, workers, since),
        "ms of processor time of the batch a job": 1000 * (cpu_seconds() - before) / len(results),
        **{
            f"MB of the batch after {count} jobs": memory[count] / 1e6
            for count in (0, 1, 100, 200, 300, 400, 500, len(results))
            if count < len(memory)
        },
        "MB of the batch, most": max(memory) / 1e6,
        "MB in the folders of all": size_of(folder / "out") / 1e6,
        "files there": sum(1 for path in (folder / "out").rglob("*") if path.is_file()),
    }
    return report | (of_outcome(batch) if options.steps else {}) | {"load of the machine": os.getloadavg()[0]}


def of_processes(results: Sequence[JobResult], workers: int, since: float) -> dict[str, float]:
    """Return what processes of jobs took, and how much was between them in their places."""
    told = [json.loads((result.folder / "process.json").read_text()) for result in results]
    seconds = [each["ended"] - each["began"] for each in told]
    starts, ends = (sorted(each[name] for each in told) for name in ("began", "ended"))
    # Which place has had which job makes no difference to the sum: each job but the first ones follows one that has ended.
    between = (sum(starts[workers:]) - sum(ends[:-workers])) / max(len(told) - workers, 1)
    return {
        "seconds to the first process": starts[0] - since,
        "seconds of all": ends[-1] - since,
        "s of a process, median": statistics.median(seconds),
        "s of its processor time, median": statistics.median(each["processor"] for each in told),
        "MB of its memory, most": max(each["memory"] for each in told) / 1e6,
        "ms between two processes of a place": 1000 * between,
    }


def of_outcome(batch: Batch) -> dict[str, float]:
    """Return what the tables, page and consensus of a batch take when its fits are over."""
    began, used = time.monotonic(), cpu_seconds()
    batch.write_outcome()
    return {
        "s for page and consensus": time.monotonic() - began,
        "s of its processor time": cpu_seconds() - used,
        "MB with page and consensus, most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "MB of the page": (batch.output / "batch.html").stat().st_size / 1e6,
    }


def timed_program(options: argparse.Namespace, folder: Path) -> str:
    """Write the program of jobs, and return the name of its module."""
    programs = folder / "program"
    programs.mkdir(exist_ok=True)
    (programs / "fit_that_does_nothing.py").write_text(_NOTHING, encoding="utf-8")
    program = PROGRAM_OF_FIT if options.steps else "fit_that_does_nothing"
    (programs / "timed_fit.py").write_text(_TIMED.format(program=program), encoding="utf-8")
    sys.path.insert(0, str(programs))
    return "timed_fit"


def nothing(count: int, folder: Path) -> list[Job]:
    """Return jobs of programs that do nothing."""
    for name in ("model.pdb", "map.mrc"):
        (folder / name).write_text("")
    model, density_map = str(folder / "model.pdb"), str(folder / "map.mrc")
    names = [f"job{number}" for number in range(count)]
    return [
        Job(name, str(folder / "out" / name), model, density_map, 5.0, number)
        for number, name in enumerate(names)
    ]


def fits(count: int, steps: int, folder: Path) -> list[Job]:
    """Return short fits of a peptide, which another process makes: this one stays as small as that of a user."""
    subprocess.run([sys.executable, "-c", _PEPTIDE, str(MODELS / "adk_closed.pdb"), str(folder)], check=True)
    return jobs_of(
        [folder / "peptide.pdb"], [folder / "map.mrc"], 5.0, folder / "out", range(count), steps=steps
    )


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def own_memory() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    used = os.times()
    return used.user + used.system


def boot_seconds() -> float:
    """Return the time since the machine started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    main()
