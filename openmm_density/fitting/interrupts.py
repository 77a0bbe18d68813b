"""Ctrl-C and a batch system's SIGTERM, noted while native code runs and acted on between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import openmm

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Note SIGINT and SIGTERM in place of raising an exception, as a context manager.

    Python's own KeyboardInterrupt surfaces wherever Python code runs next, which may be a callback deep inside a simulation
    step, from where it cannot get out. The first signal is noted only; a second ends the process, as nothing answers it.
    Signal handlers belong to the main thread: in another thread nothing is noted.

    Attributes
    ----------
    requested : bool
        Whether a signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            # An ignored signal stays ignored: so a shell shields what it runs in the background.
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # A handler that was not set from Python is None, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for each in self._previous:
            signal.signal(each, signal.SIG_DFL)


class StoppableMinimization(openmm.MinimizationReporter):
    """End a minimisation after the iteration in which the request to stop came."""

    def __init__(self, stop: StopRequest) -> None:
        super().__init__()
        self._stop = stop

    def report(self, iteration: int, x: object, grad: object, args: object) -> bool:
        """Tell the minimiser whether to end."""
        return self._stop.requested
