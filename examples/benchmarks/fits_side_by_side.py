"""Fits of adenylate kinase on one GPU, some at a time: by the clock, and what each one takes, against one alone.

    python examples/benchmarks/fits_side_by_side.py --fits 8 --at-once 8,4,2
    python examples/benchmarks/fits_side_by_side.py --fits 8 --at-once 8 --mps

The first fit is not counted, as it compiles kernels. With ``--mps`` NVIDIA's Multi-Process Service is started for a second run of
each, in folders of its own, and ended again; nothing of the device is set. What follows an option that is not known goes to
``fit``: ``--platform CPU --steps 100 --search off`` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from figures import write_figures

from openmm_density.base.multi_process_service import control_program, runs_already, shared_gpu
from openmm_density.extensions.batch import Job
from openmm_density.extensions.batch.devices import core_count
from openmm_density.extensions.batch.run_job import RunSettings, run_job

MODELS = Path(__file__).resolve().parents[1] / "data"
OPEN, CLOSED = MODELS / "adk_open.pdb", MODELS / "adk_closed.pdb"


def main() -> None:
    """Run the fits, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=8, metavar="N")
    parser.add_argument(
        "--at-once", default="8,4,2", metavar="N,N", help="how many at a time, one run for each"
    )
    parser.add_argument("--mps", action="store_true", help="each run with the Multi-Process Service as well")
    parser.add_argument("--json", metavar="FILE")
    options, more = parser.parse_known_args()
    more = more if "--platform" in more else ["--platform", "CUDA", *more]
    with tempfile.TemporaryDirectory() as name:
        report = measured(options, more, Path(name))
    if options.json:
        write_figures(options.json, report)


def measured(options: argparse.Namespace, more: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Return what each run took, and print it when it is over."""
    simulate = [
        sys.executable,
        "-m",
        "openmm_density",
        "simulate",
        str(CLOSED),
        "--resolution",
        "5",
        "--voxel-size",
        "1",
    ]
    subprocess.run([*simulate, "--noise", "0.1", "--output", str(folder / "closed.mrc")], check=True)
    run("warm", 1, 1, more, folder, {})
    alone = run("alone", 1, 1, more, folder, {})
    report = [alone]
    for at_once in map(int, options.at_once.split(",")):
        report.append(run(f"by {at_once}", options.fits, at_once, more, folder, {}))
        if options.mps:
            if control_program() is None or runs_already():
                sys.exit("nvidia-cuda-mps-control is not installed, or a service runs already")
            with shared_gpu(os.environ.get("CUDA_VISIBLE_DEVICES", "0"), sys.exit) as environment:
                report.append(run(f"by {at_once} with MPS", options.fits, at_once, more, folder, environment))
    for each in report:
        each["times one alone"] = each["wall"] / alone["wall"]
        print(
            f"{each['name']:<16} {each['fits']} fits in {each['wall']:6.1f} s, {each['times one alone']:.2f} times one alone; "
            f"each {each['seconds']:.1f} s, {each['ms_per_step']:.2f} ms a step; Cα RMSD {each['ca_rmsd']:.2f} Å"
        )
    return report


def run(
    name: str, fits: int, at_once: int, more: Sequence[str], folder: Path, environment: dict[str, str]
) -> dict[str, Any]:
    """Run fits, so many at a time, and return what they took."""
    # Cores are shared out; one alone has them all.
    threads = ("--threads", str(max(core_count() // at_once, 1))) if at_once > 1 else ()
    settings = RunSettings(threads, environment=environment)
    own = folder / name.replace(" ", "_")
    words = ("--reference", str(CLOSED), *more)
    jobs = [
        Job(f"{name} {seed}", str(own / f"{seed}"), str(OPEN), str(folder / "closed.mrc"), 5.0, seed, words)
        for seed in range(fits)
    ]
    began = monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(lambda job: run_job(job, settings, lambda told: None), jobs))
    wall = monotonic() - began
    assert all(result.is_finished for result in results), next(each.error for each in results if each.error)
    summaries = [result.summary for result in results]
    return {
        "name": name,
        "fits": fits,
        "at_once": at_once,
        "wall": wall,
        "seconds": statistics.median(summary["wall_seconds"] for summary in summaries),
        "seconds_by_part": summaries[0]["seconds_by_part"],
        "ms_per_step": statistics.median(summary["ms_per_step"] for summary in summaries),
        "ca_rmsd": statistics.median(summary["ca_rmsd_final"] for summary in summaries),
        "peak_memory": max(result.peak_memory or 0 for result in results),
    }


if __name__ == "__main__":
    main()
