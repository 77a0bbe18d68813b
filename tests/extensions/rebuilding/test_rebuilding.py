"""Fits that turn side chains and shift stretches before a stage."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import SimulationError
from openmm_density.extensions.rebuilding.register_search import RegisterSearch, Stretch
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.dynamics import Dynamics
from openmm_density.fitting.protocols import Stage
from openmm_density.models import Model
from openmm_density.models.preparation import prepare

from ...fitting.left_behind import kept_at
from ...small_models import heavy_clashes, turned_about
from .searched import Going, fit_of, rebuilding_of

RESIDUES = 32
FIRST, LAST = 12, 20


def alpha_carbons(model: Model) -> np.ndarray:
    return np.array([atom.index for atom in model.topology.atoms() if atom.name == "CA"])


def with_a_turned_side_chain(model: Model) -> tuple[Model, list[int]]:
    residue = next(r for r in model.topology.residues() if r.name == "ILE")
    index = {atom.name: atom.index for atom in residue.atoms()}
    moved = [i for name, i in index.items() if name not in ("N", "CA", "C", "O", "CB")]
    turned = turned_about(model.positions, index["CA"], index["CB"], np.array(moved), 2 * np.pi / 3)
    return replace(model, positions=turned), moved


def test_a_stretch_comes_back_into_register(
    native: Model, density_map: DensityMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmm_density.extensions.rebuilding.stretch_trial.ANNEALING_STEPS", 20)
    monkeypatch.setattr("openmm_density.extensions.rebuilding.rebuilding._ROUNDS", 1)
    candidates = RegisterSearch.candidates

    def long_ones(self: RegisterSearch, *given: np.ndarray) -> list[list[Stretch]]:
        """Leave out the shorter of the stretches, each of which would be shifted and minimised."""
        places = (
            [stretch for stretch in place if stretch.last - stretch.first >= 5]
            for place in candidates(self, *given)
        )
        return [place for place in places if place]

    monkeypatch.setattr(RegisterSearch, "candidates", long_ones)
    search = RegisterSearch(native.topology)
    wrong = search.shifted(native.positions, [Stretch(search.chains[0], FIRST, LAST)], 1)
    start = replace(native, positions=wrong)
    carbons = alpha_carbons(native)

    def off(positions: np.ndarray) -> float:
        return float(np.linalg.norm((positions - native.positions)[carbons[FIRST : LAST + 1]], axis=1).max())

    told = []
    result = fit_of(start, density_map, Stage("hold", 20, register=True, rotamers=True)).run(
        progress=lambda step, total, stage, row: told.append((step, total, stage))
    )
    assert result.kept == "after"
    # Minimised without the search, it stays out.
    assert off(wrong) > 3.5 and off(result.prepared.input_positions(result.relaxed)) > 3.0
    assert off(result.prepared.input_positions(result.final)) < 1.2
    # And users hear of it: while it is searched for, and in the end.
    (search,) = result.found["rebuilding"]
    assert (search["stage"], search["step"], search["undone"]) == ("hold", 0, False)
    back = max(search["stretches"], key=lambda stretch: int(stretch["last"]) - int(stretch["first"]))
    assert back["shifted_by"] == -1 and back["gain"] > 50.0 and search["places_tried"] >= 1
    # Residues are numbered from 1.
    assert abs(int(back["first"]) - FIRST - 1) <= 3 and abs(int(back["last"]) - LAST - 1) <= 3
    named = [residue.id for residue in result.prepared.model.topology.residues()]
    assert [named[row] for row in (back["rows"][0], back["rows"][-1])] == [back["first"], back["last"]]
    assert 0 < search["wall_seconds"] < result.wall_seconds
    searched = [stage for step, total, stage in told if (step, total) == (0, 20)]
    for doing in ("rebuild", "register", "side chains"):
        assert doing in searched
    assert any(re.fullmatch(r"register: A \d+-\d+ \(1 of \d+\)", stage) for stage in searched)
    assert json.loads(json.dumps(result.found["rebuilding"])) == result.found["rebuilding"]


def test_what_is_in_register_stays_and_threads_do_not_matter(
    native: Model, density_map: DensityMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmm_density.extensions.rebuilding.stretch_trial.ANNEALING_STEPS", 20)
    monkeypatch.setattr("openmm_density.extensions.rebuilding.rebuilding._ROUNDS", 1)
    search = RegisterSearch(native.topology)
    off, right = (Stretch(search.chains[0], *ends) for ends in ((FIRST, LAST), (3, 6)))
    monkeypatch.setattr(RegisterSearch, "candidates", lambda *_: [[right], [off]])
    wrong = replace(native, positions=search.shifted(native.positions, [off], -1))
    positions = prepare(wrong).positions
    rebuildings = [rebuilding_of(wrong, density_map, threads) for threads in (1, 2)]
    found = [each.with_shifted_stretches(positions, Going()) for each in rebuildings]
    assert np.array_equal(*found) and rebuildings[0].changes == rebuildings[1].changes
    (back,) = rebuildings[0].changes.stretches
    assert back.shifted_by == 1 and rebuildings[0].changes.places_tried == 2
    moved = np.flatnonzero((found[0] != positions).any(axis=1))
    assert len(moved) and set(moved.tolist()) <= set(search_atoms(wrong, off).tolist())
    native_positions = prepare(native).positions
    rebuilding = rebuilding_of(native, density_map)
    kept = rebuilding.with_shifted_stretches(native_positions, Going())
    assert np.array_equal(kept, native_positions) and rebuilding.changes.stretches == []


def search_atoms(model: Model, stretch: Stretch) -> np.ndarray:
    return RegisterSearch(prepare(model).topology).atoms_of(stretch.region)


def test_a_search_that_is_stopped_changes_nothing(native: Model, density_map: DensityMap) -> None:
    class Stopped:
        requested = True

    search = RegisterSearch(native.topology)
    wrong = replace(
        native, positions=search.shifted(native.positions, [Stretch(search.chains[0], FIRST, LAST)], 1)
    )
    positions = prepare(wrong).positions
    unchanged = rebuilding_of(wrong, density_map).with_shifted_stretches(positions, Stopped())
    assert np.array_equal(unchanged, positions)


def test_side_chains_are_turned_before_a_stage(native: Model, density_map: DensityMap) -> None:
    start, moved = with_a_turned_side_chain(native)
    result = fit_of(start, density_map, Stage("hold", 20, temperature=(100.0, 10.0), rotamers=True)).run()
    # Better or not: so few steps leave it warm.
    result = result.as_simulated()
    final = result.prepared.input_positions(result.final)
    (search,) = result.found["rebuilding"]
    turned = next(r for r in native.topology.residues() if r.name == "ILE")
    (found,) = [each for each in search["side_chains"] if each["residue"] == f"A ILE {turned.id}"]
    assert len(found["chi_before"]) == len(found["chi_after"]) == 2
    assert abs((found["chi_after"][0] - found["chi_before"][0] + 180) % 360 - 180) > 90
    assert search["stretches"] == [] and search["places_tried"] == 0
    off = np.linalg.norm((final - native.positions)[moved], axis=1).max()
    assert off < 1.0 < np.linalg.norm((start.positions - native.positions)[moved], axis=1).max()
    assert len(heavy_clashes(native.topology, final)) == 0


def test_a_fit_that_was_killed_goes_on_to_the_same_end(
    native: Model, density_map: DensityMap, tmp_path: Path
) -> None:
    start, _ = with_a_turned_side_chain(native)
    stage = Stage("hold", 40, rotamers=True)
    folder, copy = tmp_path / "whole", tmp_path / "killed"
    keep = kept_at(folder, copy, lambda step, total, stage, row: step == 20 and row is not None)
    whole = fit_of(start, density_map, stage).run(RunFolder(folder), keep)
    resumed = fit_of(start, density_map, stage).run(RunFolder(copy))
    # Where kernels cannot be compiled, as on a machine that has no memory left, another backend serves, with other last bits.
    assert resumed.force_backend == whole.force_backend == "NativeForce"
    for name in ("initial", "relaxed"):
        assert np.array_equal(getattr(resumed, name), getattr(whole, name)), name
    # Better or not, what came of the simulation: what is kept may be the start, which is the same in any case.
    ends = [each.as_simulated() for each in (resumed, whole)]
    assert np.array_equal(*(each.final for each in ends)) and not np.array_equal(whole.initial, ends[1].final)
    assert [asdict(row) for row in resumed.rows] == [asdict(row) for row in whole.rows]
    assert (ends[0].cc_final, ends[0].similarity_final) == (ends[1].cc_final, ends[1].similarity_final)
    # What was rebuilt before it was killed is told of all the same.
    for search in (*resumed.found["rebuilding"], *whole.found["rebuilding"]):
        assert search.pop("wall_seconds") > 0
    assert len(whole.found["rebuilding"]) == 1 and whole.found["rebuilding"][0]["side_chains"]
    assert resumed.found["rebuilding"] == whole.found["rebuilding"]


def test_what_the_model_does_not_bear_is_undone(
    native: Model, density_map: DensityMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unbearable(*_: object, **__: object) -> None:
        raise SimulationError("too hot")

    monkeypatch.setattr(Dynamics, "warm", unbearable)
    start, _ = with_a_turned_side_chain(native)
    result = fit_of(start, density_map, Stage("hold", 20, rotamers=True)).run()
    (search,) = result.found["rebuilding"]
    assert search["undone"] and search["side_chains"] and result.steps == 20


def test_other_similarities_and_no_density_are_let_alone(
    native: Model, density_map: DensityMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parts were rebuilt")

    monkeypatch.setattr("openmm_density.extensions.rebuilding.searches.Rebuilding", refuse)
    for options, strength in (({"similarity": "inner-product"}, 1.0), ({}, 0.0)):
        stage = Stage("hold", 4, (strength, strength), rotamers=True, register=True)
        result = fit_of(native, density_map, stage, **options).run()
        assert np.isfinite(result.final).all()
