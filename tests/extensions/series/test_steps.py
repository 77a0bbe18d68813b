"""Which volume is fitted from which: out in both directions, and back."""

import pytest

from openmm_density.extensions.series.steps import Step, steps_of_direction


def pairs(start, n_frames, direction):
    return [(step.frame, step.source) for step in steps_of_direction(start, n_frames, direction)]


def test_out_to_the_end_and_back_to_the_start():
    assert pairs(2, 5, "up") == [(3, 2), (4, 3), (5, 4), (4, 5), (3, 4), (2, 3)]
    assert pairs(3, 5, "down") == [(2, 3), (1, 2), (2, 1), (3, 2)]


@pytest.mark.parametrize("start, direction", [(1, "down"), (4, "up")])
def test_there_is_no_way_beyond_an_end(start, direction):
    assert pairs(start, 4, direction) == []


def test_every_volume_but_the_ends_comes_from_both_neighbours():
    sources = {frame: set() for frame in range(1, 7)}
    for direction in ("up", "down"):
        for frame, source in pairs(3, 6, direction):
            sources[frame].add(source)
    assert sources == {1: {2}, 2: {1, 3}, 3: {2, 4}, 4: {3, 5}, 5: {4, 6}, 6: {5}}


def test_each_knows_its_way():
    ways = [step.way(3) for direction in ("up", "down") for step in steps_of_direction(3, 5, direction)]
    assert ways == ["out", "out", "back", "back", "out", "out", "back", "back"]
    assert Step(3, course="first").way(3) == "first"


def test_each_has_a_folder_of_its_own():
    steps = [Step(3, course="first"), Step(3, 2), Step(3, 4), Step(3, 2).again]
    assert [step.folder for step in steps] == [
        "frame_03_from_model",
        "frame_03_from_02",
        "frame_03_from_04",
        "frame_03_from_02_again",
    ]
