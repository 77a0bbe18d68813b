"""Processes that do the tasks of trials, kept for a whole fit: Python code of several threads would wait for each other.

A worker is an interpreter of its own that imports nothing of the program around the fit, and is told what to do through a pipe.
What comes out does not depend on how many there are: tasks are independent, and results are sorted by task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import SimulationError
from ..interrupts import Stop
from ..worker_process import SharedArgument, WorkerProcess, available_cores, kill_all
from .stretch_trial import PLACES_KEPT, Built, StretchTrial, Task, TrialPlace, TrialTools

MOST_WORKERS = 32
"""More than these wait for each other's places."""
RESIDUES_OF_A_WORKER = 8
"""With fewer residues for each worker, a model has fewer places that may be off than workers."""

# Seconds between two looks whether to stop, and after which a first process should have loaded what it needs.
_LOOK, _START = 0.2, 120.0

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

    @property
    def are_running(self) -> bool:
        """Whether the processes were started."""
        return bool(self._workers)

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
        trials: Sequence[StretchTrial],
        stop: Stop,
        progress: Progress,
    ) -> bool:
        """Run the courses of trials to their ends; return whether they came there before a request to stop.

        `positions` (N, 3) in Å, of the whole model; `stop`: ends all of it at once; `progress`: see `Progress`. Raises
        SimulationError if a task fails for another reason than that its conformations are impossible.
        """
        if trials:
            self.start()
        if self.count == 1 or not trials:
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
    trials: Sequence[StretchTrial],
    stop: Stop,
    progress: Progress,
) -> bool:
    for number, trial in enumerate(trials):
        if stop.requested:
            return False
        place = TrialPlace(tools, positions, trial.region)
        course = trial.course()
        with suppress(StopIteration):
            tasks = next(course)
            while True:
                results = []
                for task in tasks:
                    if stop.requested:
                        return False
                    results.append(place.do(task))
                tasks = course.send(results)
        progress(number)
    return True


class _NotStarted(Exception):
    """No process could load what it needs, as in a program that Python is embedded in."""


class _Job(NamedTuple):
    """A task of a trial, and its place among those of one step of the trial's course."""

    trial: int
    number: int
    task: Task


class _Course:
    """How far the course of a trial has come."""

    def __init__(self, trial: StretchTrial) -> None:
        self._generator: Generator[list[Task], list[list[Built]], None] = trial.course()
        self._results: list[Any] = []
        self._missing = 0

    def begin(self) -> list[Task] | None:
        """Return the first tasks, and None where the course ends without any."""
        return self._after(None)

    def take(self, number: int, result: list[Built]) -> list[Task] | None:
        """Take a result; return what follows from it, if anything does yet, and None at the end of the course."""
        self._results[number] = result
        self._missing -= 1
        return [] if self._missing else self._after(self._results)

    def _after(self, results: Any) -> list[Task] | None:
        """Return the next tasks: a step without any, as where no conformation could be built, has its results at once."""
        tasks: list[Task] = []
        try:
            while not tasks:
                tasks = self._generator.send(results)
                results = []
        except StopIteration:
            return None
        self._results, self._missing = [None] * len(tasks), len(tasks)
        return tasks


class _Scheduler:
    """Hand out the tasks of trials, large ones first, where possible to a worker that already has the System of the place."""

    def __init__(
        self,
        workers: list[_Worker],
        tools: SharedArgument,
        positions: np.ndarray,
        trials: Sequence[StretchTrial],
    ) -> None:
        self._workers, self._trials = workers, trials
        self._any_started = any(worker.is_idle for worker in workers)
        self._courses = [_Course(trial) for trial in trials]
        self._order = sorted(range(len(trials)), key=lambda number: -trials[number].size)
        self._waiting: list[deque[_Job]] = [deque() for _ in trials]
        self._ended: list[int] = []
        for number, course in enumerate(self._courses):
            self._go_on(number, course.begin())
        self._tools = tools
        self._model = SharedArgument((positions, [trial.region for trial in trials]), is_packed_once=True)
        for worker in workers:
            worker.trials.clear()

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
        job = worker.job
        try:
            found = worker.answer()
        except (EOFError, OSError):  # it was ended, as by want of memory: another one does it
            self._workers.remove(worker)
            worker.kill()
            if job is not None:
                self._waiting[job.trial].appendleft(job)
            return
        if job is None:  # it has loaded what it needs
            self._any_started = True
            return
        returned, results = found
        if not returned:
            raise SimulationError(f"a part of the model could not be rebuilt: {results}")
        self._go_on(job.trial, self._courses[job.trial].take(job.number, results))

    def _go_on(self, trial: int, tasks: list[Task] | None) -> None:
        """Line up what follows in the course of a trial, or note that it has ended."""
        if tasks is None:
            self._ended.append(trial)
        else:
            self._waiting[trial].extend(_Job(trial, number, task) for number, task in enumerate(tasks))

    def _hand_out(self) -> None:
        for worker in [each for each in self._workers if each.is_idle]:
            waiting = [number for number in self._order if self._waiting[number]]
            if not waiting:
                return
            worker.begin(self._waiting[self._chosen(worker, waiting)].popleft(), self._tools, self._model)

    def _chosen(self, worker: _Worker, waiting: list[int]) -> int:
        """Choose a trial: one that the worker has the System of, else one that nobody has, else that with most to do."""
        own = [number for number in waiting if number in worker.trials]
        if own:
            return own[0]
        new = [number for number in waiting if not any(number in each.trials for each in self._workers)]
        if new:
            return new[0]
        return max(waiting, key=lambda number: len(self._waiting[number]))


class _Worker(WorkerProcess):
    """One process, what it does, and the trials whose Systems it has."""

    def __init__(self) -> None:
        super().__init__(__name__)
        self.job: _Job | None = None
        self.trials: deque[int] = deque(maxlen=PLACES_KEPT)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job."""
        return self.is_ready and self.job is None

    def begin(self, job: _Job, tools: SharedArgument, model: SharedArgument) -> None:
        """Send a job; a process that has ended is found out when it is heard."""
        self.job = job
        if job.trial not in self.trials:
            self.trials.append(job.trial)
        with suppress(OSError):
            self.forget_others(tools, model)
            self.send(_do_task, tools, model, job.trial, job.task)

    def answer(self) -> Any:
        """Return what became of the job."""
        found = super().answer()
        self.job = None
        return found


class _Places(NamedTuple):
    """In a process: a model, and the Systems of its places that it has."""

    model: Any
    places: dict[int, TrialPlace]


_had = _Places(None, {})


def _do_task(
    tools: TrialTools, model: tuple[np.ndarray, list[np.ndarray]], number: int, task: Task
) -> list[Built]:
    """Return the results of a task, in a process."""
    global _had
    if _had.model is not model:
        _had = _Places(model, {})
    places, (positions, regions) = _had.places, model
    if number not in places:
        while len(places) >= PLACES_KEPT:  # the one that came first, as the other side has it
            del places[next(iter(places))]
        places[number] = TrialPlace(tools, positions, regions[number])
    return places[number].do(task)
