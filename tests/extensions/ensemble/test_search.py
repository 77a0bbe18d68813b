"""The search for an ensemble after a fit: it ends with models, weights and a verdict, and goes on after any interruption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.ensemble import EnsembleSearch
from openmm_density.extensions.ensemble.replica_run import BlownUp, ReplicaRun
from openmm_density.extensions.ensemble.replica_systems import Copies, ReplicaSystems
from openmm_density.extensions.ensemble.search import check_replicas
from openmm_density.fitting import FlexibleFit, RunFolder
from openmm_density.fitting.protocols import Protocol, Stage

from ...fitting.left_behind import kept_at
from ...fragments import RESOLUTION, fragment

RESIDUES = 8

PROTOCOL = Protocol(
    (Stage("draw", 20, (0.1, 1.0), (10.0, 300.0)), Stage("anneal", 20, temperature=(300.0, 10.0))),
    strength=30.0,
    final_strength=None,
    minimize_last=20,
)


class Never:
    requested = False


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    model = fragment(tmp_path_factory.mktemp("maps") / "model.pdb", residues=RESIDUES)
    plain = DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, margin=14.0)
    noisy = [
        DensityMap.simulate(model.topology, model.positions, RESOLUTION, like=plain, noise=0.3, seed=seed)
        for seed in (1, 2)
    ]
    return model, replace(plain, data=(noisy[0].data + noisy[1].data) / 2), noisy


@pytest.fixture(scope="module")
def fitted(maps):
    model, whole, _ = maps
    fit = FlexibleFit(model, whole, RESOLUTION, PROTOCOL, threads=1, place="off")
    return fit, fit.run()


def test_a_killed_search_goes_on_as_if_nothing_had_been(fitted, maps, tmp_path):
    """With half maps: one conformation is no reason for an ensemble."""
    fit, result = fitted
    halves = maps[2]
    folder, copy = tmp_path / "whole", tmp_path / "killed"
    keep = kept_at(folder, copy, lambda step, total, stage, row: stage == "one model: tighten")
    whole = EnsembleSearch(fit, result, 2, halves, steps=30).run(RunFolder(folder), Never, keep)
    told, killed = [], RunFolder(copy)
    again = EnsembleSearch(fit, result, 2, halves, steps=30).run(killed, Never, lambda *row: told.append(row))
    assert told[0][2] == "one model: tighten"
    assert np.array_equal(again.models, whole.models) and np.array_equal(again.weights, whole.weights)
    assert again.verdict == whole.verdict and again.rows == whole.rows
    assert whole.models.shape == (2, *result.final.shape)
    assert whole.weights.sum() == pytest.approx(1) and len(whole.conformations) == 1
    assert whole.verdict.kind == "half maps" and not whole.verdict.is_ensemble
    assert "gives no reason for an ensemble" in whole.verdict.sentence
    assert 0.9 < whole.cc_ensemble <= 1 and whole.strength <= 30.0
    assert {row["leg"] for row in whole.rows} == {"part", "two replicas", "one model", "whole map"}


def test_without_half_maps_shells_are_free_and_a_request_to_stop_ends_it(fitted):
    fit, result = fitted
    search = EnsembleSearch(fit, result, 2, steps=20)
    assert search.data.kind == "shells" and search.data.resolution == pytest.approx(1.2 * RESOLUTION)
    assert search.strength_of_noise is None

    class After:
        def __init__(self):
            self.looks = 0

        @property
        def requested(self):
            self.looks += 1
            return self.looks > 4

    assert search.run(None, After()) is None


def test_replicas_part_to_both_places_of_a_mixture(fitted, maps):
    """From within 1 Å of each other, in a map of two 6 Å apart."""
    fit, result = fitted
    model, _, _ = maps
    shift = np.array([6.0, 0.0, 0.0])
    both = DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, margin=14.0)
    other = DensityMap.simulate(model.topology, model.positions + shift, RESOLUTION, like=both)
    both = replace(both, data=0.5 * both.data + 0.5 * other.data)
    copies = Copies(fit._systems, fit.protocol, "CPU", result.final)
    systems = ReplicaSystems(copies, fit._systems, both, RESOLUTION, match_blur=False)
    stages = (Stage("part", 300, (0.5, 0.5), (300.0, 300.0), 7.0), Stage("settle", 500))
    run = ReplicaRun(systems, fit.protocol, stages, 60.0, 1, fit._run.engine.platform)
    state = run.begin([result.final, result.final + shift / 6], np.full(2, 0.5))
    for each in run.run(state, Never, lambda *_: None):
        state = each
    alpha = [atom.index for atom in fit.prepared.topology.atoms() if atom.name == "CA"]
    along = (state.models - result.final)[:, alpha, 0].mean(axis=1)
    assert abs(along[0]) < 1.2 and abs(along[1] - 6) < 1.2
    assert state.weights == pytest.approx([0.5, 0.5], abs=0.1)


def test_a_block_that_blows_up_is_repeated_with_smaller_steps(fitted, monkeypatch):
    fit, result = fitted
    search = EnsembleSearch(fit, result, 2, steps=20)
    block, steps = ReplicaRun._block, []

    def once(self, state, stage, stop):
        steps.append(state.caution)
        if len(steps) == 1:
            raise BlownUp("it blew up")
        return block(self, state, stage, stop)

    monkeypatch.setattr(ReplicaRun, "_block", once)
    leg = search._leg_named("one model")
    states = list(leg.run.run(leg.begin(None), Never, lambda *_: None))
    assert steps[:2] == [0, 1] and states[-1].caution == 1


def test_what_cannot_be_is_refused(fitted, maps):
    fit, result = fitted
    with pytest.raises(InputError, match="replicas must be 2 or more"):
        EnsembleSearch(fit, result, 1)
    with pytest.raises(InputError, match="more than fits in memory"):
        check_replicas(64, 100_000)
    with pytest.raises(InputError, match="half_maps must be two"):
        EnsembleSearch(fit, result, 2, maps[2][:1])
    with pytest.raises(InputError, match="are the same map"):
        EnsembleSearch(fit, result, 2, [maps[1], maps[1]])
