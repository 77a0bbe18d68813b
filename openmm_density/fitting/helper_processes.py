"""What a fit need not wait for, done beside it by processes of its own: most cores have nothing to do where steps run on a GPU.

Reports, files and pictures come out as if the fit had made them itself, and where there are no processes, or one ends, it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .worker_process import NoAnswer, SharedArgument, WorkerPool, available_cores

if TYPE_CHECKING:
    from ..maps.density_map import DensityMap

MOST_PROCESSES = 6
"""There is no more to do beside a fit."""
LARGEST_MAP = 1 << 28
"""Bytes; each process would hold a map of its own."""
MANY_ATOMS = 50_000
"""What is asked of the fitted model takes longer for so many than processes take to start."""

MODULES = (
    "openmm_density.validation.model_report",
    "openmm_density.fitting.map_examination",
    "openmm_density.report.overview",
)
"""What has the functions that are called, loaded while the fit is prepared, and named here as nothing imports it before."""

_ON_CPU = "CPU", "Reference"
# Where Linux shows a GPU that CUDA may run on, and where Windows does in its Linux.
_NVIDIA = "/dev/nvidiactl", "/dev/dxg"
# What `begin_ahead` started, until a fit takes it.
_ahead: list[WorkerPool] = []

_Result = TypeVar("_Result")


class HelperResult(Generic[_Result]):
    """What a call returns, once it has."""

    def __init__(self, call: Callable[[], _Result], future: Future[_Result] | None = None) -> None:
        self._call, self._future = call, future
        self._found: list[_Result] = []

    @property
    def is_done(self) -> bool:
        """Whether nothing is waited for; a call that nobody makes beside the fit is made when its result is asked for."""
        return self._future is None or self._future.done()

    def result(self) -> _Result:
        """Return the result, when it is there."""
        if not self._found:
            self._found.append(self._call() if self._future is None else self._answer())
        return self._found[0]

    def _answer(self) -> _Result:
        assert self._future is not None
        if self._future.cancel():  # every process has something else to do yet, and here would be waiting
            return self._call()
        try:
            return self._future.result()
        except (NoAnswer, CancelledError):
            return self._call()


class HelperProcesses:
    """Call functions in so many processes; with none, here, when what they return is asked for."""

    def __init__(self, count: int = 0) -> None:
        self._shared: dict[int, SharedArgument] = {}
        self._begun: dict[tuple[Callable[..., Any], Hashable], HelperResult[Any]] = {}
        self._pool: WorkerPool | None = None
        self._start(count)

    @classmethod
    def of_fit(cls, platform: str, threads: int | None, density_map: DensityMap) -> HelperProcesses:
        """Return what a fit has beside it: processes where its steps run on a GPU, and cores are there and allowed."""
        count = 0 if platform in _ON_CPU else _count(threads, density_map)
        if not count:
            end_ahead()
        return cls(count)

    def begin_after_steps(self, n_atoms: int, threads: int | None, density_map: DensityMap) -> None:
        """Have processes, where there are none yet, for what is asked of a model of many atoms when all steps are done."""
        if self._pool is None and n_atoms >= MANY_ATOMS:
            self._start(_count(threads, density_map))

    def _start(self, count: int) -> None:
        self._pool = None
        if count:
            is_ahead = bool(_ahead) and len(_ahead[0].workers) == count
            pool = _ahead.pop() if is_ahead else WorkerPool(count, *MODULES)
            end_ahead()
            self._pool = pool if pool.workers else None

    @property
    def has_processes(self) -> bool:
        """Whether anything is done beside the fit."""
        return self._pool is not None

    def shared(self, value: Any) -> SharedArgument:
        """Return an argument of many calls, the same for the same object."""
        if id(value) not in self._shared:
            from openmm import app

            # Of a large complex it takes a second, in which nothing else runs.
            self._shared[id(value)] = SharedArgument(value, is_packed_once=isinstance(value, app.Topology))
        return self._shared[id(value)]

    def begin(self, function: Callable[..., _Result], *arguments: Any) -> HelperResult[_Result]:
        """Call a function beside the fit."""

        def call() -> _Result:
            return function(*(each.value if isinstance(each, SharedArgument) else each for each in arguments))

        if self._pool is None:
            return HelperResult(call)
        return HelperResult(call, self._pool.begin(function, *arguments))

    def once(self, key: Hashable, function: Callable[..., _Result], *arguments: Any) -> HelperResult[_Result]:
        """Call a function beside the fit, once for what a key tells of its arguments."""
        if (function, key) not in self._begun:
            self._begun[function, key] = self.begin(function, *arguments)
        return self._begun[function, key]

    @contextmanager
    def ended_by_errors(self) -> Iterator[None]:
        """End the processes where what is done meanwhile raises: the interpreter's exit would wait for all that was begun."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the processes at once; what they have not answered is done here, where it is asked for."""
        if self._pool is not None:
            self._pool.end()
            self._pool = None


def begin_ahead(platform: str | None, threads: int | None) -> None:
    """Start the processes of the fit that a command will make, where steps may run on a GPU: they load what they need meanwhile.

    `platform`: the one asked for, if one was.
    """
    may_be_gpu = any(map(os.path.exists, _NVIDIA)) if platform is None else platform not in _ON_CPU
    if may_be_gpu and not _ahead and (count := _count(threads)):
        _ahead.append(WorkerPool(count, *MODULES))


def end_ahead() -> None:
    """End what was started ahead of a fit that does not use it."""
    while _ahead:
        _ahead.pop().end()


def _count(threads: int | None, density_map: DensityMap | None = None) -> int:
    """Return how many processes cores are there and allowed for, beside the fit's own."""
    if density_map is not None and density_map.data.nbytes > LARGEST_MAP:
        return 0
    cores = available_cores()
    return max(min(threads or cores, cores, MOST_PROCESSES + 1) - 1, 0)
