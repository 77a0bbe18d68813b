"""Free maps and half maps of a fit, which are looked at before anything is done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.fit_map import FitMap, OtherMaps
from openmm_density.maps.corrections import MapCorrections

from ..fragments import fragment

RESOLUTION = 4.0


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("maps") / "model.pdb", residues=24)


@pytest.fixture(scope="module")
def maps(model):
    """Return a map and its two halves."""
    grid = DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25)
    halves = [
        DensityMap.simulate(model.topology, model.positions, RESOLUTION, like=grid, noise=0.3, seed=seed)
        for seed in (1, 2)
    ]
    return replace(grid, data=(halves[0].data + halves[1].data) / 2), *halves


def test_they_are_corrected_as_the_map_is(maps):
    corrections = MapCorrections(invert=True)
    whole, *halves = (each.inverted() for each in maps)
    found = OtherMaps.of(FitMap(whole, RESOLUTION, corrections), halves[1], halves)
    assert np.array_equal(found.free.density_map.data, maps[2].data)
    assert np.array_equal(found.halves[0].data, maps[1].data) and found.doubts == ()
    assert OtherMaps.of(FitMap(whole, RESOLUTION), None, None) == OtherMaps()


@pytest.mark.parametrize(
    "spoiled, said",
    [
        (
            lambda whole, first, second: {"free_map": whole},
            "the free map is the very map that is fitted into",
        ),
        (
            lambda whole, first, second: {"free_map": second.inverted()},
            "contrast of the free map is inverted",
        ),
        (lambda whole, first, second: {"half_maps": [first]}, "half_maps must be two.* found 1 of them"),
        (lambda whole, first, second: {"half_maps": [first, first]}, "the two half maps are the same map"),
        (lambda whole, first, second: {"half_maps": [first, whole]}, "the second half map is the map itself"),
        (
            lambda whole, *halves: {
                "half_maps": [replace(each, data=each.data[::-1].copy()) for each in halves]
            },
            "do not belong to the map",
        ),
    ],
)
def test_a_fit_refuses_them_before_it_prepares_its_model(model, maps, spoiled, said, monkeypatch):
    monkeypatch.setattr("openmm_density.fitting.flexible_fit._prepared", lambda *_: pytest.fail("prepared"))
    with pytest.raises(InputError, match=said):
        FlexibleFit(model, maps[0], RESOLUTION, "quick", place="off", threads=1, **spoiled(*maps))
