"""Programs of this package in processes of their own: how they are started, and how they end with who started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

# Nothing is imported from the working folder, which may hold anything.
_PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from {} import main; main()"
# Of Linux: the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module's function ``main``, for `environment_of`."""
    return [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(module), *arguments]


def environment_of(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment for a program that imports from where this process does."""
    # What is no text Python passes over; an empty folder is the working folder.
    path = os.pathsep.join(folder for folder in sys.path if isinstance(folder, str) and folder)
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


def begin_program(
    module: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a module's ``main`` in a session of its own: Ctrl-C is for the program that started it, which ends it."""
    none = subprocess.DEVNULL
    streams = {"stdin": none, "stdout": none, **options}
    return subprocess.Popen(
        command_of(module, *arguments), start_new_session=True, env=environment_of(environment), **streams
    )


def end_with(parent: int) -> None:
    """Have the operating system end this process when the thread ends that started it, however that ends."""
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)
