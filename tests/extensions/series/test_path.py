"""How far it is along a path, and where it jumps."""

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.series.result import (
    Trace,
    change_of_volumes,
    jumps_among,
    moved_most,
    rmsd,
    steps_between,
)


def test_a_motion_of_the_whole_is_no_step(kinase):
    places = kinase.positions[Trace.of(kinase.topology).atoms]
    traces = np.array([places, places + 3.0])
    assert steps_between(traces) == pytest.approx([0], abs=1e-9)
    assert steps_between(traces, superposed=False) == pytest.approx([np.sqrt(27)])
    assert rmsd(places, places + np.array([2.0, 0, 0]), superposed=False) == pytest.approx(2)


@pytest.mark.parametrize(
    "steps, jumps",
    [
        ([1.0, 1.2, 0.8, 1.1], []),
        ([1.0, 2.5, 0.8, 1.1], []),
        ([1.0, 1.2, 4.5, 1.1], [2]),
        ([0.1, 0.1, 0.6, 0.1], []),
        ([5.0, 0.2, 0.3, 6.0, 0.2, 0.3], [0, 3]),
        ([3.0], []),
    ],
)
def test_a_jump_is_far_above_the_others(steps, jumps):
    assert jumps_among(np.array(steps), 1.0) == jumps


def test_stretches_are_named_by_what_a_user_sees(kinase):
    trace = Trace.of(kinase.topology)
    chosen = np.zeros(len(trace.atoms), dtype=bool)
    chosen[[0, 29, 30, 31]] = True
    chain = trace.labels[0][0]
    assert trace.stretches(chosen) == [f"{chain} 1".strip(), f"{chain} 30-32".strip()]


def test_what_moves_is_told_from_what_stays(kinase):
    trace = Trace.of(kinase.topology)
    places = kinase.positions[trace.atoms]
    moved = places + 5.0
    moved[40:50] += [0.0, 6.0, 0.0]
    (found,) = moved_most(trace, places, moved)
    assert found.split()[-1] == "41-50"


def test_volumes_are_compared_whatever_their_boxes(kinase):
    atoms = kinase.positions[Trace.of(kinase.topology).atoms]
    one = DensityMap.simulate(kinase.topology, kinase.positions, 6.0, 2.0)
    other = DensityMap.simulate(kinase.topology, kinase.positions, 6.0, 1.7, margin=14.0)
    shifted = DensityMap.simulate(
        kinase.topology, kinase.positions + np.array([2.0, 0, 0]), 6.0, 1.7, margin=14.0
    )
    assert change_of_volumes(one, one, [atoms]) == pytest.approx(0, abs=1e-9)
    same, moved = (change_of_volumes(one, each, [atoms]) for each in (other, shifted))
    assert 0 < same < 0.01 and moved > 10 * same
    far = DensityMap.simulate(kinase.topology, kinase.positions + 300.0, 6.0, 2.0)
    assert change_of_volumes(one, far, [atoms]) is None
