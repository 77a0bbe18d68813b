"""How a command starts and ends: when its time begins, and imports that are made late so that help and errors come at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..base.garbage import collect_rarely, without_collection
from ..base.stopwatch import process_start

INTERRUPTED = 130
"""The status of what Ctrl-C ended."""

_started = time.monotonic()
_is_process = False


def note_start(is_process: bool) -> None:
    """Note that a command starts: with its process, or now where a program calls it."""
    global _started, _is_process
    _is_process = is_process
    began = process_start() if is_process else None
    _started = time.monotonic() if began is None else began
    if is_process:
        # Its threads cost more than they gain on arrays as small as ours, and keep cores busy while they wait.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        collect_rarely()
        # At exit Python collects garbage among all objects of torch and OpenMM, which takes seconds on a busy machine.
        atexit.register(gc.freeze)


def started() -> float:
    """Return when the command started, on the clock of `time.monotonic`."""
    return _started


@contextmanager
def loading() -> Iterator[None]:
    """Import modules without Python's garbage collector, which would scan them repeatedly; nor does it scan them later."""
    with without_collection():
        yield
        if _is_process:
            gc.freeze()


def end_process(status: int) -> NoReturn:
    """End this process as `sys.exit` does, but leave memory, libraries and the GPU to the operating system, which is sooner.

    After Ctrl-C also what threads compute, for which the interpreter would wait: all that is to be kept is written.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    at_once = status == INTERRUPTED or all(thread.daemon for thread in others)
    if not (at_once and _flushed()):
        sys.exit(status)
    atexit._run_exitfuncs()
    _flushed()
    os._exit(status)


def _flushed() -> bool:
    """Write what was printed; return whether all of it could be, without which Python's own exit says so."""
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        return False
    return True
