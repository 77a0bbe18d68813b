"""The processes of the two directions: what they say, how they end, and what is raised of them."""

import os
import signal
import threading
import time

import pytest

from openmm_density.base import program_process
from openmm_density.base.errors import InputError, SimulationError
from openmm_density.extensions.series import direction_process
from openmm_density.extensions.series.direction_process import carry_out_beside
from openmm_density.fitting.interrupts import Interrupted

# In place of fits, whose imports take seconds: the direction is the second argument.
SAY = "import json, sys, time\ndef say(**m): print(json.dumps(m), flush=True)\n"


@pytest.fixture
def beside(tmp_path, monkeypatch):
    def carried_out(program, told=lambda _: None, mps="off"):
        monkeypatch.setattr(program_process, "_PROGRAM", program.replace("{", "{{").replace("}", "}}"))
        return carry_out_beside(tmp_path, 1, told, mps)

    return carried_out


@pytest.mark.parametrize("kind, error", [("input", InputError), ("simulation", SimulationError)])
def test_an_error_of_one_ends_the_other_and_is_raised(beside, kind, error):
    program = f"if sys.argv[2] == 'up':\n  say(error='it is so: do that.', kind={kind!r}); sys.exit(1)\n"
    with pytest.raises(error, match=r"^it is so: do that\.$"):
        beside(SAY + program + "time.sleep(60)")


def test_one_that_is_killed_is_told_of(beside):
    program = "if sys.argv[2] == 'up': import os; os.kill(os.getpid(), 9)\ntime.sleep(60)"
    with pytest.raises(SimulationError, match="the process of the direction up ended with status -9"):
        beside(SAY + program)


def test_a_signal_is_passed_on_once(beside):
    # One ends later, as does one that saves its state: a second signal would change its status.
    program = "import signal\ndef end(*_):\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
    program += "    time.sleep(0.1 if sys.argv[2] == 'up' else 0.6)\n    sys.exit(130)\nsignal.signal(signal.SIGTERM, end)\n"
    program += "say(frame=1, source=2, cc=None)\ntime.sleep(60)"
    started = []

    def told(message):
        started.append(message)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        beside(SAY + program, told)


def test_it_ends_when_nobody_listens_any_more(monkeypatch):
    inlet, outlet = os.pipe()
    monkeypatch.setattr(direction_process, "_STDIN", inlet)
    ended = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    thread = threading.Thread(target=direction_process._end_with_parent)
    thread.start()
    time.sleep(0.05)
    assert not ended
    os.close(outlet)
    thread.join(60)
    assert ended == [(os.getpid(), signal.SIGTERM)]
    os.close(inlet)
