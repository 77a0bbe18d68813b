"""CC_mask, CC_volume, CC_peaks and CC_box against cctbx' values, and what is undefined."""

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.models.structures import read_model
from openmm_density.validation.box_correlations import box_correlations

# mmtbx.maps.map_model_cc of cctbx-base 2025.11 on these files: mask, volume, peaks, box.
BY_CCTBX = {
    ("emd5925_frag", "5925_native.pdb", "emd5925.mrc.gz", 3.64): (0.84881, 0.85140, 0.86643, 0.86643),
    ("emd6374_frag", "6374_native.pdb", "emd6374.mrc.gz", 2.9): (0.68331, 0.68951, 0.51875, 0.51875),
}


@pytest.mark.parametrize("case", BY_CCTBX, ids=lambda case: case[0])
def test_the_correlations_are_those_of_cctbx(small_data, case):
    folder, model_name, map_name, resolution = case
    model = read_model(small_data / folder / model_name)
    density_map = DensityMap.from_file(small_data / folder / map_name)
    found = box_correlations(
        density_map,
        model.topology,
        model.positions,
        resolution,
        b_factors=model.b_factors,
        occupancies=model.occupancies,
    )
    np.testing.assert_allclose(found, BY_CCTBX[case], atol=2e-3)


def test_a_map_of_the_model_itself_correlates_wholly_and_b_factors_count(map5925, emd5925):
    simulated = DensityMap.simulate(
        emd5925.topology, emd5925.positions, 4.0, like=map5925, b_factors=emd5925.b_factors
    )
    arguments = simulated, emd5925.topology, emd5925.positions, 4.0
    own = box_correlations(*arguments, b_factors=emd5925.b_factors)
    np.testing.assert_allclose(own, 1, atol=1e-4)
    assert all(other < same for other, same in zip(box_correlations(*arguments), own))
    # An atom that is half there scatters half.
    occupancies = np.linspace(0.3, 1, len(emd5925.positions))
    half = box_correlations(*arguments, b_factors=emd5925.b_factors, occupancies=occupancies)
    assert half.cc_mask < own.cc_mask


def test_of_a_crystal_there_is_no_box_and_away_from_the_map_nothing(small_data, map5925, emd5925):
    model = read_model(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb")
    crystal = DensityMap.from_file(small_data / "xray_1g8a_P21" / "composite_omit_map.mtz")
    found = box_correlations(crystal, model.topology, model.positions, 1.8, b_factors=model.b_factors)
    assert found.cc_mask > 0.8 and found.cc_volume > 0.8 and found.cc_peaks is found.cc_box is None
    assert box_correlations(map5925, emd5925.topology, emd5925.positions + 500, 4.0) == (None,) * 4
    with pytest.raises(InputError, match="resolution"):
        box_correlations(map5925, emd5925.topology, emd5925.positions, -1)
    with pytest.raises(InputError, match="atom"):
        box_correlations(map5925, app.Topology(), np.zeros((0, 3)), 4.0)
