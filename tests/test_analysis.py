"""Trajectories against a map."""

from __future__ import annotations

import json

import numpy as np
import pytest
from openmm import unit

from openmm_density import DensityMap
from openmm_density.analysis import (
    correlation,
    frames_in_map,
    fsc,
    q_score,
    residue_correlation,
    score,
)
from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.q_score import q_scores

from .small_models import moving


@pytest.fixture(scope="module")
def kinesin_map(small_data):
    return DensityMap.from_file(small_data / "emd6187_kinesin" / "chain_K_box.ccp4")


class TestScores:
    def test_frames_agree_with_the_correlation_of_each(self, kinesin, kinesin_map, kinesin_path):
        trajectory = moving(kinesin, 4)
        scores = score(trajectory, kinesin_map, 5.0)
        model = read_model(kinesin_path)
        correlation = MapCorrelation(kinesin_map, model.topology, 5.0)
        assert scores.residue_correlations.shape == (4, model.topology.getNumResidues())
        for frame in range(4):
            expected = correlation.evaluate(model.positions + np.array([0.5 * frame, 0, 0]))
            assert scores.cc_mask[frame] == pytest.approx(expected.cc_mask, abs=1e-5)
            assert np.allclose(
                scores.residue_correlations[frame], expected.residues, atol=1e-4, equal_nan=True
            )
        assert scores.cc_mask[0] == pytest.approx(0.47, abs=0.05)
        assert (np.diff(scores.cc_mask) < 0).all()

    def test_stride(self, kinesin, kinesin_map):
        trajectory = moving(kinesin, 5)
        trajectory.time = np.arange(5) * 2.0
        every, other = (score(trajectory, kinesin_map, 5.0 * unit.angstrom, stride=n) for n in (1, 2))
        assert other.frames.tolist() == [0, 2, 4]
        assert other.times.tolist() == [0, 4, 8]
        assert np.array_equal(other.cc_mask, every.cc_mask[::2])
        with pytest.raises(InputError, match="stride must be 1 or more, found 0"):
            score(trajectory, kinesin_map, 5.0, stride=0)

    def test_json_has_null_for_what_is_undefined(self, kinesin, kinesin_map):
        away = moving(kinesin, 2, step=100.0)
        with pytest.warns(UserWarning, match="frame 1 is outside the map"):
            scores = score(away, kinesin_map, 5.0)
        values = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
        assert values["cc_mask"][1] == 0.0
        assert set(values["residue_correlations"][1]) == {None}
        assert isinstance(values["residue_correlations"][0][0], float)
        assert values["resolution"] == 5.0 and len(values["residue_labels"]) == kinesin.n_residues

    def test_a_frame_that_is_not_a_number_is_named(self, kinesin, kinesin_map):
        trajectory = moving(kinesin, 3)
        trajectory.xyz[2, 5] = np.nan
        residue = trajectory.topology.atom(5).residue
        named = (
            rf"frame 2: .*1 atom \(.*{residue.name} {residue.resSeq}.* {trajectory.topology.atom(5).name}\)"
        )
        for measure in (score, correlation, residue_correlation, fsc):
            with pytest.raises(InputError, match=named):
                measure(trajectory, kinesin_map, 5.0)
        with pytest.raises(InputError, match=named):
            q_score(trajectory, kinesin_map)


class TestMeasures:
    def test_frames_are_measured_as_single_models(self, kinesin, kinesin_map, kinesin_path):
        model, trajectory = read_model(kinesin_path), moving(kinesin, 3)
        done = []
        options = {"stride": 2, "progress": lambda *numbers: done.append(numbers)}
        overall = correlation(trajectory, kinesin_map, 5.0, **options)
        residues = residue_correlation(trajectory, kinesin_map, 5.0, **options)
        scores = q_score(trajectory, kinesin_map, sigma=0.5, **options)
        curves = fsc(trajectory, kinesin_map, 5.0, **options)
        assert done == [(1, 2), (2, 2)] * 4
        assert (overall.shape, residues.shape) == ((2,), (2, trajectory.n_residues))
        assert [values.shape[0] for values in scores] == [2, 2, 2]
        for row, frame in enumerate((0, 2)):
            positions = trajectory.xyz[frame].astype(np.float64) * 10
            expected = MapCorrelation(kinesin_map, model.topology, 5.0).evaluate(positions)
            assert overall[row] == expected.cc_mask
            np.testing.assert_array_equal(residues[row], expected.residues)
            of_frame = q_scores(kinesin_map, model.topology, positions, sigma=0.5)
            assert scores.mean[row] == of_frame.mean
            np.testing.assert_array_equal(scores.residues[row], of_frame.residues)
            np.testing.assert_array_equal(scores.atoms[row], of_frame.atoms)
            curve = model_fsc(kinesin_map, model.topology, positions, 5.0)
            np.testing.assert_array_equal(curves[row].correlation, curve.correlation)
        assert curves[0].resolution() < curves[1].resolution()

    @pytest.mark.parametrize("measure", [score, correlation, residue_correlation, q_score])
    def test_frames_outside_the_map_are_told(self, kinesin, kinesin_map, measure):
        arguments = () if measure is q_score else (5.0,)
        short = kinesin.atom_slice(range(40))
        leaving = moving(short, 5, step=100.0)
        assert frames_in_map(leaving, kinesin_map).tolist() == [True, False, False, False, False]
        with pytest.warns(UserWarning, match=r"frames 2, 4 are outside the map.*from 0") as caught:
            measure(leaving, kinesin_map, *arguments, stride=2)
        assert [warning.filename for warning in caught] == [__file__]
        with pytest.raises(InputError, match="no frame of the trajectory lies in the map"):
            measure(leaving[1:], kinesin_map, *arguments)
        crystal = DensityMap(kinesin_map.data, kinesin_map.matrix, kinesin_map.origin, periodic=True)
        assert frames_in_map(leaving, crystal).all()

    @pytest.mark.parametrize("measure", [score, correlation, residue_correlation, fsc, q_score])
    def test_paths_and_resolutions_that_cannot_be_are_refused(self, kinesin, kinesin_map, measure):
        arguments = () if measure is q_score else (5.0,)
        with pytest.raises(InputError, match=r"density_map must be a DensityMap, found str.*from_file"):
            measure(kinesin, "map.mrc", *arguments)
        with pytest.raises(
            InputError, match=r"trajectory must be an mdtraj\.Trajectory, found str.*load_traj"
        ):
            measure("model.pdb", kinesin_map, *arguments)
        if arguments:
            with pytest.raises(InputError, match=r"resolution must not be finer .* found 0\.5"):
                measure(kinesin, kinesin_map, 0.5)
            with pytest.raises(InputError, match=r"resolution must not be coarser .* found 5000"):
                measure(kinesin, kinesin_map, 5000)

    @pytest.mark.parametrize("measure", [correlation, residue_correlation, fsc, q_score])
    def test_errors_name_the_frame(self, kinesin, kinesin_map, measure):
        trajectory = moving(kinesin, 2)
        trajectory.xyz[1, 3] = np.nan
        arguments = () if measure is q_score else (5.0,)
        with pytest.raises(InputError, match="frame 1: positions must be finite, found NaN"):
            measure(trajectory, kinesin_map, *arguments)
        with pytest.raises(InputError, match="stride"):
            measure(trajectory, kinesin_map, *arguments, stride=0)
