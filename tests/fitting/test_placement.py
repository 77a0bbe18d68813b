"""The rigid-body search: a model far from its density finds it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density.base.errors import InputError
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.fit_map import FitMap
from openmm_density.fitting.placement import Placement, check_placement, find_placement, placed
from openmm_density.fitting.rigid_bodies import RigidBodies
from openmm_density.validation.map_checks.coverage import IN_DENSITY, coverage

from ..fragments import RESOLUTION, fragment, map_of, rotated


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", residues=60), map_of(60, 0.3, 1, folder)


def heavy(model):
    return model.positions[[atom.element.symbol != "H" for atom in model.topology.atoms()]]


def rmsd(a, b):
    return np.sqrt(((a - b) ** 2).sum(axis=1).mean())


def test_a_model_comes_back_from_far_away(parts):
    model, density_map = parts
    away = rotated(model, 5, np.array([60.0, -35.0, 20.0]))
    found = find_placement(away, FitMap(density_map, RESOLUTION))
    assert rmsd(found.moved(away.positions), model.positions) < 0.3
    assert rmsd(found.apply(away).positions, model.positions) < 0.3
    assert found.moved_by == pytest.approx(rmsd(away.positions, found.moved(away.positions)))
    assert found.similarity_after > 0.75 > 0.1 > found.similarity_before
    assert found.coverage_after > IN_DENSITY > found.coverage_before
    assert Placement(**found.as_dict()) == found


def test_a_model_in_its_density_stays_and_another_is_placed(parts):
    model, density_map = parts
    assert coverage(heavy(model), density_map) > 0.8
    nearby = replace(model, positions=model.positions + np.array([2.0, -2.0, 1.0]))
    assert placed(nearby, FitMap(density_map, RESOLUTION)) is None
    away = replace(model, positions=model.positions + 500.0)
    assert coverage(heavy(away), density_map) == pytest.approx(0.0)
    assert placed(away, FitMap(density_map, RESOLUTION), "off") is None
    with pytest.raises(InputError, match="somewhere"):
        check_placement(model, "somewhere")


@pytest.mark.parametrize("bodies", [1, 2])
def test_the_gradient_of_rigid_motions(parts, bodies):
    model, density_map = parts
    body_of = (np.arange(len(model.positions)) >= len(model.positions) / 3).astype(int) * (bodies - 1)
    rigid = RigidBodies(model.topology, model.positions, density_map, RESOLUTION, body_of)
    rotations, places = (
        Rotation.from_rotvec([[0.1, 0.2, -0.1]] * bodies),
        rigid.centres + np.array([0.5, -0.7, 0.3]),
    )
    _, gradient = rigid.similarity(rotations, places)
    found = np.empty((bodies, 6))
    for row, axis in np.ndindex(bodies, 6):
        step = np.zeros((bodies, 6))
        step[row, axis] = 0.01
        values = [
            rigid.similarity(
                Rotation.from_rotvec(sign * step[:, :3]) * rotations, places + sign * step[:, 3:]
            )[0]
            for sign in (1, -1)
        ]
        found[row, axis] = (values[0] - values[1]) / 0.02
    assert np.allclose(found, gradient, rtol=0.02, atol=0.02 * np.abs(gradient).max())


def test_a_fit_begins_where_the_model_was_placed(parts):
    model, density_map = parts
    away = replace(model, positions=model.positions + np.array([3.0, 4.0, 0.0]))
    placement = Placement(np.eye(3).tolist(), [-3.0, -4.0, 0.0], 5.0, 0.1, 0.9, 0.2, 1.0)
    fit = FlexibleFit(away, density_map, RESOLUTION, "quick", place=placement)
    has = fit.prepared.input_index >= 0
    assert rmsd(fit.prepared.positions[has], model.positions[fit.prepared.input_index[has]]) < 1e-9
