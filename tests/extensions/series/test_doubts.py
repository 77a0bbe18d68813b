"""What is doubted of a path: jumps, volumes that no model follows, passes that disagree, and volumes that are fitted badly."""

from pathlib import Path

import numpy as np
import pytest

from openmm_density.extensions.series.frame_fit import FrameFit
from openmm_density.extensions.series.result import SeriesFrame, SeriesPath, Trace, doubts_about_path
from openmm_density.extensions.series.steps import Step

GEOMETRY = {"clash_count": 0}


@pytest.fixture(scope="module")
def trace_and_places(kinase):
    trace = Trace.of(kinase.topology)
    return trace, kinase.positions[trace.atoms]


def fit(frame, source, cc):
    return FrameFit(Step(frame, source), Path(), {"cc_final": cc, "geometry_final": GEOMETRY})


def frame(number, cc=0.9, differ=None, other_cc=None):
    kept = fit(number, number - 1, cc)
    other = None if differ is None else fit(number, number + 1, other_cc)
    return SeriesFrame(number, Path(f"vol_{number}.mrc"), (kept,), kept, differ, other)


def path(steps, changes, jumps=(), volume_jumps=()):
    steps = np.array(steps)
    return SeriesPath(
        steps,
        steps,
        np.zeros(len(steps) + 1),
        list(changes),
        list(jumps),
        list(volume_jumps),
        np.zeros(1),
        [],
        [],
        [],
    )


def doubts(trace_and_places, frames, found):
    trace, places = trace_and_places
    traces = np.repeat(places[None], len(frames), axis=0)
    traces[3:, 120:160] += [0.0, 8.0, 0.0]
    return doubts_about_path(frames, found, traces, trace, 5.0)


FRAMES = [frame(number) for number in range(1, 6)]


def test_a_path_without_a_jump_is_not_doubted(trace_and_places):
    assert doubts(trace_and_places, FRAMES, path([1, 1.2, 0.9, 1], [0.1] * 4)) == []


def test_a_jump_is_in_the_data_where_the_volumes_jump(trace_and_places):
    (said,) = doubts(trace_and_places, FRAMES, path([1, 1, 6, 1], [0.1, 0.1, 0.8, 0.1], [2], [2]))
    assert said.startswith(
        "Between volumes 3 and 4 the model jumps by 6.0 Å (Cα RMSD), 6 times the median of the other steps"
    )
    assert (
        "121-160; so do the volumes (1 − CC 0.800, 8 times the others' median), so that the jump is in the data"
        in said
    )
    assert said.endswith("the series shows no states in between, and the film's way there is no path.")


def test_a_jump_of_the_model_alone_may_be_a_wrong_fit(trace_and_places):
    (said,) = doubts(trace_and_places, FRAMES, path([1, 1, 6, 1], [0.1] * 4, [2]))
    assert "the volumes do not (1 − CC 0.100, as others do), so that one of the two fits may be wrong" in said


def test_a_jump_of_the_volumes_alone_may_not_be_followed(trace_and_places):
    frames = [*FRAMES[:3], frame(4, cc=0.85), FRAMES[4]]
    (said,) = doubts(trace_and_places, frames, path([1] * 4, [0.1, 0.1, 0.8, 0.1], (), [2]))
    assert said.startswith(
        "Volumes 3 and 4 differ far more than other neighbours (1 − CC 0.800), and the models do not"
    )
    assert "that of volume 4 (CC 0.850) follows its map" in said


@pytest.mark.parametrize(
    "other_cc, said",
    [(0.8, "the volume decides for the first (CC 0.900 and 0.800)"), (0.895, "does not decide")],
)
def test_passes_that_disagree_are_told_with_what_the_volume_says(trace_and_places, other_cc, said):
    frames = [*FRAMES[:2], frame(3, differ=2.5, other_cc=other_cc), *FRAMES[3:]]
    (found,) = doubts(trace_and_places, frames, path([1] * 4, [0.1] * 4))
    assert found.startswith(
        "The two passes disagree at volume 3: the models that come from volume 2 and from 4 are 2.5 Å apart"
    )
    assert said in found


def test_passes_that_differ_by_less_than_a_step_agree(trace_and_places):
    frames = [*FRAMES[:2], frame(3, differ=0.9, other_cc=0.9), *FRAMES[3:]]
    assert doubts(trace_and_places, frames, path([1] * 4, [0.1] * 4)) == []


def test_a_volume_that_is_fitted_far_worse_is_named(trace_and_places):
    (said,) = doubts(trace_and_places, [*FRAMES[:4], frame(5, cc=0.7)], path([1] * 4, [0.1] * 4))
    assert said == "Volume 5 is fitted far worse than the others (CC 0.700, their median is 0.900)."
