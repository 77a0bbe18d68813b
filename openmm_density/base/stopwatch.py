"""Wall time by what took it, with nothing left out and nothing counted twice."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType

PARTS = {
    "start_up": "start-up",
    "reading": "reading",
    "symmetry": "symmetry",
    "phasing": "phases",
    "half_maps": "half maps",
    "placement": "map checks and placement",
    "preparation": "preparation",
    "minimization": "minimising",
    "dynamics": "dynamics",
    "searches": "searches",
    "final_strength": "final strength",
    "conformers": "alternate conformers",
    "b_factors": "B factors",
    "refinement": "refinement against amplitudes",
    "scoring": "scoring",
    "writing": "writing",
    "pictures": "pictures",
    "report": "report",
}
"""The parts of a fit in their order, and their names in messages; those of extensions come last, by their own names."""

WITHIN = {
    "completion": "building missing atoms",
    "system": "creating the System",
    "compilation": "compiling kernels",
    "contexts": "creating OpenMM Contexts",
    "threading": "leading chains through helices",
    "register": "shifting stretches",
    "peptides": "flipping peptides",
    "side_chains": "fitting rotamers",
    "settling": "settling what was rebuilt",
}
"""What is counted a second time, within the parts, and its names in messages."""


class _Tally:
    """Seconds by name: what begins inside another one interrupts it."""

    def __init__(self, running: Sequence[str], since: float) -> None:
        self._seconds: dict[str, float] = {}
        self._running, self._since = list(running), since

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def begin(self, name: str) -> None:
        self._book()
        self._running.append(name)

    def end(self) -> None:
        self._book()
        self._running.pop()

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, spent in seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent

    def seconds(self, names: Iterable[str]) -> dict[str, float]:
        """Return the seconds until now, in the order of the names; others come last."""
        self._book()
        return in_order(self._seconds, names)

    def _book(self) -> None:
        now = time.monotonic()
        if self._running:
            self.add({self._running[-1]: now - self._since})
        self._since = now


class Stopwatch:
    """Seconds by part.

    A part that begins inside another one interrupts it. In a command all time counts: time outside every part is start-up,
    mostly imports. In a script, time outside every part is the script's own and does not count. `started`: when the command
    started, on the clock of `time.monotonic`; `on_part`: called with the name of each part that begins. Attributes:
    `identity`: unique among all stopwatches, of this process and of others.
    """

    def __init__(self, started: float | None = None, on_part: Callable[[str], None] | None = None) -> None:
        now = time.monotonic()
        self._parts = _Tally(*(((), now) if started is None else (("start_up",), started)))
        self._within = _Tally((), now)
        self.on_part = on_part
        self.identity = secrets.token_hex(8)

    def begin(self, part: str) -> None:
        """Start a part, inside the one that runs."""
        self._parts.begin(part)
        _running[threading.get_ident()] = self
        if self.on_part is not None:
            self.on_part(part)

    def end(self) -> None:
        """End the part that runs; the one around it goes on."""
        self._parts.end()
        if not self._parts.is_running:
            _running.pop(threading.get_ident(), None)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what is done inside as a part."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Count what is done inside as a name of `WITHIN`, beside the part that runs."""
        self._within.begin(name)
        try:
            yield
        finally:
            self._within.end()

    def add(self, seconds: Mapping[str, float], within: Mapping[str, float] = MappingProxyType({})) -> None:
        """Add the seconds of an earlier process, by part, and what was counted within them."""
        self._parts.add(seconds)
        self._within.add(within)

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """The seconds of each part until now, in the order of `PARTS`."""
        return self._parts.seconds(PARTS)

    @property
    def seconds_within(self) -> dict[str, float]:
        """The seconds until now of what is counted within parts, in the order of `WITHIN`."""
        return self._within.seconds(WITHIN)

    @property
    def seconds(self) -> float:
        """The sum over all parts."""
        return sum(self.seconds_by_part.values())


def in_order(seconds: Mapping[str, float], names: Iterable[str] = PARTS) -> dict[str, float]:
    """Return seconds in the order of names, with others behind them."""
    return {name: seconds[name] for name in (*names, *seconds) if name in seconds}


# The stopwatch that runs in each thread.
_running: dict[int, Stopwatch] = {}


@contextmanager
def counted_as(name: str) -> Iterator[None]:
    """Count what is done inside as a name of `WITHIN`, if a stopwatch runs: for code that knows of none."""
    stopwatch = _running.get(threading.get_ident())
    with nullcontext() if stopwatch is None else stopwatch.within(name):
        yield


def process_start() -> float | None:
    """Return when this process started, on the clock of `time.monotonic`; None where the system does not tell."""
    try:
        # The 22nd field, ticks since the machine started, counted from behind the name in brackets, which may hold anything.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return time.monotonic() - max(age, 0.0)


def in_words(seconds_by_part: Mapping[str, float]) -> str:
    """Return what took a second or more, or else the longest, as in ``start-up 5, dynamics 20``; unknown parts by key."""
    told = {part: spent for part, spent in seconds_by_part.items() if round(spent) >= 1}
    if not told and seconds_by_part:
        told = dict([max(seconds_by_part.items(), key=lambda pair: pair[1])])
    return ", ".join(f"{PARTS.get(part, part)} {spent:.0f}" for part, spent in told.items())
