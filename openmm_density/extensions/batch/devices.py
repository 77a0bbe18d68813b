"""The cores and GPUs of this machine, shared out to fits that run side by side."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.errors import InputError
from ...base.multi_process_service import VISIBLE
from ...base.wording import listing

FITS_PER_GPU = 8
"""Side by side on one GPU, where there are cores for them: as measured on an H200, see docs/evidence/many_fits.md."""
_MEGABYTES_PER_FIT = 4096
"""Of a GPU's memory: adenylate kinase took 3.3 to 3.9 GB of an H200's."""


@dataclass(frozen=True)
class MachineShare:
    """How this machine is shared out."""

    places: Sequence[Mapping[str, str]]  # For each fit that runs at one time, what differs in its environment
    threads: int  # Of each fit


def core_count() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_shares(
    n_jobs: int, workers: int | None = None, gpus: Sequence[str] = (), threads: int | None = None
) -> MachineShare:
    """Return how this machine is shared out to some jobs."""
    cores = core_count()
    if not gpus:
        most = workers or math.ceil(cores / (threads or 1))
        side_by_side = max(min(most, n_jobs), 1)
        return MachineShare([{}] * side_by_side, threads or max(cores // side_by_side, 1))
    most = workers or max(min(fits_per_gpu(gpus) * len(gpus), cores // (threads or 1)), len(gpus))
    side_by_side = max(min(most, n_jobs), 1)
    used = gpus[:side_by_side]
    places = [{VISIBLE: used[number % len(used)]} for number in range(side_by_side)]
    return MachineShare(places, threads or max(cores // side_by_side, 1))


def fits_per_gpu(gpus: Sequence[str]) -> int:
    """Return how many fits share a GPU: `FITS_PER_GPU`, or as many as the memory of the smallest of these has room for."""
    found = _asked_of_gpus("memory.total", "nounits", gpus)
    memory = [int(each) for each in found if each.isdigit()]
    return max(min([FITS_PER_GPU, *(each // _MEGABYTES_PER_FIT for each in memory)]), 1)


def visible_gpus() -> list[str]:
    """Return the GPUs that programs see, as ``CUDA_VISIBLE_DEVICES`` names them; none where there is no driver."""
    found = _asked_of_gpus("index")
    visible = os.environ.get(VISIBLE)
    return (
        found
        if visible is None or not found
        else [each.strip() for each in visible.split(",") if each.strip()]
    )


def _asked_of_gpus(what: str, spelling: str = "", gpus: Sequence[str] = ()) -> list[str]:
    """Return what the driver says of some GPUs, or of all; nothing where there is none, or it does not know them."""
    form = ",".join(["csv,noheader", *filter(None, [spelling])])
    words = ["nvidia-smi", f"--query-gpu={what}", f"--format={form}"]
    try:
        asked = subprocess.run(
            [*words, *(["-i", ",".join(gpus)] if gpus else [])], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return asked.stdout.split() if asked.returncode == 0 else []


def chosen_gpus(numbers: Sequence[int]) -> list[str]:
    """Return the GPUs of some numbers, of those that programs see."""
    visible = visible_gpus()
    for number in numbers:
        if not 0 <= number < len(visible):
            there = f"{len(visible)}: {listing([*map(str, range(len(visible)))])}" if visible else "none"
            raise InputError(
                "must be numbers of GPUs of this machine",
                argument="gpus",
                found=f"{number}, of {there}",
                remedy="use those that nvidia-smi lists, from 0"
                if visible
                else "leave it out, and fits run on the cores",
            )
    return [visible[number] for number in numbers]
