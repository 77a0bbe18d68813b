"""Processes that work for a fit: they end quietly with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from openmm_density.fitting.worker_process import WorkerProcess

# It stops its worker and sends tasks before it waits for its end, so that the worker answers nobody.
PARENT = """
import os, signal, sys, time
from openmm_density.fitting.worker_process import WorkerProcess
worker = WorkerProcess({module!r})
assert worker.connection.recv() is None
worker.process.send_signal(signal.SIGSTOP)
for message in {messages}:
    worker.connection.send(message)
try:
    print(worker.process.pid, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    os._exit(130)
"""
PROGRAMS = {
    "openmm_density.fitting.beside_worker": [("call", abs, (-1,))] * 3,
    "openmm_density.fitting.rebuilding.trial_worker": [
        ("tools", None),
        ("model", None, [None]),
        *[("task", 0, None)] * 3,
    ],
}


@pytest.mark.parametrize(
    ("module", "number"),
    [(module, number) for module, number in zip(PROGRAMS, (signal.SIGINT, signal.SIGKILL))],
)
def test_they_end_without_a_word_when_the_fit_is_ended(module, number):
    program = PARENT.format(module=module, messages=PROGRAMS[module])
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program.replace("<built-in function abs>", "abs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    worker = int(parent.stdout.readline())
    os.killpg(parent.pid, number)
    parent.wait(60)
    os.kill(worker, signal.SIGCONT)
    # Its end of the pipe is closed when it has ended as well.
    assert parent.stderr.read() == ""
    parent.stdout.close()
    parent.stderr.close()


def test_one_that_cannot_start_says_so_by_its_silence(monkeypatch):
    monkeypatch.setattr("openmm_density.program_process._PROGRAM", "raise SystemExit")
    worker = WorkerProcess("any")
    with pytest.raises((EOFError, OSError)):
        worker.connection.recv()
    worker.kill()
