"""The arguments of ``openmm-density batch``, and the jobs that they ask for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import InputError, as_argument
from ...cli.amplitudes import is_mtz
from ...cli.arguments import add_mps, missing, number, refused, whole_number
from ...cli.command_line import option_words
from ...cli.fit_arguments import add_crystal, add_options
from .job_table import FILES, read_jobs
from .jobs import jobs_of
from .queues import SYSTEMS

if TYPE_CHECKING:
    from .jobs import Job

# Of the batch; all others are those of each fit.
_OWN = (
    *("command", "model", "map", "table", "resolution", "seeds", "seed", "free_map", "output", "overwrite"),
    *("workers", "gpus", "mps", "scheduler", "queue", "queue_options", "dry_run"),
)


def add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all that ``batch`` takes."""
    parser.add_argument("model", nargs="*", metavar="MODEL", help="one or more, PDB or mmCIF, .gz or not")
    parser.add_argument(
        "--map",
        nargs="+",
        action="extend",
        default=[],
        metavar="MAP",
        help="one or more, as for fit: maps, or MTZ files with the measured amplitudes of crystals",
    )
    parser.add_argument(
        "--table",
        metavar="FILE.csv",
        help="in place of MODEL and --map: a row for each fit, with columns model, map and as many options of fit as you like",
    )
    parser.add_argument(
        "--resolution",
        type=number,
        metavar="R",
        help="resolution of the maps in Å; of amplitudes, the limit to which they are used (all)",
    )
    parser.add_argument(
        "--seeds", type=whole_number, default=1, metavar="N", help="fits with N seeds, from --seed on (1)"
    )
    parser.add_argument(
        "--free-map",
        metavar="FILE",
        help="another map of the same, as a half map, in which results are scored",
    )
    parser.add_argument("--output", metavar="DIR", help="folder for the results, with one for each fit in it")
    parser.add_argument("--overwrite", action="store_true", help="replace fits of other jobs in DIR")
    _add_workers(parser.add_argument_group("where the fits run"))
    add_crystal(parser)
    add_options(parser)


def _add_workers(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="fits side by side, or jobs in the queue (as many as there are cores and GPUs for; 10 in a queue)",
    )
    parser.add_argument(
        "--gpus",
        type=_numbers,
        metavar="0,1",
        help="GPUs of this machine, each for several fits (all of them, where fits run on CUDA)",
    )
    add_mps(parser)
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address of a Dask scheduler that runs already, as tcp://host:8786",
    )
    parser.add_argument("--queue", metavar="NAME", help=f"of a batch system: {', '.join(SYSTEMS)}")
    parser.add_argument(
        "--queue-options",
        metavar="FILE.toml",
        help="what a job of the queue asks for: cores, memory, walltime …",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the fits, and with --queue the script of its jobs, and start nothing",
    )


def jobs_asked(options: argparse.Namespace) -> list[Job]:
    """Return the jobs that the arguments ask for."""
    _check_complete(options)
    words = fit_words(options)
    if options.table is not None:
        return read_jobs(options.table, options.output, options.resolution, words)
    if options.seeds < 1:
        raise InputError("must be 1 or more", argument="seeds", found=options.seeds, remedy="give 1 or more")
    seeds = range(options.seed, options.seed + options.seeds)
    jobs = jobs_of(options.model, options.map, options.resolution, options.output, seeds, options.free_map)
    return [_with_arguments(job, words) for job in jobs]


def _with_arguments(job: Job, words: Sequence[str]) -> Job:
    from dataclasses import replace

    return replace(job, arguments=tuple(words))


def fit_words(options: argparse.Namespace) -> list[str]:
    """Return the options of each fit as a user types them, those that differ from their defaults."""
    parser = argparse.ArgumentParser()
    add_batch_arguments(parser)
    defaults = vars(parser.parse_args([]))
    words: list[str] = []
    for name, value in vars(options).items():
        if name not in _OWN and value != defaults[name]:
            words += option_words(name, _absolute(value) if name in FILES else value)
    return words


def _absolute(value: Any) -> Any:
    """Return paths as a worker finds them that was started elsewhere; a name that is no file stays."""
    if isinstance(value, list):
        return [_absolute(each) for each in value]
    return os.path.abspath(value) if Path(value).exists() else value


def _check_complete(options: argparse.Namespace) -> None:
    needed = ["output"]
    if options.table is None:
        # Measured amplitudes have a resolution of their own.
        is_of_maps = not (options.map and all(map(is_mtz, options.map)))
        needed = ["model", "map", *(["resolution"] if is_of_maps else []), *needed]
    absent = [name for name in needed if not getattr(options, name)]
    if absent:
        raise missing(
            absent, "give MODEL …, --map MAP … and --resolution, or --table FILE.csv, and --output DIR"
        )
    if options.table is not None:
        for name in ("model", "map", "free_map"):
            if getattr(options, name):
                raise InputError(
                    "already names all models and maps",
                    argument="table",
                    remedy=f"leave {as_argument(name)} out",
                )
        if options.seeds != 1:
            raise InputError(
                "already sets all seeds", argument="table", remedy=f"leave {as_argument('seeds')} out"
            )


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise refused("numbers of GPUs, as in 0,1", text) from None
    if len(set(numbers)) != len(numbers):
        raise refused("different numbers of GPUs", text)
    return numbers
