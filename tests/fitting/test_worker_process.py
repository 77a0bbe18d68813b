"""Processes that work for a fit: they end quietly with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from openmm_density.fitting.worker_process import SharedArgument, WorkerProcess

# It stops its worker and has it call before it waits for its end, so that the worker answers nobody.
PARENT = """
import signal, os, time
from openmm_density.fitting.worker_process import WorkerProcess
worker = WorkerProcess("openmm_density.fitting.protocols")
assert worker.answer() is None
worker.process.send_signal(signal.SIGSTOP)
for number in range(3):
    worker.send(abs, -number)
try:
    print(worker.process.pid, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    os._exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_they_end_without_a_word_when_the_fit_is_ended(number):
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PARENT],
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


def test_shared_arguments_are_sent_once_and_forgotten_on_demand():
    worker = WorkerProcess()
    assert worker.answer() is None
    first, second = SharedArgument([1, 2]), SharedArgument([3], is_packed_once=True)
    for shared, length in ((first, 2), (second, 1), (first, 2)):
        worker.send(len, shared)
        assert worker.answer() == (True, length)
    worker.forget_others(second)
    assert worker.kept == {second.number}
    worker.send(len, 5)
    assert worker.answer() == (False, "TypeError: object of type 'int' has no len()")
    worker.kill()
