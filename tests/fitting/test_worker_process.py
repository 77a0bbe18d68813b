"""Processes that work for a fit: they end quietly with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from openmm_density.fitting.worker_process import NoAnswer, SharedArgument, WorkerPool, begin_workers

# It stops its worker and has it call before it waits for its end, so that the worker answers nobody.
PARENT = """
import signal, os, time
from openmm_density.fitting.worker_process import begin_workers
_, workers = begin_workers(2, "openmm_density.fitting.protocols")
for worker in workers:
    os.kill(worker.answer(), signal.SIGSTOP)
    for number in range(3):
        worker.send(abs, -number)
try:
    print(*(worker.pid for worker in workers), flush=True)
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
    workers = [int(word) for word in parent.stdout.readline().split()]
    os.killpg(parent.pid, number)
    parent.wait(60)
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    # Their ends of the pipe are closed when they have ended as well.
    assert parent.stderr.read() == ""
    parent.stdout.close()
    parent.stderr.close()


def test_shared_arguments_are_sent_once_and_forgotten_on_demand():
    program, (worker,) = begin_workers(1)
    assert worker.answer() == worker.pid == program.pid
    first, second = SharedArgument([1, 2]), SharedArgument([3], is_packed_once=True)
    for shared, length in ((first, 2), (second, 1), (first, 2)):
        worker.send(len, shared)
        assert worker.answer() == (True, length)
    worker.forget({first.number})
    assert worker.kept == {second.number}
    worker.send(len, 5)
    assert worker.answer() == (False, "TypeError: object of type 'int' has no len()")
    worker.connection.close()
    assert program.wait(60) == 0


def test_what_one_that_ends_was_doing_is_done_by_another_and_the_last_one_says_so():
    pool = WorkerPool(2)
    lost, other = (worker.answer() for worker in pool.workers)
    os.kill(lost, signal.SIGKILL)
    assert [pool.begin(abs, -number).result() for number in range(4)] == [0, 1, 2, 3]
    with pytest.raises(NoAnswer, match="ZeroDivisionError"):
        pool.begin(divmod, 1, 0).result()
    os.kill(other, signal.SIGKILL)
    with pytest.raises(NoAnswer, match="the processes ended"):
        pool.begin(abs, -1).result()
    pool.end()


def test_processes_end_with_their_pool_whatever_they_are_doing():
    pool = WorkerPool(3)
    assert len({worker.answer() for worker in pool.workers}) == 3
    pipes = [os.dup(worker.connection.fileno()) for worker in pool.workers]
    pool.begin(time.sleep, 60)
    pool.end()
    for pipe in pipes:
        with suppress(ConnectionResetError):  # of one that was killed before it read its call
            assert os.read(pipe, 1) == b""  # nobody has the other end any more
        os.close(pipe)


def test_a_shared_argument_is_forgotten_before_the_next_call():
    pool = WorkerPool(1)
    shared = SharedArgument([1, 2])
    assert pool.begin(len, shared).result() == 2
    pool.forget(shared)
    assert pool.begin(abs, -1).result() == 1 and pool.workers[0].kept == set()
    pool.end()
