"""Wall time by what took it, with nothing left out and nothing counted twice."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PARTS = {
    "start_up": "start-up",
    "reading": "reading",
    "half_maps": "half maps",
    "placement": "map checks and placement",
    "preparation": "preparation",
    "minimization": "minimising",
    "dynamics": "dynamics",
    "searches": "searches",
    "scoring": "scoring",
    "writing": "writing",
    "pictures": "pictures",
}
"""The parts of a fit in their order, and their names in messages."""


class Stopwatch:
    """Seconds by part.

    A part that begins inside another one interrupts it. In a command all time counts: time outside every part is start-up,
    mostly imports. In a script, time outside every part is the script's own and does not count.

    Parameters
    ----------
    started : float, optional
        When the command started, on the clock of `time.monotonic`.
    on_part : callable, optional
        Called with the name of each part that begins.

    Attributes
    ----------
    on_part : callable, optional
    identity : str
        Unique among all stopwatches, of this process and of others.
    """

    def __init__(self, started: float | None = None, on_part: Callable[[str], None] | None = None) -> None:
        self._seconds: dict[str, float] = {}
        self._running = [] if started is None else ["start_up"]
        self._since = time.monotonic() if started is None else started
        self.on_part = on_part
        self.identity = secrets.token_hex(8)

    def begin(self, part: str) -> None:
        """Start a part of `PARTS`, inside the one that runs."""
        self._book()
        self._running.append(part)
        if self.on_part is not None:
            self.on_part(part)

    def end(self) -> None:
        """End the part that runs; the one around it goes on."""
        self._book()
        self._running.pop()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what is done inside as a part."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process, by part."""
        for part, spent in seconds.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + spent

    @property
    def seconds_by_part(self) -> dict[str, float]:
        """The seconds of each part until now, in the order of `PARTS`."""
        self._book()
        return {part: self._seconds[part] for part in PARTS if part in self._seconds}

    @property
    def seconds(self) -> float:
        """The sum over all parts."""
        return sum(self.seconds_by_part.values())

    def _book(self) -> None:
        now = time.monotonic()
        if self._running:
            self.add({self._running[-1]: now - self._since})
        self._since = now


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
    """Return what took the time, as in ``start-up 5, dynamics 20``: parts of at least a second, or the longest."""
    told = {part: spent for part, spent in seconds_by_part.items() if round(spent) >= 1}
    if not told:
        told = dict([max(seconds_by_part.items(), key=lambda pair: pair[1])])
    return ", ".join(f"{PARTS[part]} {spent:.0f}" for part, spent in told.items())
