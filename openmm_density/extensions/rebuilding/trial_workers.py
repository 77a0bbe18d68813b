"""Processes that run trials, kept for a whole fit: Python code of several threads would wait for each other.

A worker is an interpreter of its own that imports nothing of the program around the fit, and is told what to do through a pipe.
What comes out does not depend on how many there are, as trials do not depend on each other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from ...base.errors import SimulationError
from ...fitting.interrupts import Stop
from ...fitting.worker_process import SharedArgument, WorkerProcess, available_cores, kill_all
from .stretch_trial import Trial, TrialPlace, TrialTools

MOST_WORKERS = 32
"""More than these wait for each other's places."""
RESIDUES_OF_A_WORKER = 8
"""With fewer residues for each worker, a model has fewer places that may be off than workers."""

# Seconds between two looks whether to stop, and after which a first process should have loaded what it needs.
_LOOK, _START = 0.2, 120.0
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
        self._workers: list[_Worker] = []
        self._tools: SharedArgument | None = None

    def start(self) -> None:
        """Start the processes, which then load what they need while this one goes on."""
        if self.count == 1 or self._workers:
            return
        try:
            for _ in range(self.count):
                self._workers.append(_Worker())
        except OSError:  # no more processes are allowed here
            self.count = max(len(self._workers), 1)

    def close(self) -> None:
        """End the processes at once."""
        kill_all(self._workers)
        self._workers, self._tools = [], None

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

        Parameters
        ----------
        tools : TrialTools
        positions : np.ndarray, shape (N, 3)
            Å, of the whole model.
        trials : sequence of Trial
        stop : StopRequest or Deadline
            Ends all of it at once.
        progress : callable
            See `Progress`.

        Raises
        ------
        SimulationError
            If a trial fails for another reason than that its conformations are impossible.
        """
        if sum(trial.size for trial in trials) > _LITTLE:
            self.start()
        if not self._workers or not trials:
            return _in_turn(tools, positions, trials, stop, progress)
        with self._ended_by_errors():
            try:
                if _Scheduler(self._workers, self._shared(tools), positions, trials).run(stop, progress):
                    return True
            except _NotStarted:
                self.close()
                self.count = 1
                return _in_turn(tools, positions, trials, stop, progress)
            self.close()
            return False

    def _shared(self, tools: TrialTools) -> SharedArgument:
        """Return the tools, tens of megabytes, as those of many runs."""
        if self._tools is None or self._tools.value is not tools:
            self._tools = SharedArgument(tools, is_packed_once=True)
        return self._tools

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


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


class _NotStarted(Exception):
    """No process could load what it needs, as in a program that Python is embedded in."""


class _Scheduler:
    """Hand out trials, those first that take longest."""

    def __init__(
        self,
        workers: list[_Worker],
        tools: SharedArgument,
        positions: np.ndarray,
        trials: Sequence[Trial],
    ) -> None:
        self._workers, self._trials, self._tools = workers, trials, tools
        self._any_started = any(worker.is_idle for worker in workers)
        self._waiting = deque(sorted(range(len(trials)), key=lambda number: -trials[number].size))
        self._ended: list[int] = []
        self._positions = SharedArgument(positions, is_packed_once=True)

    def run(self, stop: Stop, progress: Progress) -> bool:
        self._hand_out()
        started = time.monotonic()
        told = 0
        while True:
            for trial in self._ended[told:]:
                progress(trial)
            told = len(self._ended)
            if told == len(self._trials):
                return True
            if stop.requested:
                return False
            if not self._any_started and time.monotonic() - started > _START:
                raise _NotStarted
            if not self._workers:
                if not self._any_started:
                    raise _NotStarted
                raise SimulationError(
                    "the processes that search for better places ended, as where memory runs out: use fewer threads, or no search"
                )
            speaking = {worker.connection: worker for worker in self._workers if not worker.is_idle}
            for connection in wait(list(speaking), _LOOK):
                self._hear(speaking[connection])
            self._hand_out()

    def _hear(self, worker: _Worker) -> None:
        trial = worker.trial
        try:
            found = worker.answer()
        except (EOFError, OSError):  # it was ended, as by want of memory: another one does it
            self._workers.remove(worker)
            worker.kill()
            if trial is not None:
                self._waiting.appendleft(trial)
            return
        if trial is None:  # it has loaded what it needs
            self._any_started = True
            return
        returned, result = found
        if not returned:
            raise SimulationError(f"a part of the model could not be rebuilt: {result}")
        self._trials[trial].take(result)
        self._ended.append(trial)

    def _hand_out(self) -> None:
        for worker in [each for each in self._workers if each.is_idle]:
            if not self._waiting:
                return
            number = self._waiting.popleft()
            worker.begin(number, self._trials[number], self._tools, self._positions)


class _Worker(WorkerProcess):
    """One process, and the number of the trial that it runs."""

    def __init__(self) -> None:
        super().__init__(__name__)
        self.trial: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a trial."""
        return self.is_ready and self.trial is None

    def begin(self, number: int, trial: Trial, tools: SharedArgument, positions: SharedArgument) -> None:
        """Send a trial; a process that has ended is found out when it is heard."""
        self.trial = number
        with suppress(OSError):
            self.forget_others(tools, positions)
            self.send(_found, tools, positions, trial)

    def answer(self) -> Any:
        """Return what became of the trial."""
        found = super().answer()
        self.trial = None
        return found


def _found(tools: TrialTools, positions: np.ndarray, trial: Trial) -> Any:
    """Return what a trial finds, in a process."""
    return trial.run(TrialPlace(tools, positions, trial.region))
