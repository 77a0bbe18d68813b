"""Ladders and what is none."""

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.replica_exchange import Ladder, Rung


def test_rungs_change_geometrically_between_exact_ends():
    ladder = Ladder.of_strength(3.0, 30.0, 4)
    assert ladder.strengths == pytest.approx([3.0, 6.4633, 13.9248, 30.0], abs=1e-4)
    assert ladder.strengths[-1] == 30.0 and set(ladder.temperatures) == {300.0}
    assert ladder.has_one_temperature and ladder.has_one_resolution
    hot = Ladder.of_temperature(600.0, 300.0, 3, 20.0)
    assert hot.temperatures == pytest.approx([600.0, 300.0 * np.sqrt(2), 300.0])
    blurred = Ladder.of_resolution(10.0, 5.0, 2, 20.0)
    assert [rung.resolution for rung in blurred.rungs] == [10.0, 5.0] and not blurred.has_one_resolution
    both = Ladder.between(Rung(2.0, 600.0), Rung(20.0, 300.0), 5)
    assert len(both) == 5 and both.rungs[0] == Rung(2.0, 600.0) and both.rungs[-1] == Rung(20.0, 300.0)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Ladder.of_strength(3.0, 30.0, 1), "replicas must be at least 2, found 1"),
        (lambda: Ladder((Rung(3.0),)), "replicas must be at least 2, found 1"),
        (lambda: Ladder.of_strength(30.0, 3.0, 4), "must change in one direction"),
        (lambda: Ladder((Rung(3.0), Rung(9.0), Rung(6.0))), "must change in one direction"),
        (lambda: Ladder.of_temperature(300.0, 600.0, 4, 10.0), "must change in one direction"),
        (lambda: Ladder.of_strength(0.0, 30.0, 4), "strength must be positive at both ends"),
        (lambda: Ladder((Rung(np.nan), Rung(3.0))), "strength must be finite"),
        (lambda: Ladder((Rung(-1.0), Rung(3.0))), "strength must be finite and not negative"),
        (lambda: Ladder((Rung(1.0, 0.0), Rung(3.0, 0.0))), "temperature must be finite and positive"),
        (lambda: Ladder((Rung(1.0, 300.0, 5.0), Rung(3.0))), "resolution must be given for all rungs"),
    ],
)
def test_what_is_no_ladder_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
