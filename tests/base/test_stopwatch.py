"""Seconds by part."""

import pytest

from openmm_density.base import stopwatch
from openmm_density.base.stopwatch import PARTS, Stopwatch, in_words


@pytest.fixture
def now(monkeypatch):
    """Return a clock's time in s, which stands until it is set."""
    now = [100.0]
    monkeypatch.setattr(stopwatch.time, "monotonic", lambda: now[0])
    return now


def test_a_part_inside_another_interrupts_it_and_nothing_is_counted_twice(now):
    parts = []
    watch = Stopwatch(started=93.0, on_part=parts.append)
    now[0] += 1
    watch.begin("preparation")
    now[0] += 2
    with watch.part("placement"):
        now[0] += 4
    now[0] += 8
    assert watch.seconds_by_part == {"start_up": 8, "placement": 4, "preparation": 10}
    watch.end()
    now[0] += 16
    with pytest.raises(KeyboardInterrupt), watch.part("dynamics"):
        now[0] += 32
        raise KeyboardInterrupt
    assert watch.seconds_by_part == {"start_up": 24, "placement": 4, "preparation": 10, "dynamics": 32}
    assert watch.seconds == 70 == now[0] - 93
    assert parts == ["preparation", "placement", "dynamics"]
    watch.add({"dynamics": 5, "reading": 1})
    assert watch.seconds == 76
    assert list(watch.seconds_by_part) == [part for part in PARTS if part in watch.seconds_by_part]


def test_of_a_script_only_what_the_fit_does_counts(now):
    watch = Stopwatch()
    now[0] += 1000
    with watch.part("preparation"):
        now[0] += 3
    now[0] += 1000
    assert watch.seconds_by_part == {"preparation": 3}


def test_what_took_the_time_in_words():
    assert in_words({"start_up": 4.6, "reading": 0.2, "dynamics": 20.4}) == "start-up 5, dynamics 20"
    assert in_words({"start_up": 0.2, "dynamics": 0.4}) == "dynamics 0"
    assert in_words({}) == "" and in_words({"of another version": 3.0}) == "of another version 3"
