"""A fit with ligands that have a potential: what it says of them, in its result and where it goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.distillation import LigandEnergy
from openmm_density.extensions.ensemble.replica_run import ReplicaRun
from openmm_density.extensions.ensemble.replica_systems import Copies, ReplicaSystems
from openmm_density.extensions.exchange.replica_stage import ReplicaStage
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.protocols import Stage
from openmm_density.report.doubts import _unknown_ligand_doubts
from openmm_density.report.summary import ligand_figures

pytest.importorskip("safetensors", reason="the extra [ligands] is not installed")

RESOLUTION = 5.0


@pytest.fixture(scope="module")
def files(agreed, unsure, tmp_path_factory):
    """Return the files of a potential that knows all geometries, and of one that knows none."""
    from openmm_density.extensions.distillation import write_potential

    folder = tmp_path_factory.mktemp("potentials")
    for name, potential in {"agreed": agreed, "unsure": unsure}.items():
        write_potential(folder / f"{name}.safetensors", potential)
    return folder


@pytest.fixture(scope="module")
def density_map(model):
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 2.0, margin=8.0)


def fit_with(model, density_map, file, stages=None, **options):
    protocol = replace(find_protocol("quick", RESOLUTION), strength=20.0, minimize_first=5, minimize_last=5)
    protocol = (
        protocol.with_steps(40)
        if stages is None
        else replace(protocol, stages=stages, replicas=2, exchange_interval=10)
    )
    chosen = {"platform": "CPU", "threads": 1, "report_interval": 40, "place": "off", "search": "off"}
    return FlexibleFit(
        model,
        density_map,
        RESOLUTION,
        protocol,
        ligand_potentials=file,
        **{"ligand_forcefield": "xtb", **chosen, **options},
    )


@pytest.fixture(scope="module")
def doubted(model, density_map, files, tmp_path_factory):
    """Return a fit whose ligands' potential never knows them, its result and its folder."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    fit = fit_with(model, density_map, files / "unsure.safetensors")
    return fit, fit.run(folder), folder


def test_a_ligand_that_its_potential_does_not_know_is_held_and_doubted(doubted, files):
    fit, result, _ = doubted
    figures = ligand_figures(result)
    # At the start, in the end, and when each stage ends, as all of them are short.
    looks = 2 + len(fit.protocol.stages)
    assert [each["residue"] for each in figures] == ["A ACM 501", "A ACM 502"]
    for each in figures:
        assert each["file"] == str(files / "unsure.safetensors") and len(each["sha256"]) == 64
        assert (
            each["unknown"] == each["looks"] == looks
            and each["held_times"] == 1
            and each["first_unknown"] == 0
        )
        assert each["disagreement_worst"] > each["disagreement_bound"]
    doubts = _unknown_ligand_doubts({"ligand_potentials": figures})
    assert [doubt.places[0].label for doubt in doubts] == ["A ACM 501", "A ACM 502"]
    assert "was held back 1 time" in doubts[0].sentence
    known = [{**each, "unknown": 0} for each in figures]
    assert _unknown_ligand_doubts({"ligand_potentials": known}) == []


def test_a_fit_does_not_go_on_with_another_file(doubted, model, density_map, files):
    _, _, folder = doubted
    assert folder.load().ligands[0]["path"] == str(files / "unsure.safetensors")
    other = fit_with(model, density_map, files / "agreed.safetensors")
    with pytest.raises(InputError, match="another potential of A ACM 501"):
        other.run(folder)


def test_potentials_are_for_xtb_alone(model, density_map, files):
    with pytest.raises(InputError, match='can only be used with ligand_forcefield="xtb"'):
        fit_with(model, density_map, files / "agreed.safetensors", ligand_forcefield="rigid")


@pytest.fixture
def replicas(doubted):
    """Return the Systems of an ensemble of that fit, and a run of one short stage."""
    fit, result, _ = doubted
    copies = Copies(fit._systems, fit.protocol, "CPU", result.final)
    systems = ReplicaSystems(copies, fit._systems, fit.density_map, RESOLUTION, match_blur=False)
    stages = (Stage("hold", 20),)
    return systems, ReplicaRun(systems, fit.protocol, stages, 20.0, 1, fit._run.engine.platform), result


def test_replicas_that_exchange_hold_their_own_ligands(model, density_map, files, monkeypatch, tmp_path):
    """The potential does not know an oxygen 4 Å from its carbon: that of the first ligand on the lowest rung."""
    monkeypatch.setattr(
        LigandEnergy, "disagreement", lambda _, place: 1e9 * (np.linalg.norm(place[2] - place[1]) > 0.4)
    )
    stages = (Stage("draw", 10), Stage("exchange", 20, (0.5, 1.0), (300.0, 300.0), exchange=True))
    fit = fit_with(model, density_map, files / "agreed.safetensors", stages=stages)
    seen, show = [], ReplicaStage.look_at_ligands

    def look(self, state):
        found = self._exchange.state
        carbon, oxygen = self._ligands.placed[0].atoms[1:3]
        found.positions[0, oxygen] = found.positions[0, carbon] + [0.0, 0.0, 0.5]
        self._exchange.restore(found)
        show(self, state)
        seen.append([each.states for each in self._exchange.set_ups])
        names = [placed.parameter_name for placed in self._ligands.placed]
        replicas = self._exchange._replicas
        seen.append(
            [[replicas._contexts[slot].getParameter(name) for name in names] for slot in replicas._slots]
        )

    monkeypatch.setattr(ReplicaStage, "look_at_ligands", look)
    result = fit.run(RunFolder(tmp_path))
    states, strengths = seen
    assert [[each["held_times"] for each in replica] for replica in states] == [[1, 0], [0, 0]]
    assert strengths == [[0.0, 1.0], [1.0, 1.0]]
    (told,) = result.found["exchange"]
    assert told["held_ligands"] == [
        {"residue": "A ACM 501", "held_times": [1, 0]},
        {"residue": "A ACM 502", "held_times": [0, 0]},
    ]
    assert "ligands" not in told
    assert [each["held_times"] for each in result.ligands] == [int(told["chosen"] == 0), 0]
