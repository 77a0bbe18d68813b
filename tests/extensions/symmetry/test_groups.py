"""Point groups and helices: as gemmi's space groups have them, and as groups must be."""

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import helix, parse_symmetry, point_group
from openmm_density.extensions.symmetry.groups import about


@pytest.mark.parametrize(
    "name, n", [("C2", 2), ("C7", 7), ("D2", 4), ("D7", 14), ("T", 12), ("O", 24), ("I", 60)]
)
def test_a_point_group_is_closed_and_of_rotations(name, n):
    rotations = point_group(name)
    assert rotations.shape == (n, 3, 3)
    np.testing.assert_allclose(rotations[0], np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rotations), 1.0)
    products = np.einsum("aij,bjk->abik", rotations, rotations).reshape(-1, 1, 3, 3)
    assert np.abs(products - rotations).max(axis=(2, 3)).min(axis=1).max() < 1e-9
    assert len(np.unique(rotations.round(6).reshape(n, 9), axis=0)) == n


@pytest.mark.parametrize(
    "name, space_group", [("C4", "P 4"), ("D2", "P 2 2 2"), ("T", "P 2 3"), ("O", "P 4 3 2")]
)
def test_axes_are_where_crystals_have_them(name, space_group):
    operations = [np.array(op.rot) / op.DEN for op in gemmi.SpaceGroup(space_group).operations()]
    off = np.abs(point_group(name)[:, None] - np.array(operations)).max(axis=(2, 3))
    assert off.shape[1] == len(off)
    assert off.min(axis=1).max() < 1e-9


def test_a_helix_rises_and_turns():
    rotations, translations = helix(1.41, 22.03, -2, 3)
    np.testing.assert_allclose(translations[:, 2], [0, -2.82, -1.41, 1.41, 2.82, 4.23], atol=1e-12)
    angles = np.rad2deg(np.arctan2(rotations[:, 1, 0], rotations[:, 0, 0]))
    np.testing.assert_allclose(angles, [0, -44.06, -22.03, 22.03, 44.06, 66.09])


def test_operators_leave_the_centre_where_it_is():
    centre = np.array([10.0, -20.0, 5.0])
    frame = point_group("T")[1]
    rotations, translations = about(point_group("D3"), np.zeros((6, 3)), frame, centre)
    np.testing.assert_allclose(rotations @ centre + translations, np.tile(centre, (6, 1)))


@pytest.mark.parametrize("text, group", [("c4", "C4"), (" D7 ", "D7"), ("t", "T"), ("AUTO", "auto")])
def test_words_are_read(text, group):
    assert parse_symmetry(text).group == group
    assert parse_symmetry("helical:1.41,-22.03") == ("helical", 1.41, -22.03)


@pytest.mark.parametrize(
    "text", ["C1", "C", "X4", "D0", "helical", "helical:1", "helical:0,20", "helical:nan,2", "", "C²"]
)
def test_other_words_are_refused(text):
    with pytest.raises(InputError, match="symmetry must "):
        parse_symmetry(text)
