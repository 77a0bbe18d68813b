"""How long a fit is said to take still."""

from __future__ import annotations

import pytest

from openmm_density.fitting import fit_clock
from openmm_density.fitting.fit_clock import Clock

STAGES = [("draw", False), ("heat", True), ("hold", True), ("anneal", False)]


@pytest.fixture
def now(monkeypatch):
    """Return a clock's time in s, which stands until it is set."""
    now = [100.0]
    monkeypatch.setattr(fit_clock.time, "monotonic", lambda: now[0])
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
