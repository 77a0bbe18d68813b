"""Ctrl-C and a batch system's SIGTERM, noted while native code runs and acted on between two steps."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from .end_within import AGAIN, GRACE, SIGNALS, listen

# As a shell has it for a process that a signal ended.
_ENDED_BY_SIGNAL = 128


class Interrupted(Exception):
    """A signal has ended a fit, whose state is saved."""


class Stop(Protocol):
    """What a long computation looks at now and then, whether to end early."""

    @property
    def requested(self) -> bool:
        """Whether it should."""


class Deadline:
    """A request to stop that comes by itself. `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def requested(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end


class StopRequest:
    """Note SIGINT and SIGTERM in place of raising an exception, as a context manager.

    Python's own KeyboardInterrupt surfaces wherever Python code runs next, which may be a callback deep inside a simulation
    step, from where it cannot get out. The first signal is noted only; a second ends the process, as nothing answers it. What
    comes within `AGAIN` seconds is one: ``timeout`` and batch systems signal the process and its group. Signal handlers
    belong to the main thread: in another thread nothing is noted. `heard`: called once, in a thread of its own, when the first
    signal comes, also while native code runs; `on_end`: called there when a second one comes, before it ends the process.
    Attributes: `requested`: whether a signal has come; `by_user`: whether it was SIGINT, as of Ctrl-C.
    """

    def __init__(
        self, heard: Callable[[], None] | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        self.requested = self.by_user = self._raises = False
        self._noted = 0.0
        self._heard, self._on_end = [heard] if heard is not None else [], on_end
        self._previous: dict[int, object] = {}
        self._outlet = self._previous_outlet = -1

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            # An ignored signal stays ignored: so a shell shields what it runs in the background.
            heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            # Python calls handlers when native code returns, which may take seconds; to this pipe it writes at once.
            inlet, self._outlet = os.pipe()
            os.set_blocking(self._outlet, False)
            self._previous_outlet = listen(self._outlet)
            threading.Thread(target=self._listen, args=(inlet,), daemon=True).start()
            self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        if self.requested:
            self._tell()  # where it is over before the thread below has heard of it
        for number, handler in self._previous.items():
            # A handler that was not set from Python is None, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._outlet >= 0:
            listen(self._previous_outlet)
            os.close(self._outlet)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise KeyboardInterrupt at once, where there is nothing to save and no native code calls Python back."""
        if self.requested:
            raise KeyboardInterrupt
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self._noted, self.by_user = time.monotonic(), number == signal.SIGINT
        elif time.monotonic() - self._noted > AGAIN:
            # Should nobody listen any more, a third one ends the process.
            for each in self._previous:
                signal.signal(each, signal.SIG_DFL)
        self.requested = True
        if self._raises:
            # Once: a process and its group are often both signalled.
            self._raises = False
            raise KeyboardInterrupt

    def _listen(self, inlet: int) -> None:
        """Read the numbers of signals until the other end is closed."""
        with os.fdopen(inlet, "rb", buffering=0) as numbers:
            come, first = 0, 0.0
            while number := numbers.read(1):
                if number[0] not in self._previous:
                    if self._previous_outlet >= 0:  # of an event loop, which waits for signals of its own
                        os.write(self._previous_outlet, number)
                    continue
                come += 1
                if come == 1:
                    first = time.monotonic()
                elif time.monotonic() - first > AGAIN:
                    if self._on_end is not None:
                        with suppress(Exception):  # whatever it cannot tell, the process ends
                            self._on_end()
                    os._exit(_ENDED_BY_SIGNAL + number[0])
                self._tell()

    def _tell(self) -> None:
        """Call who wants to hear of the first signal, once."""
        with suppress(Exception):  # told already, or its terminal is gone
            self._heard.pop()()


class PromptExit:
    """See to it that SIGINT and SIGTERM end the process soon where there is nothing to save, as a context manager.

    They raise KeyboardInterrupt, as Python and the command line have it. Where native code holds that back, or takes it in a
    callback, the process is ended after `GRACE` seconds. `on_end`: called before that, in a thread of its own.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._left = threading.Event()
        self._outlet = self._previous_outlet = -1

    def __enter__(self) -> PromptExit:
        if threading.current_thread() is threading.main_thread():
            inlet, self._outlet = os.pipe()
            os.set_blocking(self._outlet, False)
            self._previous_outlet = listen(self._outlet)
            threading.Thread(target=self._listen, args=(inlet,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._outlet >= 0:
            listen(self._previous_outlet)
            os.close(self._outlet)

    def _listen(self, inlet: int) -> None:
        with os.fdopen(inlet, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] not in SIGNALS:
                    if self._previous_outlet >= 0:
                        os.write(self._previous_outlet, number)
                    continue
                if not self._left.wait(GRACE):
                    with suppress(Exception):
                        self._on_end()
                    os._exit(_ENDED_BY_SIGNAL + number[0])
