"""The refinement against amplitudes at the end of a cycle."""

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.crystal_fit import CrystalFit
from openmm_density.extensions.crystals import phased_file


@pytest.fixture(scope="module")
def result(folder, tmp_path_factory):
    """Return a fit of one cycle with hardly any dynamics."""
    output = tmp_path_factory.mktemp("refined") / "run"
    options = {"cycles": 1, "steps": 20, "threads": 1, "platform": "CPU", "report_interval": 10}
    return CrystalFit(folder / "start.pdb", folder / "data.mtz", output, **options).run()


def test_a_model_that_is_off_comes_back_to_the_true_one(result, folder):
    start, end = result.cycles
    true = phased_file(folder / "true.pdb", result.phased.reflections).r_factors
    assert start.r_free > 0.45 and end.r_free < true.r_free + 0.05 and end.r_work < true.r_work + 0.02
    places = [
        np.array([cra.atom.pos.tolist() for cra in gemmi.read_structure(str(path))[0].all()])
        for path in (folder / "start.pdb", result.folder / "fitted.pdb", folder / "true.pdb")
    ]
    before, after = (np.linalg.norm(each - places[2], axis=1) for each in places[:2])
    assert np.median(after) < 0.1 < 0.5 < np.median(before)


def test_it_ends_in_ideal_geometry_and_says_what_it_did(result):
    (note,) = [each for each in result.summary["notes"] if "refined against the amplitudes" in each]
    values = [float(word) for word in note.rstrip(".").split("R-work ")[1].split(" to ")]
    assert values[1] == pytest.approx(result.best.r_work, abs=2e-4) and values[1] < values[0] - 0.01
    geometry = result.summary["geometry_final"]
    assert geometry["bond_rmsz"] < 0.7 and geometry["angle_rmsz"] < 1.0
    b_factors = result.summary["b_factors"]
    assert b_factors["least_b"] < b_factors["mean_b"] < b_factors["largest_b"]
