"""Memory: Python's garbage collector, which scans all objects again and again while many are made that stay; what was freed."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# New objects between two collections. Python's 700 make a thousand of a fit's start, for next to nothing.
_COLLECTED_AFTER = 100_000


def collect_rarely() -> None:
    """Have the collector run rarely, in a process that is this program's own."""
    gc.set_threshold(_COLLECTED_AFTER)


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch the collector off for a while; it is on again afterwards if it was before.

    It then takes for old what was made meanwhile: else it would scan all of that at once, seconds for millions of objects.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():  # what others froze would be thawed
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def return_memory() -> None:
    """Return to the operating system what was freed, which C's library keeps in the gaps between what is not."""
    with suppress(OSError, AttributeError):  # another library
        ctypes.CDLL(None).malloc_trim(0)
