"""Where a bar is shown while a fit runs, what it says, and how long a fit is said to take still."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from openmm_density.base import progress
from openmm_density.base.progress import Clock, Display, NotebookBar, in_notebook, shown_progress

STAGES = [("draw", False), ("anneal", True)]
ROW = SimpleNamespace(cc=0.8123, ca_rmsd=1.5)


@pytest.fixture
def notebook(monkeypatch):
    """Stand in for IPython with a kernel; return the pictures that it displays."""
    pictures = []
    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())

    def display(html, display_id):
        assert display_id is True
        pictures.append(html)
        return SimpleNamespace(update=pictures.append)

    displays.HTML, displays.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return pictures


def make_terminal(monkeypatch):
    """Make standard error, as it is captured, a terminal as far as it says."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_in_a_notebook_a_bar_is_shown_by_default_and_stays_at_the_end(notebook, monkeypatch):
    monkeypatch.setattr(progress, "REDRAWN_AFTER", 0.0)
    with shown_progress(None, STAGES) as told:
        told(40, 100, "draw", None)
        told(50, 100, "register: A 1-2 <1 of 2>", ROW)
    assert [each.split("step ")[1].split(" ")[0] for each in notebook] == [
        "0/1",
        "40/100",
        "50/100",
        "50/100",
    ]
    assert 'value="50" max="100"' in notebook[-1] and "CC 0.812, RMSD 1.50 Å" in notebook[-1]
    assert "&lt;1 of 2&gt;" in notebook[-1] and notebook[-1].count("<") == 4


def test_a_notebook_is_not_flooded(notebook):
    bar = NotebookBar(STAGES)
    bar.start("preparing")
    for step in range(1000):
        bar.update(step, 1000, "draw", None)
    bar.stop()
    assert len(notebook) < 20 and 'value="999"' in notebook[-1]


def test_after_an_error_the_bar_ends_where_it_was(notebook):
    with pytest.raises(RuntimeError), shown_progress(None, STAGES) as told:
        told(7, 100, "draw", None)
        raise RuntimeError
    assert 'value="7"' in notebook[-1]


def test_a_callable_is_called_and_nothing_else_is_shown(notebook):
    def call(*_):
        pass

    with shown_progress(call, STAGES) as told:
        assert told is call
    assert notebook == []


@pytest.mark.parametrize("progress", [None, False])
def test_a_script_on_a_terminal_is_quiet(progress, monkeypatch, capsys):
    make_terminal(monkeypatch)
    with shown_progress(progress, STAGES) as told:
        assert told is None
    assert capsys.readouterr() == ("", "")


def test_a_script_may_ask_for_a_bar_on_a_terminal(monkeypatch, capsys):
    make_terminal(monkeypatch)
    with shown_progress(True, STAGES) as told:
        told(40, 100, "draw", ROW)
    shown = capsys.readouterr().err
    assert "draw" in shown and "step 40/100" in shown and "CC 0.812" in shown


def test_a_pipe_gets_nothing(capsys):
    with shown_progress(True, STAGES) as told:
        told(40, 100, "draw", ROW)
    assert capsys.readouterr() == ("", "")


def test_after_a_minute_a_pipe_gets_a_line_for_each_stage_and_each_minute(monkeypatch, capsys):
    monkeypatch.setattr(progress, "TOLD_EVERY", 0.1)
    with Display() as bar:
        bar.begin("preparation")
        time.sleep(0.35)
        bar.expect(STAGES)
        for step in (40, 80):
            bar.update(step, 100, "draw", ROW)
        for trial in range(9):
            bar.update(80, 100, f"register: A 1-2 ({trial} of 9)", None)
        bar.expect()
        bar.begin("scoring")
    told = capsys.readouterr().err.splitlines()
    time.sleep(0.15)
    assert capsys.readouterr().err == ""
    said = [each.split(" ", 1)[1].split(",")[0] for each in told]
    assert said[:2] == ["preparation"] * 2 and said[-3:] == ["draw", "register: A 1-2 (0 of 9)", "scoring"]
    assert "step 40/100, CC 0.812, RMSD 1.50 Å" in told[-3] and "step 80/100" in told[-2]
    assert not sys.platform.startswith("linux") or all(each.endswith(" GB of memory") for each in told)


def test_the_shell_of_ipython_is_no_notebook(notebook, monkeypatch):
    assert in_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    assert not in_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not in_notebook()


CLOCK_STAGES = [("draw", False), ("heat", True), ("hold", True), ("anneal", False)]


@pytest.fixture
def now(monkeypatch):
    """Return a clock's time in s, which stands until it is set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_that_of_steps_and_searches_are_counted(now):
    clock = Clock(CLOCK_STAGES)
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
