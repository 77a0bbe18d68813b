"""Which two maps can be the halves of one reconstruction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.errors import InputError
from openmm_density.maps.half_maps import SAME, check_half_maps


@pytest.fixture
def first():
    data = np.random.default_rng(3).normal(2.0, 1.0, (7, 8, 9))
    return DensityMap(data, np.diag([1.0, 1.1, 1.2]), np.array([5.0, -3.0, 0.0]))


@pytest.mark.parametrize("made", [lambda x: x, lambda x: 3 * x - 1, lambda x: x.astype(np.float16)])
def test_one_map_twice_is_refused(first, made):
    with pytest.raises(InputError, match=r"one map \(their voxels correlate by 1\.00000") as error:
        check_half_maps(first, replace(first, data=made(first.data)))
    assert "halves of one reconstruction" in str(error.value)


def test_noise_of_their_own_makes_them_halves(first):
    noise = np.random.default_rng(4).normal(size=first.shape)
    for part in (0.01, 1.0):
        second = replace(first, data=first.data + part * noise)
        correlation = np.corrcoef(first.data.ravel(), second.data.ravel())[0, 1]
        assert correlation < SAME
        check_half_maps(first, second)
    check_half_maps(first, replace(first, data=-first.data))


@pytest.mark.parametrize("which", ["first", "second"])
def test_maps_that_do_not_vary(first, which):
    empty = replace(first, data=np.full(first.shape, 0.5))
    with pytest.raises(InputError, match=rf"the {which} half map has the value 0\.5 everywhere"):
        check_half_maps(*((empty, first) if which == "first" else (first, empty)))


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": np.array([5.0, -3.0, 1.0])},
        {"matrix": np.diag([1.0, 1.1, 1.3])},
        {"data": np.ones((7, 8, 8))},
    ],
)
def test_different_grids_are_refused_by_what_differs(first, changes):
    with pytest.raises(InputError, match=r"different grids, found .*halves of one reconstruction") as error:
        check_half_maps(first, replace(first, **changes))
    own, other = error.value.found.split(" and ")
    assert own == "9 x 8 x 7 voxels of 1 x 1.1 x 1.2 Å from 5, -3, 0 Å" != other
