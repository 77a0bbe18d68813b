import gemmi
import numpy as np
import pytest
from openmm import unit

from openmm_density import InputError, SymmetryOperators

CELL = (50.0, 50.0, 60.0, 90.0, 90.0, 120.0)
HALF = np.diag([-1.0, -1.0, 1.0])


def test_the_identity_is_first_and_added_where_it_is_missing():
    given = SymmetryOperators.from_matrices([HALF, np.eye(3)], [[10.0, 0, 0], [0, 0, 0]])
    added = SymmetryOperators.from_matrices([HALF], [[1.0, 0, 0]] * unit.nanometer)
    for operators in (given, added):
        assert len(operators) == 2
        np.testing.assert_array_equal(operators.rotations, [np.eye(3), HALF])
        np.testing.assert_array_equal(operators.translations, [[0, 0, 0], [10.0, 0, 0]])
    np.testing.assert_array_equal(given.expanded(np.array([[1.0, 2, 3]]))[1], [[9.0, -2, 3]])
    assert given.is_group()
    assert not SymmetryOperators.from_matrices([np.eye(3)], [[0, 0, 5.0]]).is_group()


@pytest.mark.parametrize("symbol", ["P n n n :1", "P n n n :2", "P 4/n :1", "C 1 2 1", "H 3 2", "F 2 2 2"])
def test_every_setting_and_origin_is_that_of_gemmi(symbol):
    group = gemmi.find_spacegroup_by_name(symbol.replace(" :", ":"))
    cell = CELL if group.hm.startswith(("H", "R")) else (50.0, 50.0, 60.0, 90.0, 90.0, 90.0)
    operators = SymmetryOperators.crystal(cell, group)
    frame = gemmi.UnitCell(*cell)
    x = np.array([[3.0, 7.0, 11.0]])
    fraction = frame.fractionalize(gemmi.Position(*x[0])).tolist()
    expected = [
        frame.orthogonalize(gemmi.Fractional(*op.apply_to_xyz(fraction))).tolist()
        for op in group.operations()
    ]
    assert len(operators) == len(group.operations())
    assert sorted(map(tuple, np.round(expected, 6))) == sorted(
        map(tuple, np.round(operators.expanded(x)[:, 0], 6))
    )
    np.testing.assert_allclose(operators.expanded(x)[0], x)
    assert operators.is_group()


def test_a_frame_can_be_moved():
    operators = SymmetryOperators.crystal(CELL, "R 3 :H")
    x, d = np.array([[3.0, 7.0, 11.0], [4.0, 1.0, 2.0]]), np.array([1.0, -2.0, 5.0])
    np.testing.assert_allclose(operators.moved(d).expanded(x + d), operators.expanded(x) + d)


def test_atoms_on_elements_of_symmetry_are_known():
    operators = SymmetryOperators.crystal(CELL, "P 3 2 1")
    found = operators.multiplicities(
        np.array([[0, 0, 0.1], [0.2, 0, 20.0], [12.0, 0.1, 0.2], [9.0, 8.0, 7.0]])
    )
    np.testing.assert_array_equal(found, [6, 3, 2, 1])


@pytest.mark.parametrize(
    "rotations, translations, message",
    [
        (np.eye(3), [0, 0, 0], r"must be n matrices of 3 by 3"),
        ([np.eye(3)] * 2, [[0, 0, 0]], r"must be n matrices of 3 by 3"),
        ([2 * np.eye(3)], [[0, 0, 0]], "must be orthogonal matrices, and number 0 is not"),
        ([HALF], [[np.nan, 0, 0]], "must hold finite numbers"),
        ([HALF, HALF], [[0, 0, 1.0]] * 2, "twice"),
        ([np.eye(3), np.eye(3)], [[0, 0, 0]] * 2, "hold the identity twice"),
    ],
)
def test_operators_that_are_none_are_refused(rotations, translations, message):
    with pytest.raises(InputError, match=message):
        SymmetryOperators.from_matrices(rotations, translations)


def test_space_group_and_cell_must_belong_together():
    with pytest.raises(InputError, match="space_group is not known"):
        SymmetryOperators.crystal(CELL, "P 99")
    with pytest.raises(InputError, match="cell does not have the symmetry of space group P 43 21 2"):
        SymmetryOperators.crystal((50.0, 52.0, 60.0, 90.0, 90.0, 90.0), "P 43 21 2")
