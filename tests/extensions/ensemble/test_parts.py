"""Where replicas begin, what conformations they are, what is free, and what of it the verdict says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.ensemble.free_data import FreeData, WeightedModels, compare_ensembles
from openmm_density.extensions.ensemble.replica_run import ReplicaState
from openmm_density.extensions.ensemble.saved_search import SearchState, load_search, save_search
from openmm_density.extensions.ensemble.starts import soft_modes
from openmm_density.extensions.ensemble.states import conformations, fluctuations, trace_of
from openmm_density.extensions.ensemble.verdict import Verdict
from openmm_density.maps.fourier import fourier_filtered

from ...fragments import RESOLUTION, fragment


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fragment(tmp_path_factory.mktemp("parts") / "model.pdb", residues=16)


@pytest.fixture(scope="module")
def density_map(model):
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, margin=14.0)


def test_modes_are_soft_motions_of_an_rmsd_of_1(model):
    trace = trace_of(model.topology)
    modes = soft_modes(model.topology, model.positions, 3)
    assert len(modes) == 3
    for mode in modes:
        traced = mode[trace]
        assert np.sqrt((traced**2).sum(axis=1).mean()) == pytest.approx(1)
        assert np.abs(traced.mean(axis=0)).max() < 1e-6  # no translation
        rotation = np.cross(model.positions[trace] - model.positions[trace].mean(axis=0), traced).sum(axis=0)
        assert np.abs(rotation).max() < 1e-4
    assert abs((modes[0][trace] * modes[1][trace]).sum()) < 1e-6


def test_replicas_that_are_near_are_one_conformation(model):
    trace = trace_of(model.topology)
    shifts = np.array([0.0, 8.0, 0.5, 8.3])[:, None, None] * np.array([1.0, 0.0, 0.0])
    models, weights = model.positions + shifts, np.array([0.1, 0.2, 0.3, 0.4])
    found = conformations(models, weights, trace, RESOLUTION)
    assert [each.replicas for each in found] == [[3, 1], [2, 0]]
    assert [each.weight for each in found] == pytest.approx([0.6, 0.4])
    mean = (weights * shifts[:, 0, 0]).sum()
    expected = np.sqrt((weights * (shifts[:, 0, 0] - mean) ** 2).sum())
    assert fluctuations(models, weights, model.topology) == pytest.approx(np.full(16, expected))
    assert len(conformations(models[:1], np.ones(1), trace, RESOLUTION)) == 1


def test_the_ensemble_of_a_mixture_correlates_better_than_one_model(model, density_map):
    moved = model.positions + np.array([5.0, 0.0, 0.0])
    other = DensityMap.simulate(model.topology, moved, RESOLUTION, like=density_map)
    mixed = replace(density_map, data=0.6 * density_map.data + 0.4 * other.data)
    one = WeightedModels(model.positions[None], np.ones(1))
    both = WeightedModels(np.array([model.positions, moved]), np.array([0.6, 0.4]))
    for band in (None, (1 / 8, 1 / RESOLUTION)):
        found = compare_ensembles(one, both, model.topology, mixed, RESOLUTION, band)
        assert found.correlations[1] > 0.98 and found.gain > 2 * found.error > 0


def test_the_finest_shells_are_free_without_half_maps(density_map):
    data = FreeData.of(density_map, (), RESOLUTION)
    fine = fourier_filtered(data.work.data, data.work.matrix, lambda s2: s2 > 1.01 / data.resolution**2)
    assert np.abs(fine).max() < 1e-3 * np.abs(data.work.data).max()
    assert data.band == pytest.approx((1 / 6, 1 / 5)) and data.noise is None
    with pytest.raises(InputError, match="half_maps must be two"):
        FreeData.of(density_map, [density_map], RESOLUTION)


def test_a_search_is_saved_and_a_damaged_state_is_not_taken_for_a_whole_one(tmp_path):
    rng = np.random.default_rng(0)
    replicas = ReplicaState(
        rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 3)), np.array([0.4, 0.6]), 3, 20, 7, 1, [{"a": 1}]
    )
    assert load_search(tmp_path, 5) is None
    save_search(tmp_path, SearchState(0, replicas))
    save_search(tmp_path, SearchState().after_leg(replicas))
    again = load_search(tmp_path, 5)
    assert again.leg == 1 and again.running is None
    assert np.array_equal(again.ended[0].positions, replicas.positions)
    assert (again.ended[0].stage_step, again.ended[0].caution, again.ended[0].rows) == (20, 1, [{"a": 1}])
    # The newest damaged, the one before is read; both damaged, that is said.
    (tmp_path / "ensemble.npz").write_bytes(b"PK damaged")
    assert load_search(tmp_path, 5).running.block == 7
    (tmp_path / "ensemble.previous.npz").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be resumed, because"):
        load_search(tmp_path, 5)
    save_search(tmp_path, SearchState(0, replicas))
    (tmp_path / "ensemble.previous.npz").unlink()
    with pytest.raises(InputError, match="has the shape"):
        load_search(tmp_path, 6)


@pytest.mark.parametrize(
    ("ensemble", "error", "found", "words"),
    [
        (0.90, 0.01, 2, "gives a reason for an ensemble"),
        (0.82, 0.01, 2, "no reason for an ensemble: correlation"),
        (0.804, 0.0001, 2, "no reason for an ensemble: correlation"),
        (0.90, 0.01, 1, "no reason for an ensemble: the replicas are one conformation"),
    ],
)
def test_the_verdict_asks_for_a_gain_that_is_sure_and_for_two_conformations(ensemble, error, found, words):
    verdict = Verdict("half maps", (None, 5.0), 0.78, 0.9, 0.80, ensemble, error, 0.9, 0.95, found)
    assert words in verdict.sentence and verdict.is_ensemble == ("gives a reason" in words)
    assert verdict.as_dict()["cc_gain"] == pytest.approx(ensemble - 0.8)
    assert "frequencies from 6.00 to 5.00" in replace(verdict, kind="shells", band=(6.0, 5.0)).sentence
