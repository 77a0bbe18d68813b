"""Engines that do the same: compared first, then timed in alternation, so that other load on the machine meets all alike."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table


@dataclass
class Engine:
    """Something that is timed: ``call`` gives the seconds it took, of one step where it takes many at once (not short)."""

    name: str
    operation: str
    threads: int
    call: Callable[[], float]
    is_short: bool = True
    deviations: dict[str, float] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def times(self) -> np.ndarray:
        """All times in ms."""
        return np.array([value for each in self.rounds for value in each])

    @property
    def median(self) -> float:
        """The median time in ms."""
        return float(np.median(self.times))

    @property
    def fastest(self) -> float:
        """The fastest call in ms: what a processor that others use at the same time can do when left alone."""
        return float(self.times.min())

    def figures(self) -> dict[str, Any]:
        """Return what goes into the file."""
        low, high = np.percentile(self.times, (25, 75))
        return {
            "engine": self.name,
            "operation": self.operation,
            "threads": self.threads,
            "median_ms": self.median,
            "quartiles_ms": [float(low), float(high)],
            "fastest_ms": self.fastest,
            "calls": len(self.times),
            "deviations": self.deviations,
        }


def timed(name: str, operation: str, threads: int, function: Callable[[], Any]) -> Engine:
    """Build an engine of a function that runs in PyTorch's threads."""

    def call() -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - start
        del result  # what is given back to the system is given back after the clock has stopped
        return seconds

    return Engine(name, operation, threads, call)


def independently(name: str, operation: str, threads: int, function: Callable[[], Any]) -> Engine:
    """Build an engine that runs a function in so many threads at once, each on its own, and counts the time per run.

    No way of sharing the work of one run among these threads can be expected to take less: what they lose is what the
    processor's caches, its memory and its clock do not give to all of them at once.
    """

    def run(together: Barrier) -> tuple[float, float]:
        torch.set_num_threads(1)
        together.wait()
        start = time.perf_counter()
        function()
        return start, time.perf_counter()

    def call() -> float:
        together = Barrier(threads)
        spans = list(pool.map(run, [together] * threads))
        return (max(end for _, end in spans) - min(start for start, _ in spans)) / threads

    pool = ThreadPoolExecutor(threads)
    return Engine(name, operation, threads, call)


class Difference(Engine):
    """What one engine takes more than another, round by round."""

    def __init__(self, name: str, operation: str, larger: Engine, smaller: Engine) -> None:
        super().__init__(name, operation, larger.threads, larger.call)
        self.rounds = [[float(np.median(a) - np.median(b))] for a, b in zip(larger.rounds, smaller.rounds)]
        self._fastest = larger.fastest - smaller.fastest

    @property
    def fastest(self) -> float:
        """The difference of the fastest calls in ms."""
        return self._fastest


@dataclass
class Case:
    """Engines timed side by side."""

    title: str
    engines: list[Engine]
    agreement: dict[str, float] = field(default_factory=dict)

    def find(self, name: str, operation: str, threads: int) -> Engine | None:
        """Return the engine whose name begins so, if it took part."""
        for engine in self.engines:
            if (
                engine.name.startswith(name)
                and (engine.operation, engine.threads) == (operation, threads)
                and len(engine.times)
            ):
                return engine
        return None


def processor() -> str:
    """Name the processor."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


class Disagreement(Exception):
    """Two engines computed different things, and times would mean nothing."""


def compare(what: str, found: Any, expected: Any, tolerance: float) -> float:
    """Return the largest difference over the largest value, unless it is too large."""
    found, expected = (np.asarray(values, dtype=np.float64) for values in (found, expected))
    if found.shape != expected.shape:
        raise Disagreement(f"{what} has the shape {found.shape}, expected {expected.shape}")
    deviation = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not deviation <= tolerance:
        raise Disagreement(
            f"{what} is off by {deviation:.1e} of the largest value, allowed are {tolerance:.0e}"
        )
    return deviation


def measure(engines: list[Engine], rounds: int, limit: float) -> None:
    """Time the engines in alternation; one that has used up its share of so many seconds is left out of further rounds."""
    used = {id(engine): 0.0 for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            if engine.rounds and used[id(engine)] > limit / len(used):
                continue
            start = time.perf_counter()
            times = [engine.call()]
            if engine.is_short and times[0] < 0.3:
                # The first call of a round finds the caches full of another engine's data: it does not count.
                calls = max(1, min(50, round(0.05 / times[0])))
                times = [engine.call() for _ in range(calls)]
            engine.rounds.append([1000 * seconds for seconds in times])
            used[id(engine)] += time.perf_counter() - start


def milliseconds(value: float) -> str:
    """Write three figures, and all that are before the point."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def show(console: Console, case: Case) -> None:
    """Print the table of a case."""
    table = Table(title=case.title, title_justify="left", title_style="bold")
    for heading in (
        "",
        "timed",
        "threads",
        "median ms",
        "quartiles",
        "fastest",
        "calls",
        "ratio",
        "deviation",
    ):
        table.add_column(heading, justify="left" if heading in ("", "timed") else "right")
    bases: dict[str, float] = {}
    for engine in case.engines:
        if not len(engine.times):
            continue
        figures = engine.figures()
        base = bases.setdefault(engine.operation, engine.median)
        low, high = figures["quartiles_ms"]
        table.add_row(
            engine.name,
            engine.operation,
            str(engine.threads),
            milliseconds(engine.median),
            f"{milliseconds(low)} to {milliseconds(high)}",
            milliseconds(engine.fastest),
            str(figures["calls"]),
            "" if engine.median == base else f"{engine.median / base:.3g}",
            " ".join(f"{value:.0e}" for value in engine.deviations.values()),
        )
    console.print(table)
    if case.agreement:
        console.print(
            "  agreement: " + ", ".join(f"{name} {value:.0e}" for name, value in case.agreement.items())
        )
    console.print()
