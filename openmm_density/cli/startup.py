"""How a command starts and ends: when its time begins, and imports that are made late so that help and errors come at once."""

from __future__ import annotations

import atexit
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..stopwatch import process_start

_started = time.monotonic()


def note_start(is_process: bool) -> None:
    """Note that a command starts: with its process, or now where a program calls it."""
    global _started
    began = process_start() if is_process else None
    _started = time.monotonic() if began is None else began
    if is_process:
        # At exit Python collects garbage among all objects of torch and OpenMM, which takes seconds on a busy machine.
        atexit.register(gc.freeze)


def started() -> float:
    """Return when the command started, on the clock of `time.monotonic`."""
    return _started


@contextmanager
def loading() -> Iterator[None]:
    """Import modules without Python's garbage collector, which would scan all of them repeatedly and free nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
