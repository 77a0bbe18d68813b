"""The program that each process of `beside` runs: call the functions that come through a pipe until its other end is closed."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

# What is called: loaded now, while the fit is prepared.
from ..validation import model_report  # noqa: F401
from . import map_examination  # noqa: F401
from .beside import Shared
from .output import plots  # noqa: F401
from .worker_process import connection_of_program, is_heard, messages


def serve(connection: Connection) -> None:
    """Say None once, and answer each call by what it returns, and whether it returned."""
    if not is_heard(connection, None):
        return
    kept: dict[int, Any] = {}
    for what, *rest in messages(connection):
        if what == "keep":
            number, value = rest
            kept[number] = value
            continue
        function, arguments = rest
        try:
            given = [kept[each.number] if isinstance(each, Shared) else each for each in arguments]
            answer = True, function(*given)
        except Exception:
            answer = False, None
        if not is_heard(connection, answer):
            return


def main() -> None:
    """Serve the pipe whose number is the program's argument."""
    serve(connection_of_program())
