"""A process beside a command that ends it soon after SIGINT or SIGTERM, also where native code keeps Python from answering."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM)

SECONDS, VARIABLE = {signal.SIGTERM: 12.0, signal.SIGINT: 60.0}, "OPENMM_DENSITY_END_SECONDS"
"""How long a command has after a signal, where the environment names no other number of seconds: a batch system kills soon, and
who pressed Ctrl-C waits for results, or presses it again."""
AGAIN, GRACE = 0.5, 2.0
"""Seconds after a signal from which on another one is a second one, and those in which it ends the command."""

_running: EndWithin | None = None


class EndWithin:
    """End this process some time after SIGINT or SIGTERM, unless it has left this context manager by itself.

    OpenMM makes a Context, and copies a System, without letting go of Python's interpreter, which takes minutes for a large
    one: until then no thread of Python answers, and no handler runs. So another process reads the signals, hands them on to
    who listens here, and kills this one when the time is over. In another thread than the main one nothing is done. `seconds`
    by signal, from the first one on; `what` is stopped, and `goes_on`, how to go on: said then on standard error; `states`: saved
    states that a fit can go on from; `without_states`: said in place of `goes_on` where there are to be some, and none is there.
    """

    def __init__(
        self,
        seconds: dict[int, float],
        what: str,
        goes_on: str,
        states: Sequence[Path] = (),
        without_states: str = "",
    ) -> None:
        self._asked = {
            "seconds": seconds,
            "what": what,
            "goes_on": goes_on,
            "states": [str(path.absolute()) for path in states],
            "without_states": without_states,
        }
        self._outlet = self._previous = -1
        self.listener = -1
        self.lock = threading.Lock()
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EndWithin:
        global _running
        if _running is None and threading.current_thread() is threading.main_thread():
            inlet, self._outlet = os.pipe()
            os.set_blocking(self._outlet, False)
            command = [sys.executable, "-I", "-S", __file__, str(inlet), json.dumps(self._asked)]
            with suppress(OSError):  # where no more processes are allowed, threads have to do
                self._watcher = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    pass_fds=(inlet,),
                    start_new_session=True,
                )
            os.close(inlet)
            if self._watcher is None:
                os.close(self._outlet)
                return self
            self._previous = signal.set_wakeup_fd(self._outlet, warn_on_full_buffer=False)
            self.listener = self._previous
            threading.Thread(target=self._hand_on, daemon=True).start()
            _running = self
        return self

    def __exit__(self, *_: object) -> None:
        global _running
        if self._watcher is not None:
            _running = None
            signal.set_wakeup_fd(self._previous)
            os.close(self._outlet)  # which ends it
            self._watcher.wait()

    def _hand_on(self) -> None:
        """Write the numbers of signals to who listens."""
        assert self._watcher is not None and self._watcher.stdout is not None
        with self._watcher.stdout as numbers:
            while number := os.read(numbers.fileno(), 1):
                with self.lock, suppress(OSError):
                    if self.listener >= 0:
                        os.write(self.listener, number)


def seconds_to_end() -> dict[int, float]:
    """Return how long a command has after each of `SIGNALS`, in seconds."""
    from ..base.errors import InputError

    given = os.environ.get(VARIABLE, "")
    if not given:
        return {int(number): seconds for number, seconds in SECONDS.items()}
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < threading.TIMEOUT_MAX:
        return {int(number): seconds for number in SIGNALS}
    raise InputError(
        "must be a number of seconds above 0",
        source=VARIABLE,
        found=f'"{given}"',
        remedy="give one such as 30, or unset it",
    )


def listen(outlet: int) -> int:
    """Have the numbers of signals written to a pipe, at once; return where they went before, -1 for nowhere."""
    if _running is None:
        return signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
    # Whoever leaves closes its pipe, whose number may be another file's next: no signal is on its way to it by then.
    with _running.lock:
        before, _running.listener = _running.listener, outlet
    return before


def main() -> None:
    """Read the numbers of signals that a process gets, hand them on, and kill it where it has not ended in time."""
    inlet, asked, process = int(sys.argv[1]), json.loads(sys.argv[2]), os.getppid()
    for number in (*SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end: float | None = None
    seconds = first = 0.0
    while True:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        if not select.select([inlet], [], [], left)[0]:
            break
        numbers = os.read(inlet, 64)
        if not numbers:
            return  # it is over by itself
        with suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), numbers)
        for number in filter(SIGNALS.__contains__, numbers):
            if end is None:
                first, seconds = time.monotonic(), asked["seconds"][str(number)]
                end = first + seconds
            elif time.monotonic() - first > AGAIN:
                end = min(end, time.monotonic() + GRACE)
    states = asked["states"]
    goes_on = not states or any(os.path.exists(state) for state in states)
    with suppress(OSError):
        # Below a progress bar, which has hidden the cursor.
        begin = "\n\x1b[?25h" if sys.stderr.isatty() else ""
        then = f" ({VARIABLE} sets more): {asked['goes_on']}" if goes_on else f": {asked['without_states']}"
        said = f"{asked['what']}: stopped {seconds:g} s after the signal, before all was written{then}"
        print(begin + said, file=sys.stderr, flush=True)
    if os.getppid() == process:
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
