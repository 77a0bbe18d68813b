"""A model examined in its map and prepared, one beside the other or one after the other."""

from __future__ import annotations

import sys
import threading

import pytest

from openmm_density.base.errors import InputError
from openmm_density.base.stopwatch import Stopwatch
from openmm_density.fitting.map_examination import Examination
from openmm_density.fitting.start import examined_and_prepared
from openmm_density.validation.map_checks import MapChecks

HERE, ELSEWHERE = "the model", "the model, moved"


class Course:
    """What is called, and what it was called with; either call can find something wrong."""

    def __init__(self, moves: bool = False, wrong: str = "", unprepared: str = "") -> None:
        self.moves, self.wrong, self.unprepared = moves, wrong, unprepared
        self.examining: list[threading.Thread] = []
        self.prepared: list[str] = []
        self.stopwatch = Stopwatch()

    def examine(self) -> Examination:
        self.examining.append(threading.current_thread())
        if self.wrong:
            raise InputError(self.wrong)
        found = (ELSEWHERE, MapChecks(), "placed") if self.moves else (HERE, MapChecks(), None)
        return Examination(*found, 0.5)

    def prepare(self, model: str) -> tuple[str, str]:
        self.prepared.append(model)
        if self.unprepared:
            raise InputError(self.unprepared)
        return f"{model}, whole", f"{model}, whole, in water"

    def run(self, expected: str | None) -> tuple[str, str, str]:
        start = examined_and_prepared(expected, self.examine, self.prepare, self.stopwatch)
        return start.examination.model, start.solute, start.prepared


@pytest.mark.parametrize("moves", [False, True])
def test_side_by_side_comes_to_the_same(moves: bool) -> None:
    expected = ELSEWHERE if moves else HERE
    for known, prepared in ((None, [expected]), (HERE, [HERE, ELSEWHERE] if moves else [HERE])):
        course = Course(moves)
        assert course.run(known) == (expected, f"{expected}, whole", f"{expected}, whole, in water")
        assert course.prepared == prepared
        assert (course.examining[0] is threading.current_thread()) == (known is None)
        assert "placement" in course.stopwatch.seconds_by_part


@pytest.mark.parametrize("known", [None, HERE])
def test_what_is_wrong_with_the_map_is_told_first(known: str | None) -> None:
    interval = sys.getswitchinterval()
    with pytest.raises(InputError, match="inverted"):
        Course(wrong="the map is inverted", unprepared="no such residue").run(known)
    with pytest.raises(InputError, match="no such residue"):
        Course(unprepared="no such residue").run(known)
    assert sys.getswitchinterval() == interval
