"""Searches before stages of whole fits: told of, interrupted, blown up, resumed, and among symmetry mates."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import numpy as np
import pytest

from openmm_density import SymmetryOperators
from openmm_density.extensions.rebuilding import Rebuilding
from openmm_density.extensions.rebuilding.rotamer_search import RotamerSearch
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.protocols import Stage

from ...cli.commands import run
from ...fitting.changed_steps import change_after_steps
from ...fragments import RESOLUTION as COARSE
from ...fragments import fragment, map_of
from .searched import fit_of, simulated

RESIDUES = 12


def test_a_search_is_made_and_told_of(tmp_path, capsys):
    fragment(tmp_path / "model.pdb", (1.0, -0.8, 0.6), RESIDUES)
    map_of(RESIDUES, 0.1, 0, tmp_path).write(tmp_path / "target.mrc")
    protocol = tmp_path / "turn.toml"
    protocol.write_text("strength = 30.0\nminimize_first = 20\n[[stage]]\nsteps = 20\nrotamers = true\n")
    files = tmp_path / "model.pdb", tmp_path / "target.mrc", "--output", tmp_path / "out", "--platform=CPU"
    assert run("fit", *files, "--resolution", COARSE, "--protocol", protocol, "--search", "full") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (searched,) = summary["rebuilding"]
    assert summary["search"] == "full" and "--search full" in summary["command"]
    assert 'search = "full"' in (tmp_path / "out/protocol.toml").read_text()
    assert {"rebuilt", "shifted_by", "turned", "flipped"} <= summary["residues"][0].keys()
    assert searched["left_out"] == [] and searched["work"] > 20 and "1 search, " in capsys.readouterr().out
    assert not [note for note in summary["notes"] if note.startswith("Searches were kept")]


def test_a_signal_ends_it_and_the_fit_goes_on_later(native, density_map, tmp_path, monkeypatch):
    improved, done = RotamerSearch.improved, []

    def stopping(self, *arguments, **named):
        if not done:
            signal.raise_signal(signal.SIGTERM)
        done.append(improved(self, *arguments, **named))
        return done[-1]

    stage = Stage("hold", 20, rotamers=True)
    with monkeypatch.context() as patch:
        patch.setattr(RotamerSearch, "improved", stopping)
        result = fit_of(native, density_map, stage).run(RunFolder(tmp_path))
    assert result.interrupted and result.steps == 0
    assert done[0][1] == [], "no side chain was looked at"
    rest = fit_of(native, density_map, stage).run(RunFolder(tmp_path))
    assert not rest.interrupted and rest.steps == 20


def test_a_blow_up_after_parts_were_rebuilt_is_tried_more_gently(native, density_map, monkeypatch):
    # As where rotamers were changed: what was found is no longer the model of before.
    monkeypatch.setattr(Rebuilding, "with_fitted_rotamers", lambda _, found, *__, **___: found.copy())

    def blown(positions, number):
        if number == 4:  # when the model has come to rest, in three, and is warmed again
            positions[[5, 6]] = np.nan

    sizes = change_after_steps(monkeypatch, blown)
    result = fit_of(native, density_map, Stage("draw", 20, rotamers=True)).run()
    assert sizes[:6] == pytest.approx([4.0, 4.0, 4.0, 1.0, 0.25, 4.0])
    assert not result.found["rebuilding"][0]["undone"] and result.blow_ups == []


def test_rotamers_are_searched_for_among_mates(native):
    half_turn = np.array([np.eye(3), np.diag([-1.0, -1.0, 1.0])])
    # Beside the axis, some Å from its copy.
    there = native.positions - native.positions.mean(axis=0)
    there[:, 0] += 2.0 - there[:, 0].min()
    unit = replace(native, positions=there)
    operators = SymmetryOperators.from_matrices(half_turn, np.zeros((2, 3)))
    fit = fit_of(unit, simulated(unit), Stage("hold", 10, register=True, rotamers=True), operators=operators)
    assert fit.rebuilds_before(0)
    (search,) = fit.run().found["rebuilding"]
    assert not search["undone"] and not search["left_out"] and search["places_tried"] >= 0
