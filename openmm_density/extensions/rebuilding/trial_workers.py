"""Processes that run trials, kept for a whole fit: Python code of several threads would wait for each other.

What comes out does not depend on how many there are, as trials do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from ...base.errors import SimulationError
from ...fitting.interrupts import Stop
from ...fitting.worker_process import NoAnswer, SharedArgument, WorkerPool, available_cores
from .local_system import MINIMIZATION
from .stretch_trial import AT_ONCE, Built, Trial, TrialPlace, TrialTools

MOST_WORKERS = 32
"""More than these wait for each other's places."""
RESIDUES_OF_A_WORKER = 8
"""With fewer residues for each worker, a model has fewer places that may be off than workers."""

# Seconds between two looks whether to stop.
_LOOK = 0.2
# Atoms times conformations that take as long as a process takes to load.
_LITTLE = 3000
# With fewer trials for each process, those that can be are divided; places that a process keeps for their next parts.
_TRIALS_PER_WORKER, _MOST_PLACES = 2, 8

_Found = TypeVar("_Found")

Progress = Callable[[int], None]
"""Called with the number of a trial that is complete."""


class TrialWorkers:
    """Run trials in so many processes; in this one alone where that is one.

    `count`: processes at most; as many as there are processor cores by default. `n_residues` of the model: a small one
    has fewer.
    """

    def __init__(self, count: int | None = None, n_residues: int | None = None) -> None:
        most = MOST_WORKERS if n_residues is None else n_residues // RESIDUES_OF_A_WORKER
        self.count = max(min(count or available_cores(), MOST_WORKERS, most), 1)
        self._pool: WorkerPool | None = None
        self._tools: SharedArgument | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Start the processes, which then load what they need while this one goes on."""
        with self._lock:
            if self.count == 1 or self._pool is not None:
                return
            self._pool = WorkerPool(self.count, __name__)
            if not self._pool.workers:  # none are allowed here
                self.close()
                self.count = 1

    def close(self) -> None:
        """End the processes at once."""
        if self._pool is not None:
            self._pool.end()
        self._pool = self._tools = None

    def __enter__(self) -> TrialWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def beside(
        self, calls: Sequence[Callable[[Callable[..., None]], _Found]], progress: Callable[..., None]
    ) -> list[_Found]:
        """Make calls that run trials, beside each other where there are processes; return what each returns, in their order.

        Each is given what to call with its progress; `progress` itself is called in this thread.
        """
        if self.count == 1 or len(calls) < 2:
            return [call(progress) for call in calls]
        self.start()
        said = SimpleQueue[tuple[Any, ...]]()
        with ThreadPoolExecutor(len(calls)) as threads:
            waiting = [threads.submit(call, lambda *what: said.put(what)) for call in calls]
            while wait(waiting, _LOOK).not_done:
                while not said.empty():
                    progress(*said.get())
            return [each.result() for each in waiting]

    def run(
        self,
        tools: TrialTools,
        positions: np.ndarray,
        trials: Sequence[Trial],
        stop: Stop,
        progress: Progress,
    ) -> bool:
        """Run trials, and give each what was found; return whether all came to their ends before a request to stop.

        `positions` (N, 3) in Å, of the whole model; `stop` ends all of it at once. Raises SimulationError if a trial fails for
        another reason than that its conformations are impossible.
        """
        if sum(trial.size for trial in trials) > _LITTLE:
            self.start()
        pool, is_done = self._pool, False
        if pool is None or not trials:
            return _in_turn(tools, positions, trials, stop, progress)
        try:
            is_done = self._run_beside(pool, tools, positions, trials, stop, progress)
        except NoAnswer as error:
            if pool.has_begun:
                raise SimulationError(f"a part of the model could not be rebuilt: {error}") from None
            self.count = 1
        finally:
            if not is_done:
                self.close()
        return is_done or (self.count == 1 and _in_turn(tools, positions, trials, stop, progress))

    def _run_beside(
        self,
        pool: WorkerPool,
        tools: TrialTools,
        positions: np.ndarray,
        trials: Sequence[Trial],
        stop: Stop,
        progress: Progress,
    ) -> bool:
        """Run trials in processes, those first that take longest; return whether there was no request to stop before."""
        places = SharedArgument(positions, is_packed_once=True)
        shared = self._shared(tools), places
        order = sorted(range(len(trials)), key=lambda number: -trials[number].size)
        # Where there are few, the longest would hold up all: each waits in a thread for the parts of it.
        divided = [each.is_divisible and len(trials) < _TRIALS_PER_WORKER * self.count for each in trials]
        threads = ThreadPoolExecutor(max(sum(divided), 1))
        waiting: dict[Future[Any], int] = {}
        for number in order:
            trial = trials[number]
            if divided[number]:
                place = _DividedPlace(tools, positions, trial.region, partial(pool.begin, _part_of, *shared))
                waiting[threads.submit(trial.run, place)] = number
            else:
                waiting[pool.begin(_found, *shared, trial)] = number
        try:
            while waiting:
                if stop.requested:
                    return False
                for future in wait(waiting, _LOOK, FIRST_COMPLETED).done:
                    number = waiting.pop(future)
                    trials[number].take(future.result())
                    progress(number)
        except CancelledError:  # another search was asked to stop
            return False
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        pool.forget(places)
        return True

    def _shared(self, tools: TrialTools) -> SharedArgument:
        """Return the tools, tens of megabytes, as those of many runs."""
        with self._lock:
            if self._tools is None or self._tools.value is not tools:
                self._tools = SharedArgument(tools, is_packed_once=True)
            return self._tools


class _DividedPlace(TrialPlace):
    """A place whose conformations are shared out among processes.

    `begin`: has one of them do what `_part_of` does.
    """

    def __init__(
        self,
        tools: TrialTools,
        positions: np.ndarray,
        region: np.ndarray,
        begin: Callable[..., Future[list[Built]]],
    ) -> None:
        super().__init__(tools, positions, region)
        self._begin = begin

    def _each(self, what: str, items: Sequence[Any], at_once: int, *how: Any) -> list[Built]:
        parts = [items[first : first + at_once] for first in range(0, len(items), at_once)]
        under_way = [self._begin(self._region, what, part, *how) for part in parts]
        return [built for each in under_way for built in each.result()]

    def each_minimized(
        self, conformations: Sequence[np.ndarray], iterations: int = MINIMIZATION, soft: bool = False
    ) -> list[Built]:
        return self._each("each_minimized", conformations, AT_ONCE, iterations, soft)

    def minimized(self, places: np.ndarray, iterations: int = MINIMIZATION, soft: bool = False) -> Built:
        (built,) = self.each_minimized([places], iterations, soft)
        return built

    def turned(self, conformations: Sequence[np.ndarray], iterations: int = MINIMIZATION) -> list[Built]:
        return self._each("turned", conformations, AT_ONCE, iterations)

    def each_annealed(self, starts: Sequence[tuple[np.ndarray, int]], steps: int) -> list[Built]:
        return self._each("each_annealed", starts, 1, steps)


def _in_turn(
    tools: TrialTools,
    positions: np.ndarray,
    trials: Sequence[Trial],
    stop: Stop,
    progress: Progress,
) -> bool:
    for number, trial in enumerate(trials):
        if stop.requested:
            return False
        trial.take(trial.run(TrialPlace(tools, positions, trial.region)))
        progress(number)
    return True


# In a process: the places that it had parts of last, by model and residues.
_places: dict[tuple[int, bytes], TrialPlace] = {}


def _part_of(
    tools: TrialTools,
    positions: np.ndarray,
    region: np.ndarray,
    what: str,
    items: Sequence[Any],
    *how: Any,
) -> list[Built]:
    """Do a part of a trial, in a process."""
    key = id(positions), region.tobytes()
    place = _places.pop(key, None) or TrialPlace(tools, positions, region)
    _places[key] = place  # as the last one
    for old in list(_places)[:-_MOST_PLACES]:
        del _places[old]
    return getattr(place, what)(items, *how)


def _found(tools: TrialTools, positions: np.ndarray, trial: Trial) -> Any:
    """Return what a trial finds, in a process."""
    return trial.run(TrialPlace(tools, positions, trial.region))
