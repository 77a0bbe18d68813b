"""A helix that was put into models and maps is found again where it was put."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import find_helix_in_chains, find_helix_in_map, helix, helix_of_motion
from openmm_density.extensions.symmetry.groups import about

from .test_finding import CENTRE, OFFSET, assembly, unit  # noqa: F401

RISE, TWIST = 21.0, 50.0
TILTED = Rotation.from_euler("xyz", (2.0, -3.0, 10.0), degrees=True).as_matrix()


def along(first, last, twist=TWIST):
    return about(*helix(RISE, twist, first, last), TILTED, CENTRE)


def check_place(place, twist=TWIST):
    """Compare a helix with that which was put in: its axis to 0.1° where the atoms are, all of it to 0.1 Å."""
    axis = place.frame[:, 2]
    assert np.degrees(np.arccos(min(abs(axis @ TILTED[:, 2]), 1.0))) < 0.3
    np.testing.assert_allclose([place.rise, place.twist], [RISE, twist], atol=0.1)
    rotations, translations = along(0, 1, twist)
    found = place.operators(0, 1)
    point = CENTRE + OFFSET
    expected = rotations[1] @ point + translations[1]
    np.testing.assert_allclose(found[0][1] @ point + found[1][1], expected, atol=0.15)


def test_the_axis_rise_and_twist_of_a_motion():
    rotations, translations = along(0, 1)
    place = helix_of_motion(rotations[1], translations[1])
    check_place(place)
    np.testing.assert_allclose(place.operators(0, 1)[0], rotations, atol=1e-9)
    np.testing.assert_allclose(place.operators(0, 1)[1], translations, atol=1e-9)


def test_the_helix_of_chains_in_any_order_is_found(tmp_path, unit):  # noqa: F811
    order = [2, 0, 4, 1, 3]
    model = assembly(tmp_path / "model.cif", unit, *along(-1, 3), noise=0.05, order=order)
    found, place = find_helix_in_chains(model)
    assert found.group == "helical"
    assert 0.04 < found.rmsd < 0.2
    if place.rise < 0:
        place = type(place)(-place.rise, -place.twist, place.frame, place.centre)
    np.testing.assert_allclose([abs(place.rise), abs(place.twist)], [RISE, TWIST], atol=0.1)
    # Chains are named in the order of the operators: the unit, then copies -1, 1, 2 and 3.
    numbers = {"A": 0, "B": -1, "C": 1, "D": 2, "E": 3}
    first = numbers[found.units[0][0]]
    for (name,), rotation, translation in zip(found.units, found.rotations, found.translations):
        truth = along(numbers[name] - first, numbers[name] - first)
        np.testing.assert_allclose(rotation, truth[0][-1], atol=3e-3)
        point = CENTRE + OFFSET
        np.testing.assert_allclose(
            rotation @ point + translation, truth[0][-1] @ point + truth[1][-1], atol=0.2
        )


def test_chains_of_a_ring_are_on_no_helix(tmp_path, unit):  # noqa: F811
    rotations = Rotation.from_rotvec(np.outer(np.arange(3) * 2 * np.pi / 3, TILTED[:, 2])).as_matrix()
    model = assembly(tmp_path / "model.cif", unit, rotations, CENTRE - rotations @ CENTRE)
    with pytest.raises(InputError, match="has 3 copies that are on no helix"):
        find_helix_in_chains(model)


def test_a_model_of_one_chain_has_no_helix_to_find(tmp_path, unit):  # noqa: F811
    with pytest.raises(InputError, match="has no copies of one unit"):
        find_helix_in_chains(assembly(tmp_path / "model.cif", unit, np.eye(3)[None], np.zeros((1, 3))))


@pytest.fixture(scope="module")
def helical(tmp_path_factory, unit):  # noqa: F811
    """A box cut out of a longer helix, as maps of filaments are, and the unit in its middle."""
    model = assembly(tmp_path_factory.mktemp("helix") / "model.cif", unit, *along(-5, 5))
    density_map = DensityMap.simulate(model.topology, model.positions, 6.0, 2.5)
    height = density_map.to_index(CENTRE[None])[0, 2]
    first, last = int(height) - 24, int(height) + 25
    data = density_map.data[first:last]
    data = data + np.random.default_rng(0).normal(0, 0.3 * data.std(), data.shape)
    origin = density_map.origin + density_map.matrix @ [0, 0, first]
    return model.positions[: len(model.positions) // 11], DensityMap(data, density_map.matrix, origin)


def test_the_helix_of_a_map_is_found_from_nearly_right_numbers(helical):
    unit_positions, density_map = helical
    place, found = find_helix_in_map(density_map, 20.6, 50.5)
    check_place(place)
    assert found.mean > 0.8
    first, last = place.copies_inside(density_map, unit_positions)
    for k in (first - 1, first, last, last + 1):
        rotations, translations = along(k, k)
        index = density_map.to_index(unit_positions @ rotations[-1].T + translations[-1])
        inside = ((index >= 0) & (index <= density_map.size - 1)).all(axis=1).mean()
        assert (inside > 0.1) == (first <= k <= last)


def test_copies_beyond_the_ends_of_a_short_helix_are_not_counted(tmp_path, unit):  # noqa: F811
    model = assembly(tmp_path / "model.cif", unit, *along(-2, 2))
    density_map = DensityMap.simulate(model.topology, model.positions, 6.0, 2.5)
    origin = density_map.origin - density_map.matrix @ [20, 20, 20]
    wide = DensityMap(np.pad(density_map.data, 20), density_map.matrix, origin)
    place = helix_of_motion(*(each[1] for each in along(0, 1)))
    unit_atoms = len(model.positions) // 5
    assert place.copies_inside(wide, model.positions[:unit_atoms]) == (-2, 2)


def test_a_helix_of_the_other_hand_is_refused(helical):
    with pytest.raises(
        InputError, match=r"the map does not have the symmetry helical:21,-50: .* by only -?0\.\d\d"
    ):
        find_helix_in_map(helical[1], RISE, -TWIST)
