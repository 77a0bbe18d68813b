"""Processes in which no kernel is loaded yet, quick to start: torch is imported in what they are forked from."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pytest", "openmm_density.kernels.compilation", "openmm_density.kernels.neighbors"]
)


class Child:
    """A process that computes a function with an environment of its own; nothing is loaded in it yet."""

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        cache: Path,
        terminal: str | None = None,
        **variables: Any,
    ) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("CXX", "OPENMM_DENSITY_CXXFLAGS", "XDG_CACHE_HOME")
        }
        variables = {"OPENMM_DENSITY_CACHE": cache} | variables
        environment = kept | {name: str(value) for name, value in variables.items()}
        self.connection, theirs = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(
            target=_answer, args=(theirs, environment, terminal, function, arguments)
        )
        self.process.start()
        theirs.close()

    def result(self) -> Any:
        assert self.connection.poll(300)
        result, failure = self.connection.recv()
        self.process.join()
        assert failure is None, failure
        return result


def _answer(
    connection: Any, environment: dict, terminal: str | None, function: Callable, arguments: tuple
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if terminal:
        sys.stderr = open(terminal, "w")  # noqa: SIM115
    try:
        connection.send((function(*arguments), None))
    except BaseException:
        connection.send((None, traceback.format_exc()))
