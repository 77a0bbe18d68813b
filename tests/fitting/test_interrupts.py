"""Ctrl-C, heard at once and acted on between two steps."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from openmm_density.fitting.interrupts import GRACE, PromptExit, StopRequest

# One step of native code that takes longer than anybody waits, and is ready when it runs: Python hears a signal at once.
STUCK = """
import threading, time
import openmm
from openmm_density.fitting import interrupts
from openmm_density.fitting.interrupts import StopRequest
interrupts.TOGETHER = {together}
system = openmm.System()
system.addParticle(1.0)
context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
context.setPositions([openmm.Vec3(0, 0, 0)])
def tell():
    while context.getStepCount() == 0:
        time.sleep(0.01)
    print("ready", flush=True)
threading.Thread(target=tell, daemon=True).start()
with StopRequest(lambda: print("heard", flush=True), lambda: print("ended", flush=True)):
    context.getIntegrator().step(2**31 - 1)
"""
# Seconds: longer than a busy machine lets a process wait between two lines.
TOGETHER = 2.0


@contextmanager
def running(script):
    """Yield a process that runs Python code and hears Ctrl-C, once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", script.format(together=TOGETHER)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_first_signal_is_noted_and_told():
    heard = threading.Event()
    # Whoever runs tests in the background ignores the signal, and so would the request.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopRequest(heard.set) as stop:
            assert not stop.requested
            os.kill(os.getpid(), signal.SIGINT)
            assert heard.wait(20) and stop.requested
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_signals_go_where_they_went_before():
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    before = signal.set_wakeup_fd(outlet)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert os.read(inlet, 1)[0] == signal.SIGUSR1
        assert not stop.requested
    finally:
        assert signal.set_wakeup_fd(before) == outlet
        signal.signal(signal.SIGUSR1, handler)
        os.close(inlet)
        os.close(outlet)


def test_it_is_heard_while_native_code_runs_and_a_second_signal_ends_that():
    with running(STUCK) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        # To the process and to its group, as `timeout` does it: that is one.
        process.send_signal(signal.SIGINT)
        time.sleep(TOGETHER + 0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(60) == 128 + signal.SIGINT


@pytest.fixture
def interruptible():
    """Have Ctrl-C raise KeyboardInterrupt, also where whoever runs tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_python_that_has_nothing_to_save_leaves_at_once(interruptible):
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt), PromptExit(ended.set):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    assert signal.set_wakeup_fd(-1) == -1
    assert not ended.wait(GRACE + 0.1), "it has left by itself"
