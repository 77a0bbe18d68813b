import numpy as np
import pytest
from openmm import unit

from openmm_density import InputError
from openmm_density.energies.calibration import STRENGTH_PER_ATOM, strength_from_forces, strength_per_atom

UNIT_FORCES = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
OTHERS = np.array([[0.0, 30.0, 0.0], [40.0, 0.0, 0.0]])


@pytest.mark.parametrize("before", [0.0, 700.0])
def test_the_density_is_a_part_of_all_other_forces(before):
    found = strength_from_forces(UNIT_FORCES, OTHERS + before * UNIT_FORCES, before, 0.2, (0.0, 1e9))
    assert found == pytest.approx(0.2 * np.sqrt(2500 / 2))


def test_a_strength_stays_within_its_bounds_for_each_atom():
    assert strength_from_forces(UNIT_FORCES, OTHERS, 0.0, 1e9) == 400.0
    assert strength_from_forces(UNIT_FORCES, OTHERS, 0.0, 1e-9) == 10.0


def test_what_a_strength_may_be():
    assert strength_per_atom("auto") == STRENGTH_PER_ATOM
    assert strength_per_atom(2.5) == 2.5
    assert strength_per_atom(1 * unit.kilocalorie_per_mole) == pytest.approx(4.184)
    for wrong in ("strong", -1.0, np.inf, None):
        with pytest.raises(InputError, match="strength"):
            strength_per_atom(wrong)
