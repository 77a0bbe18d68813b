"""Surfaces of a map and of what a model lacks in it: small, and the same density."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from openmm_density.maps import DensityMap
from openmm_density.report import surfaces
from openmm_density.report.shown_model import ShownModel
from openmm_density.report.surfaces import surfaces_of

from ..fragments import RESOLUTION, fragment, map_of

RESIDUES = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    found = fragment(tmp_path_factory.mktemp("surfaces") / "model.pdb", residues=RESIDUES)
    return ShownModel("after", "after", found.topology, found.positions)


@pytest.fixture(scope="module")
def density_map(tmp_path_factory):
    return map_of(RESIDUES, 0.0, 0, tmp_path_factory.mktemp("map"))


def unpacked(packed):
    values = np.frombuffer(base64.b64decode(packed["values"]), dtype="u1").reshape(packed["size"])
    return DensityMap(
        (packed["lowest"] + packed["step"] * values.astype(float)).transpose(2, 1, 0),
        packed["matrix"],
        packed["origin"],
    )


def test_a_model_that_the_map_is_of_leaves_nothing_unexplained(model, density_map):
    found = surfaces_of(density_map, [model], RESOLUTION)
    peak = density_map.data.max()
    assert np.abs(unpacked(found.difference).data).max() < 0.01 * peak
    # What is moved away leaves density, and has none.
    away = ShownModel("after", "after", model.topology, model.positions + np.array([8.0, 0, 0]))
    moved = unpacked(surfaces_of(density_map, [away, model], RESOLUTION).difference)
    carbons = [atom.index for atom in model.topology.atoms() if atom.name == "CA"]
    left, has = (moved.value_at(positions[carbons]).mean() for positions in (model.positions, away.positions))
    assert left < -0.1 * peak and has > 0.1 * peak


def test_large_maps_are_coarsened(model, density_map):
    found = unpacked(surfaces_of(density_map, [model], RESOLUTION, most_voxels=8000).map)
    assert found.data.size < 9600 < density_map.data.size
    values = found.value_at(model.positions), density_map.value_at(model.positions)
    assert np.corrcoef(*values)[0, 1] > 0.97


@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_of_a_crystal_what_is_near_the_model_is_shown(model, density_map, tilt):
    matrix = density_map.matrix + np.array([[0, tilt, 0], [0, 0, 0], [0, 0, 0]])
    crystal = DensityMap(density_map.data + 1, matrix, density_map.origin, periodic=True)
    found = unpacked(surfaces_of(crystal, [model], RESOLUTION).map)
    far = ~found.mask_around(model.positions, surfaces.MARGIN + 1)
    assert np.ptp(found.data[far]) == 0 and np.ptp(found.data) > 0
    assert found.value_at(model.positions[:50]) == pytest.approx(
        crystal.value_at(model.positions[:50]), abs=0.02
    )


def test_without_a_map_or_outside_of_it_there_are_none(model, density_map):
    assert surfaces_of(None, [model], RESOLUTION) is None
    away = ShownModel("after", "after", model.topology, model.positions + 500.0)
    assert surfaces_of(density_map, [away], RESOLUTION) is None
