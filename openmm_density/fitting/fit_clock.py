"""How long a fit will still take, for who waits for it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta


class Clock:
    """The time that the remaining steps will take, or, outside dynamics, the time since the last step.

    Parameters
    ----------
    stages : sequence of (str, bool)
        The stages to come by their names, and whether parts of the model are rebuilt before each.
    """

    def __init__(self, stages: Sequence[tuple[str, bool]] = ()) -> None:
        self._names = [name for name, _ in stages]
        self._rebuilds = [rebuilds for _, rebuilds in stages]
        # The current stage, -1 before the first, and whether something else has been done since its last steps.
        self._place, self._has_left = -1, True
        self._doing, self._step, self._total = "", math.inf, 1
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._is_stepping = False
        self._last = self._advanced = time.monotonic()

    def update(self, step: int, total: int, doing: str) -> None:
        """Take the step and the activity of the fit."""
        now = time.monotonic()
        # The last steps before an interruption are reported together with what is done after them.
        self._is_stepping = step > self._step and (doing in self._names or not self._names)
        if self._is_stepping and doing == self._doing:
            # Only between two updates of one stage nothing but steps was made.
            self._recent.append((step - self._step, now - self._last))
        if self._is_stepping:
            self._advanced = now
        # A search separates two stages, also where these have the same name.
        begin = self._place + self._has_left
        if doing in self._names[begin:]:
            self._place = self._names.index(doing, begin)
        self._has_left = doing not in self._names
        self._doing, self._step, self._total, self._last = doing, step, total, now

    def __str__(self) -> str:
        """Return the time as in ``0:02:40 + 3 searches``, which are not steps and whose time is unknown."""
        if not self._is_stepping:
            return _clock(time.monotonic() - self._advanced)
        steps, seconds = (sum(values) for values in zip((0, 0.0), *self._recent))
        left = _clock(seconds / steps * (self._total - self._step)) if steps else "-:--:--"
        searches = sum(self._rebuilds[self._place + 1 :])
        return left if not searches else f"{left} + {searches} search{'es' if searches > 1 else ''}"


# Times between updates, of 40 steps each.
_RECENT = 100


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
