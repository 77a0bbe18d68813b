"""Which two maps can be the halves of one reconstruction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.maps.half_maps import check_half_maps, check_halves_of_map
from openmm_density.maps.map_agreement import SAME, agreement_in_either


@pytest.fixture
def first():
    data = np.random.default_rng(3).normal(2.0, 1.0, (7, 8, 9))
    return DensityMap(data, np.diag([1.0, 1.1, 1.2]), np.array([5.0, -3.0, 0.0]))


@pytest.mark.parametrize("made", [lambda x: x, lambda x: 3 * x - 1, lambda x: x.astype(np.float16)])
def test_one_map_twice_is_refused(first, made):
    with pytest.raises(InputError, match=r"the same map \(their voxels correlate by 1\.00000") as error:
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


@pytest.fixture(scope="module")
def molecule():
    """Return the density of a molecule of Gaussians at 3 Å, and another one's on a finer grid around the same place."""
    rng = np.random.default_rng(5)
    made = []
    for voxel in (1.0, 0.8):
        n = int(48 / voxel)
        places = rng.uniform(12, 36, (150, 3)) / voxel
        data = np.zeros((n, n, n))
        np.add.at(data, tuple(np.rint(places).astype(int).T), 1.0)
        made.append(DensityMap(data, np.eye(3) * voxel, np.array([3.0, 4.0, 5.0])).gaussian_filter(1.2))
    return made


def halves_of(density_map, noise, seed=1):
    rng = np.random.default_rng(seed)
    sd = float(density_map.data.std())
    return [
        replace(density_map, data=density_map.data + rng.normal(0, noise * sd, density_map.shape))
        for _ in range(2)
    ]


def test_halves_belong_to_their_map_however_it_was_sharpened_and_masked(molecule):
    whole, _ = molecule
    halves = halves_of(whole.gaussian_filter(1.2), 2.0)
    masked = replace(whole, data=np.where(whole.data > 0.3 * whole.data.max(), whole.data, 0))
    for each in (whole, masked, whole.resample(1.3)):
        mean = replace(whole, data=(halves[0].data + halves[1].data) / 2)
        assert agreement_in_either(mean, each, 3.0) > 0.8
        check_halves_of_map(*halves, each, 3.0)
    assert np.corrcoef(mean.data.ravel(), masked.data.ravel())[0, 1] < 0.5  # as voxels they would not


def test_halves_of_another_map_are_refused(molecule):
    whole, other = molecule
    halves = halves_of(whole, 0.5)
    with pytest.raises(
        InputError, match=r"do not belong to the map: .* 0\.5 or more, found -?0\.[0-4]\d: give the"
    ):
        check_halves_of_map(*halves, other, 3.0)
    away = replace(whole, origin=whole.origin + 100)
    with pytest.raises(InputError, match=r"found 0\.00: give the two halves"):
        check_halves_of_map(*halves, away, 3.0)
    with pytest.raises(InputError, match="do not belong to the map"):
        check_halves_of_map(*halves, whole.inverted(), 3.0)


@pytest.mark.parametrize("which", ["first", "second"])
def test_the_map_is_no_half_of_itself(molecule, which):
    whole, _ = molecule
    half, _ = halves_of(whole, 0.5)
    scaled = replace(whole, data=3 * whole.data + 1)
    with pytest.raises(InputError, match=f"the {which} half map is the map itself"):
        check_halves_of_map(*((scaled, half) if which == "first" else (half, scaled)), whole, 3.0)
