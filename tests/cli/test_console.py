"""What a terminal shows of a fit, and what a pipe gets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from openmm_density.cli import console, fit
from openmm_density.cli.console import Clock, Display

from ..test_imports import SLOW
from .commands import FIT

STAGES = [("draw", False), ("heat", True), ("hold", True), ("anneal", False)]


@pytest.fixture
def now(monkeypatch):
    """Return a clock's time in s, which stands until it is set."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_that_of_steps_and_searches_are_counted(now):
    clock = Clock(STAGES)
    now[0] += 12
    assert str(clock) == "0:00:12"
    clock.update(0, 1000, "minimize")
    now[0] += 8
    assert str(clock) == "0:00:20"
    clock.update(40, 1000, "draw")
    # What the first of them took is not known.
    assert str(clock) == "-:--:-- + 2 searches"
    for step in (80, 120, 160, 200):
        now[0] += 4
        clock.update(step, 1000, "draw")
    assert str(clock) == "0:01:20 + 2 searches"


def test_while_a_search_goes_on_its_own_time_is_told_and_it_is_no_time_of_steps(now):
    clock = Clock(STAGES)
    for step in (0, 40, 80, 120):
        now[0] += 4
        clock.update(step, 1000, "draw")
    for doing in ("rebuild", "register: A 61-72 (1 of 40)", "register: A 80-83 (2 of 40)"):
        clock.update(120, 1000, doing)
        now[0] += 60
    assert str(clock) == "0:03:00"
    clock.update(160, 1000, "heat")
    assert str(clock) == "0:01:24 + 1 search"
    now[0] += 4
    clock.update(200, 1000, "heat")
    assert str(clock) == "0:01:20 + 1 search"
    clock.update(240, 1000, "anneal")
    assert str(clock) == "0:01:16"


def test_stages_of_one_name_come_one_after_another(now):
    clock = Clock([("hold", False), ("anneal", True), ("hold", True)])
    for step, doing in ((0, "minimize"), (40, "hold"), (80, "hold")):
        now[0] += 1
        clock.update(step, 120, doing)
    assert str(clock) == "0:00:01 + 2 searches"
    clock.update(100, 120, "anneal")
    clock.update(110, 120, "hold")
    assert str(clock) == "0:00:00"


def test_stages_of_one_name_are_counted_by_the_searches_between_them(now):
    clock = Clock([("heat", True), ("heat", True), ("heat", True)])
    clock.update(0, 300, "minimize")
    left = []
    for begin in (0, 100, 200):
        for step, doing in (
            (begin, "rebuild"),
            (begin + 40, "heat"),
            (begin + 80, "heat"),
            (begin + 100, "heat"),
        ):
            now[0] += 1
            clock.update(step, 300, doing)
        left.append(str(clock))
    assert left == ["0:00:07 + 2 searches", "0:00:03 + 1 search", "0:00:00"]


def test_after_an_interruption_no_steps_are_left_to_wait_for(now):
    clock = Clock(STAGES)
    for step in (0, 40, 80):
        now[0] += 4
        clock.update(step, 1000, "draw")
    now[0] += 1
    clock.update(90, 1000, "minimize")
    now[0] += 2
    assert str(clock) == "0:00:03"


def test_a_fit_that_goes_on_has_made_no_steps_yet(now):
    clock = Clock(STAGES)
    now[0] += 5
    clock.update(500, 1000, "register")
    assert str(clock) == "0:00:05"


def test_after_a_second_ctrl_c_it_is_told_how_to_go_on(capsys):
    for holds_a_state, goes_on in ((True, "goes on"), (False, "begins it again")):
        folder = SimpleNamespace(path="run", run=SimpleNamespace(holds_a_state=holds_a_state))
        with Display() as display:
            display.ended(fit._stopped(folder))
        line = f"openmm-density fit: stopped; openmm-density fit --resume run {goes_on}\n"
        assert capsys.readouterr().err == line


AT_ONCE = """
import sys
from openmm_density.cli import fit, main
def run(options, display, stopwatch):
    print(*({slow} & sys.modules.keys()), end="")
    with stopwatch.part("reading"):
        display._progress.refresh()
    return 0
fit._run = run
main(["fit", "model.pdb", "map.mrc", "--resolution", "5", "--output", "run"])
"""


def test_a_terminal_shows_what_is_done_before_anything_slow_is_imported(tmp_path):
    for name in ("model.pdb", "map.mrc"):
        (tmp_path / name).touch()
    terminal, end = pty.openpty()
    script = AT_ONCE.format(slow=set(SLOW) - {"rich"})
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, check=True, cwd=tmp_path)
    os.close(end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert done.stdout == b"" and 0 < shown.index("start-up") < shown.index("reading")


@pytest.fixture(scope="module")
def piped(folder, tmp_path_factory):
    """Return a fit as a user runs it: what it said, its folder and its seconds by our clock."""
    name = "a folder whose name is longer than the eighty columns that a pipe is said to have"
    output = tmp_path_factory.mktemp("piped") / name
    begun = time.monotonic()
    options = ["--output", str(output), "--steps", "20", "--threads", "1", "--strength", "30"]
    done = subprocess.run([*FIT, *options], cwd=folder, capture_output=True, text=True)
    return done, output, time.monotonic() - begun


def test_a_pipe_stays_quiet_and_its_lines_whole(piped):
    done, output, _ = piped
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert any(line.startswith("correlation (CC mask)") for line in lines)
    assert lines[-1].startswith(f"results are in {output}: see overview.png")


def test_the_time_told_is_that_of_the_whole_command_part_by_part(piped):
    """From the start of the process: what a user's clock shows, where imports, reading and pictures were left out."""
    done, output, clock = piped
    summary = json.loads((output / "summary.json").read_text())
    parts = summary["seconds_by_part"]
    assert parts.keys() >= {
        "start_up", "reading", "preparation", "minimization", "dynamics", "scoring", "writing", "pictures",
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(summary["wall_seconds"], abs=0.01)
    # On a busy machine the end of a process waits, too.
    assert summary["wall_seconds"] < clock < summary["wall_seconds"] + 1 + 0.1 * clock
    (line,) = (line for line in done.stdout.splitlines() if " s in all: " in line)
    assert line.startswith(f"{summary['wall_seconds']:.0f} s in all: start-up {parts['start_up']:.0f}, ")
