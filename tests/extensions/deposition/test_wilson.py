"""The Wilson B factor of amplitudes."""

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.crystals import read_reflections
from openmm_density.extensions.deposition.diffraction import wilson_b

from ..crystals.simulated import simulated, usual_columns, write_mtz


@pytest.mark.parametrize("b_factor", [12.0, 40.0])
def test_it_is_the_b_factor_of_the_atoms(small_data, tmp_path, b_factor):
    structure = gemmi.read_structure(str(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb"))
    for cra in structure[0].all():
        cra.atom.b_iso = b_factor
    hkl, amplitudes, _ = simulated(structure, 2.0)
    path = write_mtz(tmp_path / "data.mtz", structure, hkl, usual_columns(amplitudes, None))
    found = read_reflections(path)
    # Atoms are not at random places: shells of resolution wave about the line.
    assert wilson_b(found) == pytest.approx(b_factor, abs=3.0)
    assert wilson_b(found.selected(found.inverse_d2 < 3.9**-2)) is None
    twice = found.selected(np.arange(len(found)))
    assert wilson_b(twice) == wilson_b(found)
