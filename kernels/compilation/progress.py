"""What is being compiled, shown where somebody watches: without it a first use seems to hang."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from openmm_density.progress import console_for_progress


class _Builds:
    """The bars of all threads that compile, from the first build to the end of the last that runs beside it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_running = 0
        self._bars: Any = None

    @contextmanager
    def shown(self, title: str) -> Iterator[None]:
        with self._lock:
            if not self._n_running:
                self._bars = _bars()
            self._n_running += 1
            bars, said = self._bars, "openmm-density: compiling the {} for this processor, once"
            task = bars.add_task(said.format(title), total=None)
        try:
            yield
            bars.update(task, description=f"openmm-density: compiled the {title}", total=1, completed=1)
        except BaseException:
            bars.remove_task(task)
            raise
        finally:
            with self._lock:
                self._n_running -= 1
                if not self._n_running:
                    with suppress(OSError, ValueError):  # a terminal that was closed
                        bars.stop()


def _bars() -> Any:
    """Return what shows builds: nothing where lines cannot be drawn anew, in a notebook or beside a progress bar of rich."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_drawn = is_terminal and not hasattr(sys.stderr, "rich_proxied_file")
    columns = TextColumn("{task.description}"), TimeElapsedColumn()
    bars = Progress(*columns, console=console_for_progress(), disable=not is_drawn)
    with suppress(OSError, ValueError):  # a terminal that was closed
        bars.start()
        if not is_drawn and (is_terminal or "ipykernel" in sys.modules):
            print("openmm-density: compiling kernels for this processor, once (10 to 30 s)", file=sys.stderr)
    return bars


_builds = _Builds()


def _begin_anew() -> None:
    global _builds
    _builds = _Builds()


os.register_at_fork(after_in_child=_begin_anew)


def shown(title: str) -> Any:
    """Say that something is being compiled while this lasts, where somebody watches: in a terminal or a notebook."""
    return _builds.shown(title)
