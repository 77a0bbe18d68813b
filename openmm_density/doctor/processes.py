"""What may kill a process is tried in one of its own: start it, and read what it found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .diagnosis import GpuKernel, Probe
from .gpu_probe import gpu_calls


class Doing:
    """What is going on now, of several things at once.

    Parameters
    ----------
    say : callable
        Called, from any thread, with all that is going on, whenever something begins or ends.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._things: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, thing: str) -> Iterator[None]:
        """Report that this is going on, until the ``with`` ends."""
        with self._lock:
            self._things.append(thing)
            self._say("; ".join(self._things))
        try:
            yield
        finally:
            with self._lock:
                self._things.remove(thing)
                self._say("; ".join(self._things))


def probe_platform(
    name: str, backends: Sequence[str], timeout: float, doing: Doing
) -> list[tuple[bool, Probe]]:
    """Try ways of adding a force on one platform."""
    found: list[tuple[bool, Probe]] = []
    while len(found) < len(backends):
        left = backends[len(found) :]
        with doing(f"trying forces on {name}"):
            lines, problem = _output_of(["--probe", name, *left], timeout)
        for said in (json.loads(line) for line in lines if line.startswith('{"made"')):
            made = said.pop("made")
            found.append((made, Probe(**said)))
        if len(found) < len(backends):
            found.append((True, Probe(backends[len(found)], name, False, problem, None, 0.0)))
    return found


def probe_gpu_kernels(timeout: float, doing: Doing) -> list[GpuKernel]:
    """Try the operators on the GPU in one process: an error there ends all use of the GPU."""
    with doing("trying the kernels on the GPU"):
        lines, problem = _output_of(["--probe-gpu"], timeout)
    kernels = [GpuKernel(**json.loads(line)) for line in lines if line.startswith('{"operator"')]
    said = {kernel.operator: kernel for kernel in kernels}
    return [said.get(name) or GpuKernel(name, False, problem, 0.0) for name in gpu_calls()]


def _output_of(arguments: Sequence[str], timeout: float) -> tuple[list[str], str]:
    """Run this package in a process of its own; return the lines that it printed, and how it ended."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __package__, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if error.stdout else ""
        return output.splitlines(), f"was not done within {timeout:g} s"
    last_words = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode < 0:
        problem = f"the process was killed by {signal.Signals(-done.returncode).name}"
    else:
        problem = f"the process ended with status {done.returncode}"
    return done.stdout.splitlines(), problem + (f" ({last_words})" if last_words else "")
