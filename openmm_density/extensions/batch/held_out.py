"""What jobs hold out, compared before any fit: free maps, and reflections of crystals, for one R-free."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import InputError, as_argument
from .jobs import Job


def check_free_maps(jobs: Sequence[Job]) -> list[str]:
    """Refuse free maps that cannot test fits into their maps (both inverted where asked); return sentences on doubtful ones."""
    with_free = [job for job in jobs if job.free_map is not None]
    for job in with_free:
        if job.resolution is None:
            raise no_free_map(job)
    given = {(job.map, job.free_map, job.resolution, *_map_options(job)) for job in with_free}
    doubts = []
    for path, free_path, resolution, columns, is_inverted in sorted(given):
        # Most batches have no free maps, and do not wait for what reads them.
        from ...maps.density_map import DensityMap
        from ...maps.map_agreement import check_free_map

        maps = [DensityMap.from_file(path, columns=columns or None), DensityMap.from_file(free_path)]
        density_map, free_map = (each.inverted() if is_inverted else each for each in maps)
        try:
            doubt = check_free_map(free_map, density_map, resolution)
        except InputError as error:
            raise error.within(free_path) from None
        if doubt is not None:
            doubts.append(f"{free_path}: {doubt}")
    return doubts


def no_free_map(job: Job) -> InputError:
    """Return the error for a free map of a job whose fit is to measured amplitudes."""
    return InputError(
        f"is for maps, and {Path(job.map).name} is fitted as measured amplitudes, which R-free judges",
        argument="free_map",
        found=job.free_map,
        remedy="leave it out",
    )


def _map_options(job: Job) -> tuple[tuple[str, ...], bool]:
    """Return the columns of an MTZ file that a job asks for by itself, and whether it inverts its map."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--columns", default="")
    parser.add_argument("--invert", action="store_true")
    found, _ = parser.parse_known_args(job.arguments)
    return tuple(found.columns.split(",")) if found.columns else (), found.invert


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
