"""``openmm-density batch``: many fits, on this machine or others."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument, did_you_mean
from ...base.progress import console_for_results
from ...base.wording import counted, listing
from ...cli.amplitudes import is_of_amplitudes
from ...cli.arguments import PROGRAM, spelled
from ...cli.fit_checks import check_asked, check_values
from ...cli.fit_options import FitOptions
from .command_arguments import add_batch_arguments, jobs_asked

if TYPE_CHECKING:
    from ...cli.arguments import Commands
    from .batch import Batch
    from .jobs import Job
    from .queues import QueueOptions
    from .run_job import RunSettings

_QUEUE_JOBS = 10


def add_parser(commands: Commands) -> None:
    """Add what ``batch`` takes."""
    parser = commands.add_parser(
        "batch",
        help="many fits: models, maps and seeds, on this machine or others",
        description="Fit every MODEL into every MAP with every seed, each in a folder and process of its own, as many at once as "
        "this machine has cores or GPUs for, or on others by Dask. Run again, it goes on where it was.",
    )
    add_batch_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run a batch; return the exit status: 1 where a fit failed."""
    from .batch import Batch, check_platforms

    jobs = jobs_asked(options)
    _check_fits(jobs, is_table=options.table is not None)
    queue = _queue(options)
    gpus = _gpus(options, jobs)
    if options.scheduler is None and queue is None:
        check_platforms(jobs, gpus if options.gpus else ())
    if options.dry_run:
        _print_dry_run(jobs, queue)
        return 0
    batch = Batch(jobs, options.output, options.overwrite)
    starting, settings = _engine(options, batch, queue, gpus)
    for sentence in batch.notes:
        _say(sentence)
    try:
        for result in batch.run_on(starting, settings, None):
            if not result.is_finished:
                _say(f"{result.job.name} failed: {result.error}")
    except KeyboardInterrupt:
        batch.write_tables()
        done = sum(result.is_finished for result in batch.results.values())
        _say(f"interrupted; {done} of {counted(len(jobs), 'fit')} finished, and the same command goes on")
        return 130
    return _print_outcome(batch, shlex.join([PROGRAM, *sys.argv[1:]]))


def _check_fits(jobs: Sequence[Job], is_table: bool) -> None:
    """Refuse at once what every fit would refuse by itself, minutes later."""
    from ...cli import build_parser
    from .held_out import check_held_out

    parser = build_parser()
    for number, job in enumerate(jobs, start=1):
        words = ["fit", *job.words, "--output", job.folder]
        options, unknown = parser.parse_known_args(words)
        if unknown:
            remedy = did_you_mean(unknown[0].partition("=")[0], map(spelled, vars(options)))
            remedy = remedy or "use options of fit"
            raise InputError(f'"{unknown[0]}" is not understood', source=job.name, remedy=remedy)
        try:
            _check_fit(FitOptions.of(vars(options)), job)
        except InputError as error:
            if not is_table:  # it is an option of all
                raise
            raise error.within(f"row {number}, {job.name}") from None
    check_held_out(jobs)


def _check_fit(asked: FitOptions, job: Job) -> None:
    """Refuse what the fit of a job would refuse by itself, whatever its files hold."""
    from ..crystal_fit import check_cycles, check_new_crystal
    from .held_out import no_free_map

    if not is_of_amplitudes(asked):
        check_asked(asked)
        return
    check_new_crystal(asked)
    check_cycles(asked.crystal.cycles)
    check_values(asked)
    if job.free_map is not None:
        raise no_free_map(job)


def _queue(options: argparse.Namespace) -> QueueOptions | None:
    from .queues import read_queue_options

    if options.queue is None:
        if options.queue_options is not None:
            raise InputError(
                "is for a queue", argument="queue_options", remedy=f"add {as_argument('queue', 'slurm')}"
            )
        return None
    for name in ("scheduler", "gpus"):
        if getattr(options, name) is not None:
            raise InputError(
                "has GPUs and a scheduler of its own",
                argument="queue",
                remedy=f"leave {as_argument(name)} out",
            )
    return read_queue_options(options.queue, options.queue_options)


def _gpus(options: argparse.Namespace, jobs: Sequence[Job]) -> list[str]:
    """Return the GPUs of this machine that are used: those that are asked for, or all where fits run on CUDA."""
    from .batch import gpus_for
    from .devices import chosen_gpus

    if options.workers is not None and options.workers < 1:
        raise InputError(
            "must be 1 or more", argument="workers", found=options.workers, remedy="give 1 or more"
        )
    if options.gpus is not None:
        return chosen_gpus(options.gpus)
    is_here = options.scheduler is None and options.queue is None
    return gpus_for(jobs, _say) if is_here else []


def _engine(
    options: argparse.Namespace, batch: Batch, queue: QueueOptions | None, gpus: Sequence[str]
) -> tuple[Any, RunSettings]:
    """Return what starts the engine, and how it runs jobs."""
    from .batch import local, settings_of, threads_asked
    from .clusters import queue_engine, scheduler_engine
    from .devices import machine_shares
    from .run_job import RunSettings

    n_jobs = len(batch.jobs)
    if options.scheduler is not None:
        return scheduler_engine(options.scheduler), RunSettings(("--threads", "1"))
    if queue is not None:
        settings = RunSettings(("--threads", str(queue.threads)))
        return queue_engine(queue, options.workers or _QUEUE_JOBS, n_jobs), settings
    share = machine_shares(n_jobs, options.workers, gpus, threads_asked(batch.jobs))
    return local(share, options.mps, _say), settings_of(share, gpus)


def _print_dry_run(jobs: Sequence[Job], queue: QueueOptions | None) -> None:
    console = console_for_results()
    for job in jobs:
        console.print(f"{job.name}: {shlex.join([PROGRAM, 'fit', *job.words, '--output', job.folder])}")
    console.print(counted(len(jobs), "fit"))
    if queue is not None:
        console.print(queue.job_script())


def _print_outcome(batch: Batch, command: str | None) -> int:
    """Write and print what became of the fits; return the exit status."""
    from rich.text import Text

    console = console_for_results()
    failed = [result for result in batch.results.values() if not result.is_finished]
    for sentence in dict.fromkeys(result.error for result in failed):
        names = [result.job.name for result in failed if result.error == sentence]
        console.print(f"{listing(names, 5)} failed: {sentence}")
    outcomes = batch.write_outcome(command)
    for outcome in outcomes:
        label = "Verdict" if len(outcomes) == 1 else f"Verdict on {Path(outcome.map).name}"
        console.print(Text.assemble((f"{label}:", "bold"), f" {outcome.verdict}"))
    finished = len(batch.jobs) - len(failed)
    console.print(
        f"{finished} of {counted(len(batch.jobs), 'fit')} finished; results are in {batch.output}: open batch.html in a browser; "
        "batch.csv has all figures"
    )
    return 1 if failed else 0


def _say(sentence: str) -> None:
    print(f"{PROGRAM} batch: {sentence}", file=sys.stderr, flush=True)
