"""Numbers that a run is given, and that it is refused for before it begins."""

from __future__ import annotations

from ..base.errors import InputError, as_argument
from .protocols import Protocol

MOST_THREADS = 1024
"""Far more threads cannot be created, and the process then ends without a message."""


def check_seed(seed: int) -> None:
    """Refuse what OpenMM cannot count to; one less, as the noise of a barostat has the next seed."""
    if not 0 <= seed < 2**31 - 1:
        raise InputError(f"must be from 0 to {2**31 - 2}", argument="seed", found=seed, remedy="give another")


def check_threads(threads: int | None) -> None:
    """Refuse numbers of threads that a processor cannot make."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise InputError(
            f"must be from 1 to {MOST_THREADS}",
            argument="threads",
            found=threads,
            remedy="give the number of processor cores to use",
        )


def checked_interval(name: str, steps: int, protocol: Protocol) -> int:
    """Check a number of steps between two events; at least one of them falls into a fit."""
    if steps < 1:
        raise InputError("must be at least 1 step", argument=name, found=steps, remedy="give more")
    if steps % protocol.density_interval:
        every = as_argument("density_interval")
        raise InputError(
            f"must be a multiple of {every}, which is {protocol.density_interval}",
            argument=name,
            found=steps,
            remedy=f"give one, or another {every}",
        )
    return min(steps, protocol.steps)
