"""The program that each process of `trial_workers` runs: do the tasks that come through a pipe until its other end is closed."""

from __future__ import annotations

from multiprocessing.connection import Connection

import numpy as np

from ..worker_process import connection_of_program, is_heard, messages
from .stretch_trial import PLACES_KEPT, TrialPlace, TrialTools


def serve(connection: Connection) -> None:
    """Say None once, and answer each task with its results, or with what went wrong."""
    if not is_heard(connection, None):
        return
    tools: TrialTools | None = None
    positions: np.ndarray = np.zeros((0, 3))
    regions: list[np.ndarray] = []
    places: dict[int, TrialPlace] = {}
    for what, *rest in messages(connection):
        if what == "tools":
            (tools,) = rest
            continue
        if what == "model":
            (positions, regions), places = rest, {}
            continue
        number, task = rest
        try:
            assert tools is not None
            if number not in places:
                while len(places) >= PLACES_KEPT:  # the one that came first, as the other side has it
                    del places[next(iter(places))]
                places[number] = TrialPlace(tools, positions, regions[number])
            found = places[number].do(task)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if not is_heard(connection, found):
            return


def main() -> None:
    """Serve the pipe whose number is the program's argument."""
    serve(connection_of_program())
