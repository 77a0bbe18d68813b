"""EMRinger against cctbx' values, and models that have no score."""

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models.structures import read_model
from openmm_density.validation.emringer import emringer

# mmtbx.ringer of cctbx-base 2025.11 on these files: score, threshold, part at rotamers, side chains.
BY_CCTBX = {
    ("emd5925_frag", "5925_native.pdb", "emd5925.mrc.gz"): (1.14983276, 0.75777, 1.0, 64),
    ("emd6374_frag", "6374_native.pdb", "emd6374.mrc.gz"): (4.15639760, 3.03412, 0.7555556, 96),
}


@pytest.mark.parametrize("case", BY_CCTBX, ids=lambda case: case[0])
def test_the_score_is_that_of_cctbx(small_data, case):
    folder, model, density = case
    model = read_model(small_data / folder / model)
    found = emringer(DensityMap.from_file(small_data / folder / density), model.topology, model.positions)
    np.testing.assert_allclose(found, BY_CCTBX[case], rtol=1e-5)


def test_there_is_no_score_without_side_chains_or_density(map5925, emd5925):
    assert emringer(map5925, emd5925.topology, emd5925.positions + 500) == (None, None, None, 0)
    flat = DensityMap(np.zeros_like(map5925.data), map5925.matrix, map5925.origin)
    found = emringer(flat, emd5925.topology, emd5925.positions)
    assert found.score is None and found.side_chains > 60
