"""Stages in which replicas exchange."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.extensions.exchange.replica_stage import ReplicaLost, ReplicaStage
from openmm_density.extensions.replica_exchange import ReplicaExchange
from openmm_density.fitting import FlexibleFit, RunFolder, find_protocol
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.fitting.stability import Unstable

from ...fitting.left_behind import kept_at
from ...fragments import RESOLUTION, fragment, map_of

RESIDUES = 8
PROTOCOL = Protocol(
    (
        Stage("draw", 40, (0.1, 0.5), (10.0, 300.0)),
        Stage("exchange", 80, (0.1, 1.0), (400.0, 300.0), exchange=True),
        Stage("anneal", 40, temperature=(300.0, 10.0)),
    ),
    strength=30.0,
    minimize_last=20,
    replicas=3,
    exchange_interval=10,
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", (0.5, -0.4, 0.3), RESIDUES), map_of(RESIDUES, 0.1, 0, folder)


def fit_of(parts, protocol=PROTOCOL, **options):
    model, density_map = parts
    given = {"threads": 1, "report_interval": 20, "save_interval": 40, **options}
    return FlexibleFit(model, density_map, RESOLUTION, protocol, **given)


def test_the_best_replica_goes_on_and_a_killed_fit_as_if_nothing_had_been(parts, tmp_path):
    folder, copy = tmp_path / "whole", tmp_path / "killed"
    keep = kept_at(folder, copy, lambda step, total, stage, row: row is not None and step == 100)
    whole = fit_of(parts, reference=parts[0]).run(RunFolder(folder), keep)
    killed = RunFolder(copy)
    assert killed.load().replica_positions.shape == (3, *whole.final.shape)
    again = fit_of(parts, reference=parts[0]).run(killed)
    assert np.array_equal(again.final, whole.final) and again.rows == whole.rows
    (told,) = whole.found["exchange"]
    assert {name: value for name, value in again.found["exchange"][0].items() if name != "seconds"} == {
        name: value for name, value in told.items() if name != "seconds"
    }
    assert told["strengths"] == pytest.approx([3.0, 9.4868, 30.0], abs=1e-4)
    assert told["temperatures"] == pytest.approx([400.0, 346.41, 300.0], abs=1e-2)
    assert told["rounds"] == 8 and len(told["acceptance"]) == 2
    assert told["chosen"] == int(np.argmin(told["energies"])) and len(told["ca_rmsd"]) == 3
    assert json.loads(json.dumps(told)) == told
    assert [stage["steps"] for stage in whole.stages] == [40, 80, 40]
    rows = [row for row in whole.rows if row.stage == "exchange"]
    assert len(rows) == 4 and all(row.strength == pytest.approx(30.0) for row in rows)
    assert killed.load().replica_positions is None


def blow_up_once(monkeypatch, error, at):
    """Let an error come at a step of the stage; return the ladders and the time steps before and after."""
    step, ladders, timesteps = ReplicaStage.step, [], []

    def once(self, stage_step, length, stop):
        if self._exchange not in ladders:
            ladders.append(self._exchange)
            timesteps.append(1000 * self._exchange._simulated.timestep)
        if stage_step == at and len(ladders) == 1 + at // 40:
            raise error
        return step(self, stage_step, length, stop)

    monkeypatch.setattr(ReplicaStage, "step", once)
    return ladders, timesteps


@pytest.mark.parametrize("at", [20, 60])
def test_a_replica_that_leaves_its_density_is_pulled_more_on_the_lower_rungs(parts, monkeypatch, at):
    ladders, timesteps = blow_up_once(monkeypatch, ReplicaLost("a replica left its density"), at)
    result = fit_of(parts).run()
    (told,), (sentence,) = result.found["exchange"], result.blow_ups
    before, after = (exchange.ladder.strengths for exchange in (ladders[at // 40], ladders[-1]))
    assert before == pytest.approx([3.0, 9.4868, 30.0], abs=1e-4)
    assert after == pytest.approx([6.0, 13.4164, 30.0], abs=1e-4) and told["strengths"] == after.tolist()
    assert set(timesteps) == {4.0} and result.stages[-1]["strength"] == pytest.approx(30.0)
    assert sentence == (
        f"A replica left its density; the fit was rolled back to step {40 + at // 40 * 40}, and went on with replicas from "
        "6 kJ/mol per fitted atom on."
    )


def test_replicas_that_leave_their_density_at_its_full_strength_end_the_fit(parts, monkeypatch):
    def leave(self, stage_step, length, stop):
        raise ReplicaLost("a replica left its density")

    monkeypatch.setattr(ReplicaStage, "step", leave)
    with pytest.raises(
        SimulationError, match=r'left its density, at step 40, .* raise the strength of stage "exc'
    ):
        fit_of(parts).run()


@pytest.mark.parametrize("at", [20, 60])
def test_replicas_that_blew_up_begin_with_care(parts, monkeypatch, at):
    settled = []
    settle = ReplicaExchange.settle

    def noted(self):
        settle(self)
        settled.append(self)

    monkeypatch.setattr(ReplicaExchange, "settle", noted)
    ladders, timesteps = blow_up_once(monkeypatch, Unstable("it blew up"), at)
    result = fit_of(parts).run()
    # The segment after it has replicas of its own, which begin as others do.
    assert settled == [ladders[at // 40 + 1]] and timesteps[at // 40 : at // 40 + 2] == [4.0, 2.0]
    assert result.found["exchange"][0]["strengths"] == pytest.approx([3.0, 9.4868, 30.0], abs=1e-4)
    assert np.isfinite(result.final).all()


def test_the_built_in_protocol(parts):
    protocol = find_protocol("exchange", 3.6)
    (stage,) = (stage for stage in protocol.stages if stage.exchange)
    assert stage.strength == (0.1, 0.25) and stage.steps == 20000 and protocol.replicas == 8
    assert stage.temperature == (450.0, 450.0) and stage.register
    for resolution, cc in ((3.6, 0.9), (3.6, 0.1), (5.0, 0.9), (5.0, 0.1)):
        stages = find_protocol("exchange", resolution).from_start(cc).stages
        names = [stage.name for stage in stages]
        assert sum(stage.exchange for stage in stages) == 1
        assert names[names.index("exchange") + 1 :] == ["tighten", "hold", "anneal"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strength": (1.0, 0.1)}, "from a weak density to a strong one"),
        ({"strength": (0.0, 0.0)}, "from a weak density to a strong one"),
        ({"temperature": (300.0, 450.0)}, "begins hot where the density is weak"),
        ({"adaptive": True}, "neither adaptive nor until_converged"),
        ({"until_converged": True}, "neither adaptive nor until_converged"),
        ({"exchange": 1}, "exchange must be true or false"),
    ],
)
def test_stages_that_are_no_ladder_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        replace(Stage("exchange", 80, (0.1, 1.0), exchange=True), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicas": 1}, "replicas must be a whole number of at least 2"),
        ({"exchange_interval": 0}, "exchange_interval must be a whole number of at least 1"),
        ({"density_interval": 2}, "density_interval must be 1 where replicas exchange"),
    ],
)
def test_protocols_that_cannot_exchange_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        replace(PROTOCOL, **changes)


def test_replicas_in_water_are_refused(parts):
    with pytest.raises(InputError, match="without water"):
        fit_of(parts, solvent="water")
