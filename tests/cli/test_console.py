"""What a terminal shows of a fit, and what a pipe gets."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from openmm_density.base.progress import Display
from openmm_density.cli import fit

from ..test_imports import SLOW
from .commands import FIT


def test_after_a_second_ctrl_c_it_is_told_how_to_go_on(capsys):
    for holds_a_state, goes_on in ((True, "goes on"), (False, "begins it again")):
        folder = SimpleNamespace(path="run", run=SimpleNamespace(holds_a_state=holds_a_state))
        with Display() as display:
            display.ended(fit._stopped(folder))
        line = f"openmm-density fit: stopped; openmm-density fit --resume run {goes_on}\n"
        assert capsys.readouterr().err == line


def test_a_milestone_is_told_in_a_pipe_and_nothing_else(capsys):
    with Display() as display:
        display.print("fitting")
        display.update(1, 10, "settle", None)
        display.milestone("cycle 1: R-work 0.2")
    assert capsys.readouterr().err == "cycle 1: R-work 0.2\n"


AT_ONCE = """
import sys
from openmm_density.cli import fit, main
def run(options, display, stopwatch):
    print(*({slow} & sys.modules.keys()), end="")
    with stopwatch.part("reading"):
        display.refresh()
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
def piped(small, tmp_path_factory):
    """Return a fit as a user runs it: what it said, its small and when it was started."""
    name = "a small whose name is longer than the eighty columns that a pipe is said to have"
    output = tmp_path_factory.mktemp("piped") / name
    begun = time.time()
    options = ["--output", str(output), "--steps", "20", "--threads", "1", "--strength", "30"]
    done = subprocess.run([*FIT, *options], cwd=small, capture_output=True, text=True)
    return done, output, begun


def test_a_pipe_stays_quiet_and_its_lines_whole(piped):
    done, output, _ = piped
    # It is quiet but for what begins, on which platform, and what it says where this takes more than a minute.
    said = r"fitting model\.pdb into target\.mrc at 5 Å on (CPU|CUDA)\n(\d:\d\d:\d\d .*\n)*"
    assert done.returncode == 0 and re.fullmatch(said, done.stderr)
    lines = done.stdout.splitlines()
    assert any(line.startswith("correlation (CC mask)") for line in lines)
    assert lines[-1].startswith(f"results are in {output}: open report.html")


def test_the_time_told_is_that_of_the_whole_command_part_by_part(piped):
    """From the start of the process: what a user's clock shows, where imports, reading and pictures were left out."""
    done, output, begun = piped
    summary = json.loads((output / "summary.json").read_text())
    parts = summary["seconds_by_part"]
    assert parts.keys() >= {
        "start_up", "reading", "preparation", "minimization", "dynamics", "scoring", "writing", "pictures",
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(summary["wall_seconds"], abs=0.01)
    # Until the file that tells it was written: by a clock whose ticks may be 10 ms long, on a machine that may be busy.
    clock = (output / "summary.json").stat().st_mtime - begun
    assert summary["wall_seconds"] - 0.02 < clock < summary["wall_seconds"] + 3
    (line,) = (line for line in done.stdout.splitlines() if " s in all: " in line)
    assert line.startswith(f"{summary['wall_seconds']:.0f} s in all: start-up {parts['start_up']:.0f}")
