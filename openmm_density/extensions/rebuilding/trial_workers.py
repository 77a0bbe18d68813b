"""Processes that run trials, kept for a whole fit: Python code of several threads would wait for each other.

What comes out does not depend on how many there are, as trials do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import numpy as np

from ...base.errors import SimulationError
from ...fitting.interrupts import Stop
from ...fitting.worker_process import NoAnswer, SharedArgument, WorkerPool, available_cores
from .stretch_trial import Trial, TrialPlace, TrialTools

MOST_WORKERS = 32
"""More than these wait for each other's places."""
RESIDUES_OF_A_WORKER = 8
"""With fewer residues for each worker, a model has fewer places that may be off than workers."""

# Seconds between two looks whether to stop.
_LOOK = 0.2
# Atoms times conformations that take as long as a process takes to load.
_LITTLE = 3000

Progress = Callable[[int], None]
"""Called with the number of a trial that has come to its end."""


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

    def start(self) -> None:
        """Start the processes, which then load what they need while this one goes on."""
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
        if self._pool is None or not trials:
            return _in_turn(tools, positions, trials, stop, progress)
        pool, is_done = self._pool, False
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
        waiting = {pool.begin(_found, *shared, trials[number]): number for number in order}
        while waiting:
            if stop.requested:
                return False
            for future in wait(waiting, _LOOK, FIRST_COMPLETED).done:
                number = waiting.pop(future)
                trials[number].take(future.result())
                progress(number)
        pool.forget(places)
        return True

    def _shared(self, tools: TrialTools) -> SharedArgument:
        """Return the tools, tens of megabytes, as those of many runs."""
        if self._tools is None or self._tools.value is not tools:
            self._tools = SharedArgument(tools, is_packed_once=True)
        return self._tools


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


def _found(tools: TrialTools, positions: np.ndarray, trial: Trial) -> Any:
    """Return what a trial finds, in a process."""
    return trial.run(TrialPlace(tools, positions, trial.region))
