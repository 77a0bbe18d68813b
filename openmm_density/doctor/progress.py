"""What is going on while a machine is examined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Doing:
    """What is going on now, of several things at once.

    Parameters
    ----------
    say : callable
        Called, from any thread, with all that is going on, whenever something begins or ends.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._things: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, thing: str) -> Iterator[None]:
        """Report that this is going on, until the ``with`` ends."""
        with self._lock:
            self._things.append(thing)
            self._say("; ".join(self._things))
        try:
            yield
        finally:
            with self._lock:
                self._things.remove(thing)
                self._say("; ".join(self._things))
