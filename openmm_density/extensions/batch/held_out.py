"""Which reflections of a crystal a job holds out: fits can be compared by R-free where these are the same."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import InputError, as_argument
from .jobs import Job


@dataclass(frozen=True)
class HeldOut:
    """What decides which reflections of a file a fit holds out."""

    data: str  # The MTZ file
    resolution: float | None  # To which it is used, in Å
    # `amplitudes`, `free_flags`, `free_value` as a user types them; empty where they are not given.
    amplitudes: str
    free_flags: str
    free_value: str
    seed: int | None  # Of flags that the fit makes itself

    @classmethod
    def of(cls, job: Job) -> HeldOut:
        """Return that of a job whose file has amplitudes."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for name in ("amplitudes", "free-flags", "free-value"):
            parser.add_argument(f"--{name}", default="")
        parser.add_argument("--make-free-flags", action="store_true")
        found, _ = parser.parse_known_args(job.arguments)
        seed = job.seed if found.make_free_flags else None
        return cls(job.map, job.resolution, found.amplitudes, found.free_flags, found.free_value, seed)


def check_held_out(jobs: Sequence[Job]) -> None:
    """Refuse fits to the amplitudes of one file that would each hold out other reflections, drawn with their seeds."""
    first: dict[str, tuple[Job, HeldOut]] = {}
    for job in jobs:
        own = HeldOut.of(job)
        if own.seed is None:
            continue
        before, other = first.setdefault(job.map, (job, own))
        if other.seed != own.seed:
            raise InputError(
                f"draws the free flags with the seed, so that {before.name} and {job.name} would hold out other reflections, and "
                "their R-free could not be compared",
                source=job.map,
                argument="make_free_flags",
                remedy=f"make them once, by one fit with {as_argument('make_free_flags', True)}, and give crystal.mtz of its "
                "folder to all",
            )
