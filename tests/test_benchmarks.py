"""The benchmarks run, and what they time side by side computes the same."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import prepare

from .conftest import PROJECT
from .fragments import fragment, write_fragment

BENCHMARKS = PROJECT / "examples" / "benchmarks"
CASES = ("dynamics", "5k-5g", "triclinic", "20k-1g", "boxes")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_quick_run_without_peers(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "density.json"
    command = ["density_cpu.py", "--quick", "--peers", "", "--repeats", "1", "--cases", ",".join(CASES)]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(written)])
    module("density_cpu").main()
    printed = capsys.readouterr().out
    report = json.loads(written.read_text())
    assert tuple(report["cases"]) == CASES
    assert report["threads"] == 2 and report["processor"] in printed
    for case in report["cases"].values():
        assert case["title"] in printed
        assert case["agreement"]
        for what, value in case["agreement"].items():
            assert 0 <= value < (2e-3 if "voxels" in what else 1e-5)
        assert all(engine["calls"] >= 1 for engine in case["engines"])
        assert all(
            engine["fastest_ms"] <= engine["median_ms"] and len(engine["quartiles_ms"]) == 2
            for engine in case["engines"]
        )
    timed = {(engine["operation"], engine["threads"]) for engine in report["cases"]["20k-1g"]["engines"]}
    assert timed == {
        (what, threads) for what in ("density + gradient", "similarity + forces") for threads in (1, 2)
    }
    assert {goal["wanted"] for goal in report["goals"]} == {0.15, 1.2, 1.8}
    assert sum("the machine allows" in goal["what"] for goal in report["goals"]) == 2
    assert list(tmp_path.iterdir()) == [written]


def test_planarity_and_its_peers_agree(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "planarity.json"
    command = ["planarity_cpu.py", "--planes", "70", "--repeats", "2", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(written)])
    module("planarity_cpu").main()
    report = json.loads(written.read_text())
    assert len(report["engines"]) == 3 and f"{report['ratio']:.1f} times faster" in capsys.readouterr().out
    for engine in report["engines"]:
        assert engine["calls"] >= 2 and engine["fastest_ms"] <= engine["median_ms"]
        assert engine["deviations"].keys() == {"energy", "gradient"}


def test_neighbour_lists_are_timed(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "neighbors.json"
    command = ["neighbors_cpu.py", "--atoms", "300", "--cutoffs", "5", "--threads", "1", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--seconds", "0.1", "--json", str(written)])
    module("neighbors_cpu").main()
    (case,) = json.loads(written.read_text())["cases"]
    assert f"{case['pairs']:,} pairs" in capsys.readouterr().out
    assert {"openmm-density", "openmm-density, kept"} <= {each["engine"] for each in case["engines"]}


def test_pairs_are_timed_beside_openmm(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "pairs.json"
    command = ["pairs.py", "--atoms", "1331", "--threads", "1", "--rounds", "1", "--seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(written)])
    module("pairs").main()
    (case,) = json.loads(written.read_text())
    assert case["ratios"]["1"].keys() == {"OpenMM", "eager"} and len(case["engines"]) == 4
    assert "times as fast as OpenMM" in capsys.readouterr().out


def test_local_dynamics_are_timed_beside_openmm(module, tmp_path, monkeypatch, capsys):
    command = ["local_dynamics.py", "--first", "8", "--residues", "2", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", command)
    benchmark = module("local_dynamics")
    monkeypatch.setattr(benchmark, "MODEL", write_fragment(tmp_path / "model.pdb", residues=16))
    monkeypatch.setattr(benchmark, "ANNEALING_STEPS", 2)
    benchmark.main()
    lines = capsys.readouterr().out.splitlines()
    assert "atoms move" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["made", "minimised", "annealed"]


def test_disagreement_stops_the_run(module):
    interleaved = module("interleaved")
    expected, found = np.array([1.0, -4.0]), np.array([1.0, -3.996])
    assert interleaved.compare("density", found, expected, 2e-3) == pytest.approx(1e-3)
    with pytest.raises(interleaved.Disagreement, match=r"density is off by 1\.0e-03 of the largest value"):
        interleaved.compare("density", found, expected, 5e-4)
    with pytest.raises(interleaved.Disagreement, match="nan"):
        interleaved.compare("density", np.array([np.nan, -4.0]), expected, 1e-3)
    with pytest.raises(interleaved.Disagreement, match="shape"):
        interleaved.compare("density", np.zeros(3), expected, 1e-3)


def test_an_environment_without_torchref_is_noted(module, tmp_path):
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho 'No module named torchref' >&2\nexit 1\n")
    interpreter.chmod(0o755)
    notes = []
    assert module("density_peers").start_torchref(f"old={interpreter},/no/such/python", notes) == []
    assert "No module named torchref" in notes[0] and "/no/such/python" in notes[1]


def test_steps_are_timed_force_by_force(module, tmp_path):
    step = module("step")
    given = fragment(tmp_path / "model.pdb", residues=12)
    model = prepare(given)
    density_map = DensityMap.simulate(given.topology, given.positions, step.RESOLUTION, step.VOXEL_SIZE)
    made = step.forces_of_a_fit(model, density_map, on_gpu=False)
    assert {"RamachandranRestraint", "PlanarityRestraint", "DensityFit", "RotamerRestraint"} <= made.keys()
    assert made.pop(step.EXPRESSION)().getName() == "RamachandranRestraint"
    bench = step.Bench(model, made, "CPU", 1)
    contexts = {step.FORCE_FIELD: bench.started({}), step.ALL: bench.started(made)}
    rows = step.measure_steps(contexts, 2, 0.01)
    assert [row.forces for row in rows] == [step.FORCE_FIELD, step.ALL] and rows[0].added == 0
    assert all(0 < row.fastest <= row.median for row in rows)
    groups = step.measure_groups(bench.started(made, grouped=True), [step.FORCE_FIELD, *made], 3)
    assert groups.keys() == {step.FORCE_FIELD, *made}


def test_replicas_are_timed_beside_a_single_simulation(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "replicas.json"
    command = ["replica_exchange.py", "--residues", "3", "--replicas", "2", "--steps", "2", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--repeats", "1", "--json", str(written)])
    module("replica_exchange").main()
    printed = capsys.readouterr().out.splitlines()
    report = json.loads(written.read_text())
    assert [each["layout"] for each in report] == ["merged", "separate"] and len(printed) == 2
    for line, each in zip(printed, report):
        assert f"ratio {each['replicas_ms'] / each['single_ms']:.2f}" in line


def test_commands_that_answer_at_once_are_timed_beside_an_empty_python(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "start_up.json"
    command = ["start_up.py", "--without-fit", "--repeats", "1", "--json", str(written)]
    monkeypatch.setattr(sys, "argv", command)
    module("start_up").main()
    printed = capsys.readouterr().out
    timed = json.loads(written.read_text())
    assert [(each["name"], each["status"]) for each in timed] == [
        ("python -c pass", 0),
        ("fit --help", 0),
        ("an error of an argument", 2),
    ]
    assert all(each["name"] in printed and 0 < each["processor_seconds"][0] < 60 for each in timed)


def test_painn_is_timed_beside_eager_pytorch(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "painn.json"
    command = [
        "painn.py",
        "--atoms",
        "12",
        "--features",
        "32",
        "--processor-time",
        "--rounds",
        "1",
        "--seconds",
        "0.1",
    ]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(written)])
    module("painn").main()
    (case,) = json.loads(written.read_text())
    assert "eager PyTorch" in case["ratios"]["1"] and case["pairs"] > 30
    assert "times as fast as eager PyTorch" in capsys.readouterr().out


def test_a_unit_is_timed_beside_its_assembly(module, tmp_path, monkeypatch, capsys):
    written = tmp_path / "symmetry.json"
    benchmark = module("symmetry")
    model = write_fragment(tmp_path / "model.pdb", residues=8, terminus=True)
    monkeypatch.setattr(benchmark, "MODEL", model)
    command = ["symmetry.py", "--copies", "3", "--steps", "1", "--rounds", "1", "--json", str(written)]
    monkeypatch.setattr(sys, "argv", command)
    benchmark.main()
    report = json.loads(written.read_text())
    # OpenMM's CPU platform computes in float32.
    assert report["ring"]["forces differ by"] < 2e-4
    parts = {"force field", "contacts with copies", "density of copies"}
    assert report["crystal"].keys() == parts | {"unit alone", "unit with operators"}
    assert "all copies / unit with operators" in capsys.readouterr().out
