"""A fit in a process of its own, which tells how far it is, and ends with the process that started it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..program_process import begin_program

PROGRAM_OF_FIT = "openmm_density.cli.fit_process"
"""The module that runs ``openmm-density fit`` in a process of its own."""
# Of a log, from its end: what a fit says last.
_READ = 20_000
REFUSED = 2
"""The exit status of a command that was given what it cannot use."""


@dataclass(frozen=True)
class Ended:
    """How a fit's process ended.

    Attributes
    ----------
    status : int
        0 where it came to its end; negative: the signal that ended it.
    sentence : str
        What it said last.
    peak_memory : int
        Bytes.
    """

    status: int
    sentence: str
    peak_memory: int

    @property
    def is_refusal(self) -> bool:
        """Whether what it was given cannot be used, so that it would end in the same way again."""
        return self.status == REFUSED


class FitProcess:
    """A process that runs ``openmm-density fit``.

    It is in a session of its own, as Ctrl-C is for the batch, and the operating system ends it when the thread that
    started it ends, however that ends: states are saved atomically, and another process goes on from the last one.

    Parameters
    ----------
    arguments : sequence of str
        Of ``fit``.
    log : path
        What it prints is added to this file.
    environment : mapping of str to str
        What differs from that of this process.
    program : str
        The module whose function ``main`` runs the fit: its arguments are the number of this process, the file descriptor for
        what it tells, and those of ``fit``.

    Raises
    ------
    OSError
        Where no more processes are allowed, or the log cannot be written.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        program: str = PROGRAM_OF_FIT,
    ) -> None:
        self._log, self._error = log, ""
        reading, writing = os.pipe()
        self._reports = os.fdopen(reading, encoding="utf-8", errors="replace")
        try:
            with open(log, "ab") as file:
                self._begin = file.tell()
                own = [str(os.getpid()), str(writing)]
                streams = {"stdout": file, "stderr": file, "pass_fds": [writing]}
                self.process = begin_program(program, [*own, *arguments], environment, **streams)
        except BaseException:
            self._reports.close()
            raise
        finally:
            os.close(writing)

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yield what it tells until it ends: ``step``, ``total``, ``stage``, ``cc`` and ``left``, the time as text."""
        with self._reports:
            for line in self._reports:
                try:
                    told = json.loads(line)
                except ValueError:  # it was killed in the middle of one
                    continue
                if "error" in told:
                    self._error = told["error"]
                else:
                    yield told

    def wait(self) -> Ended:
        """Wait for its end."""
        _, code, usage = os.wait4(self.process.pid, 0)
        status = os.waitstatus_to_exitcode(code)
        self.process.returncode = status
        return Ended(status, self._sentence(status), 1024 * usage.ru_maxrss)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self._reports.close()

    def _sentence(self, status: int) -> str:
        """Return what it said last of why it ended."""
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            return f"the fit's process was ended by {name}; {self._log} has what it said before"
        if self._error:
            return self._error
        with open(self._log, "rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, length - _READ))
            lines = file.read().decode(errors="replace").strip().splitlines()
        errors = [line.partition("error: ")[2] for line in lines if ": error: " in line]
        said = errors or lines or [f"it ended with status {status}"]
        return said[-1].strip()
