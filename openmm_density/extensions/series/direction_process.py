"""The two directions of a series in two processes, each a program that reads what to do from the folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ...base.errors import InputError, SimulationError
from ...base.multi_process_service import VISIBLE, Say, shared_gpu
from ...base.program_process import begin_program
from ...fitting.interrupts import Interrupted, StopRequest
from .frame_fit import FrameFits, fit_frames
from .settings import SeriesSettings, SeriesStart
from .steps import DIRECTIONS

INTERRUPTED = 130
# Seconds that a fit has to save its state.
_PATIENCE = 120.0
_POLLED_AFTER = 0.2
_STDIN = 0


class DirectionProcess:
    """A process that carries out one direction.

    `folder` of the series, whose first volume is fitted; `direction` {"up", "down"}; `told`: called in a thread of its
    own with each message: ``frame``, ``source``, ``cc``, and ``step``, ``steps`` and ``doing``, or ``finished`` and
    ``cc_free``; `environment`: what differs for it.
    """

    def __init__(
        self,
        folder: Path,
        direction: str,
        threads: int,
        told: Callable[[dict[str, Any]], None],
        environment: Mapping[str, str],
    ) -> None:
        self.direction, self._told = direction, told
        self._failure: dict[str, Any] | None = None
        self._warnings: deque[str] = deque()
        self._is_asked_to_stop = False
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        words = [str(folder), direction, str(threads)]
        self._process = begin_program(__name__, words, environment, **streams)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with suppress(ValueError):
                message = json.loads(line)
                if "error" in message:
                    self._failure = message
                elif "warning" in message:
                    self._warnings.append(message["warning"])
                else:
                    self._told(message)

    def warn(self) -> None:
        """Warn of what it has warned of since the last call."""
        while self._warnings:
            warnings.warn(self._warnings.popleft(), stacklevel=2)

    def stop(self) -> None:
        """Ask it, once, to save the state of its fit and end: a second signal would interrupt the saving."""
        if self._is_asked_to_stop:
            return
        self._is_asked_to_stop = True
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def is_running(self) -> bool:
        """Return whether it is."""
        return self._process.poll() is None

    def has_failed(self) -> bool:
        """Return whether it has ended before its work."""
        return not self.is_running() and self.wait() != 0

    def wait(self) -> int:
        """Return its exit status when it has ended."""
        status = self._process.wait()
        self._reader.join()
        return status

    def end(self) -> None:
        """See that it ends: by itself, with its state saved, or else at once."""
        if not self.is_running():
            return
        self.stop()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def check(self) -> None:
        """Raise what has ended it."""
        status = self.wait()
        # Before its fits begin nothing notes a signal: there is nothing to save.
        if status in (0, INTERRUPTED) or (self._is_asked_to_stop and status == -signal.SIGTERM):
            return
        said = self._failure or {
            "error": f"the process of the direction {self.direction} ended with status {status}"
        }
        raise (InputError if said.get("kind") == "input" else SimulationError)(said["error"])


@contextmanager
def _gpus(mps: str, say: Say) -> Iterator[list[dict[str, str]]]:
    """Yield what differs for each direction: it has one of several GPUs, and of one GPU both have a part."""
    named = os.environ.get(VISIBLE)
    cards = [str(card) for card in range(torch.cuda.device_count())] if named is None else named.split(",")
    if len(cards) == 1 and mps == "auto" and torch.cuda.is_available():
        with shared_gpu(cards[0], say) as environment:
            yield [environment] * len(DIRECTIONS)
    elif len(cards) > 1:
        yield [{VISIBLE: card} for card, _ in zip(cards, DIRECTIONS)]
    else:
        yield [{}] * len(DIRECTIONS)


def carry_out_beside(
    folder: Path, threads: int, told: Callable[[dict[str, Any]], None], mps: str = "off", say: Say = print
) -> None:
    """Carry out both directions of a series side by side, each in a process of its own."""
    with _gpus(mps, say) as environments, StopRequest() as stop:
        processes = [
            DirectionProcess(folder, direction, threads, told, environment)
            for direction, environment in zip(DIRECTIONS, environments)
        ]
        _wait_for(processes, stop)


def _wait_for(processes: Sequence[DirectionProcess], stop: StopRequest) -> None:
    """Wait until all have ended, or end them where one has failed or a signal came."""
    try:
        while any(process.is_running() for process in processes) and not stop.requested:
            if any(process.has_failed() for process in processes):
                break
            for process in processes:
                process.warn()
            time.sleep(_POLLED_AFTER)
    finally:
        for process in processes:
            process.stop()
        for process in processes:
            process.end()
    for process in processes:
        process.check()
        process.warn()
    if any(process.wait() for process in processes):
        raise Interrupted


def main() -> None:
    """Carry out the direction that the arguments name."""
    folder, direction, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tell_of_warnings()
    status = 0
    try:
        _carried_out(folder, direction, threads)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (InputError, SimulationError) as error:
        _say({"error": str(error), "kind": "input" if isinstance(error, InputError) else "simulation"})
        status = 1
    sys.stdout.flush()
    sys.exit(status)


def _carried_out(folder: Path, direction: str, threads: int) -> None:
    start = SeriesStart.read(folder)
    assert start is not None  # the series has written it

    def told(step: Any, done: int, total: int, doing: str, row: Any) -> None:
        figures = {"step": done, "steps": total, "doing": doing, "cc": None if row is None else row.cc}
        _say({"frame": step.frame, "source": step.source, **figures})

    def finished(fit: Any) -> None:
        figures = {"finished": True, "cc": fit.cc, "cc_free": fit.cc_free}
        _say({"frame": fit.step.frame, "source": fit.step.source, **figures})

    fits = FrameFits(SeriesSettings.read(folder), start, folder, threads, told)
    try:
        fit_frames(fits, fits.first(), direction, finished)
    except Interrupted:
        raise KeyboardInterrupt from None


def _tell_of_warnings() -> None:
    """Pass on what is warned of, each sentence once: programs of this package are started without warnings."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            _say({"warning": str(message)})

    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = show


def _say(message: dict[str, Any]) -> None:
    with suppress(OSError):
        print(json.dumps(message), flush=True)


def _end_with_parent() -> None:
    """Save the state and end when nobody listens any more, as where the series was killed."""
    # Not by Python's own stream, whose lock a thread would hold while the process ends.
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
