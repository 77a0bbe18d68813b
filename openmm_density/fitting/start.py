"""What a fit starts from: its model examined in the map, and prepared, which needs the map only where the model is moved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from ..base.stopwatch import Stopwatch
from ..models.preparation import Prepared
from ..models.structures import Model
from .map_examination import Examination

# Seconds after which a thread of Python code lets another one go on: with Python's 5 ms, one that calls much that is short and
# runs without the interpreter, as Fourier transforms do, would mostly wait.
_SWITCH_INTERVAL = 0.0002


class Start(NamedTuple):
    """What a fit starts from."""

    examination: Examination  # Of the model where it starts
    solute: Prepared  # It with what it lacked
    prepared: Prepared  # The same in its solvent


def examined_and_prepared(
    expected: Model | None,
    examine: Callable[[], Examination],
    prepare: Callable[[Model], tuple[Prepared, Prepared]],
    stopwatch: Stopwatch,
) -> Start:
    """Return a model examined and prepared, in two threads where it is known (`expected`) what `examine` will return."""
    if expected is None:
        with stopwatch.part("placement"):
            examination = examine()
        return Start(examination, *prepare(examination.model))
    prepared, problem = None, None
    with _beside(examine) as examined:
        try:
            prepared = prepare(expected)
        except Exception as error:
            # It counts only if nothing is wrong with model and map.
            problem = error
        with stopwatch.part("placement"):
            examination = examined()
    if examination.placement is not None:
        return Start(examination, *prepare(examination.model))
    if problem is not None:
        raise problem
    assert prepared is not None
    return Start(examination, *prepared)


@contextmanager
def _beside(function: Callable[[], Examination]) -> Iterator[Callable[[], Examination]]:
    """Call a function in a thread; yield what waits for it and returns what it returns."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit(function).result
    finally:
        pool.shutdown(wait=False)
        sys.setswitchinterval(interval)
