"""``openmm-density fit --replicas``: what it writes, how it goes on after it was interrupted, and what it refuses."""

from __future__ import annotations

import json
import signal

import gemmi
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.ensemble import search

from ...cli.commands import run
from ...fragments import RESOLUTION, fragment

ON_CPU = ("--platform", "CPU")
STEPS = ("--steps", 40, "--protocol", "quick", "--place", "off", "--threads", 1, "--strength", 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    model = fragment(folder / "model.pdb", residues=8)
    simulated = DensityMap.simulate(
        model.topology, model.positions, RESOLUTION, 1.25, margin=14.0, noise=0.1, seed=1
    )
    simulated.write(folder / "map.mrc")
    return folder


def command(folder, *more):
    return ("fit", folder / "model.pdb", folder / "map.mrc", "--resolution", 5, *ON_CPU, *STEPS, *more)


def test_an_interrupted_ensemble_is_resumed_and_written(folder, tmp_path, monkeypatch, capsys):
    save = search.save_search

    def interrupting(path, state):
        save(path, state)
        signal.raise_signal(signal.SIGTERM)  # SIGINT is ignored in jobs in the background of a shell

    monkeypatch.setattr(search, "save_search", interrupting)
    assert run(*command(folder, "--replicas", 2, "--output", tmp_path / "run")) == 130
    assert (
        "interrupted in the search for an ensemble, after the fit of one model; " in capsys.readouterr().err
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["doubts"][0].startswith(
        "the search for an ensemble was interrupted: these results are those of the fit of one model"
    )
    assert (tmp_path / "run" / "unfinished" / "ensemble.npz").is_file()
    monkeypatch.setattr(search, "save_search", save)
    assert run("fit", "--resume", tmp_path / "run") == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert any("no reason for an ensemble" in note for note in summary["notes"])
    told = summary["ensemble"]
    assert told["replicas"] == 2 and sum(told["weights"]) == pytest.approx(1, abs=1e-4)
    assert told["verdict"]["kind"] == "shells" and not told["verdict"]["is_ensemble"]
    assert [each["rmsf"] for each in told["rmsf"]] == [each["rmsf"] for each in summary["residues"]]
    assert summary["seconds_by_part"]["ensemble"] > 0
    assert len(gemmi.read_structure(str(tmp_path / "run" / "ensemble.cif"))) == 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert "One model, or many?" in page
    assert "--replicas 2" in summary["command"]
    assert not (tmp_path / "run" / "unfinished").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--replicas", 1), "--replicas must be 2 or more for an ensemble, found 1"),
        (("--replicas", 0), "--replicas must be"),
        (("--replicas", 4, "--solvent", "water"), "--replicas of one map cannot be in water"),
        (("--replicas", 4, "--similarity", "map-potential"), "--replicas share their mean density"),
        (("--replicas", 4, "--similarity", "inner-product"), "the best replica would have all the weight"),
    ],
)
def test_what_no_ensemble_can_have_is_refused_at_once(folder, tmp_path, capsys, options, problem):
    assert run(*command(folder, *options, "--output", tmp_path / "run")) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
