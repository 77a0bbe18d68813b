"""``openmm-density fit``: what it writes, what it refuses and how it ends."""

import csv
import json
import os
import re
import signal
import time
from types import SimpleNamespace

import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting import fit_run
from openmm_density.models import read_model
from openmm_density.report import AFTER_FILES, FILES, FITTED_REFERENCE

from ..conftest import PROJECT
from ..fitting.changed_steps import blow_up_in, shake_after_steps
from ..fragments import write_fragment
from .commands import SMALL, fit, run, started, wait_for

SUMMARY_KEYS = {
    "model", "map", "resolution", "n_atoms", "n_fitted_atoms", "similarity", "strength", "cc_initial", "cc_final",
    "cc_reference", "similarity_initial", "similarity_final", "ca_rmsd_initial", "ca_rmsd_final", "voxel_size", "resampled",
    "steps", "seed", "wall_seconds", "ms_per_step", "density_ms_per_step", "platform", "force_backend", "versions",
    "protocol", "stages", "placement", "half_maps", "interrupted", "blow_ups", "density_interval", "forcefield", "solvent",
    "restraints_violated", "start_strain", "pierced_rings_final",
}  # fmt: skip


def test_a_fit_leaves_all_its_files_and_nothing_else(fitted):
    assert sorted(path.name for path in fitted.iterdir()) == sorted([*FILES, FITTED_REFERENCE])
    assert (fitted / "overview.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_the_summary_says_that_the_model_moved_into_the_map(fitted, folder):
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["cc_initial"] < 0.8 < summary["cc_final"] < summary["cc_reference"]
    assert summary["ca_rmsd_initial"] == pytest.approx(np.linalg.norm((1.5, -1.0, 0.8)), abs=2e-3)
    assert summary["ca_rmsd_final"] < 0.7
    assert summary["similarity_final"] > summary["similarity_initial"]
    in_input = (folder / "model.pdb").read_text().count("\nATOM")
    assert summary["n_fitted_atoms"] == in_input + 1  # the terminal oxygen was missing
    assert summary["resampled"] is False and summary["platform"] == "CPU"
    assert summary["force_backend"] == "NativeForce"
    assert summary["peptide_flips"] == [] and summary["inverted_centres"] == []
    assert 0 < summary["density_ms_per_step"] < summary["ms_per_step"]
    assert [doubt for doubt in summary["doubts"] if "Ramachandran" not in doubt] == []
    assert summary["planarity_rms_final"] < 0.02 < summary["planarity_rms_initial"]
    assert summary["planarity_worst_final"] < summary["planarity_worst_initial"]


def test_every_key_of_the_summary_is_on_its_page(fitted):
    page = (PROJECT / "docs" / "reference" / "summary.md").read_text(encoding="utf-8")
    named = [re.compile(key.replace("*", ".*")) for key in re.findall(r"`([a-z*][a-z_0-9*]*)`", page)]
    summary = json.loads((fitted / "summary.json").read_text())
    for key in [*summary, *summary["geometry_final"]]:
        written = {key, re.sub("_(initial|relaxed|final|reference)$", "_*", key)}
        assert any(pattern.fullmatch(each) for pattern in named for each in written), key


def test_the_log_has_a_row_for_every_report(fitted):
    rows = list(csv.DictReader((fitted / "log.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [0, 100, 200, 300, 400, 500, 600, 600]
    assert float(rows[-1]["cc"]) == pytest.approx(
        json.loads((fitted / "summary.json").read_text())["cc_final"], abs=1e-5
    )
    assert float(rows[0]["density_energy"]) == 0.0 and float(rows[0]["strength"]) == 0.0
    assert float(rows[4]["strength"]) == pytest.approx(30.0)
    assert float(rows[-1]["ca_rmsd"]) < float(rows[0]["ca_rmsd"])


def test_the_trajectory_belongs_to_the_fitted_model(fitted):
    trajectory = mdtraj.load(str(fitted / "trajectory.dcd"), top=str(fitted / "fitted.cif"))
    assert trajectory.n_frames == 6
    last = mdtraj.load(str(fitted / "fitted.cif")).xyz[0]
    assert np.sqrt(((trajectory.xyz[-1] - last) ** 2).sum(axis=1).mean()) < 0.1


def test_the_fitted_pdb_has_the_atoms_of_the_input(fitted, folder):
    def names(path):
        return [line[12:27] for line in path.read_text().splitlines() if line.startswith("ATOM")]

    assert names(fitted / "fitted.pdb") == names(folder / "model.pdb")


def test_an_earlier_fit_is_not_overwritten(fitted, folder, capsys):
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    assert fit(folder, fitted) == 2
    message = capsys.readouterr().err
    assert message.startswith("openmm-density fit: error: ") and message.count("\n") == 1
    assert "already holds" in message and "--overwrite" in message
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before


def test_planarity_can_be_left_out(small, tmp_path):
    options = ("--planarity", "off", "--steps", 100, "--protocol", "gentle", "--density-interval", 4)
    assert fit(small, tmp_path / "off", *options) == 0
    summary = json.loads((tmp_path / "off" / "summary.json").read_text())
    assert summary["protocol"] == "gentle" and summary["density_interval"] == 4
    assert any("No half maps" in note for note in summary["notes"])
    assert summary["planarity"] is False and summary["planarity_rms_final"] > 0.008


def test_a_model_that_a_fit_did_not_improve_is_kept_as_it_was(small, tmp_path, capsys, monkeypatch):
    """The target in its own map has nothing to gain, and each block of steps takes something from it."""
    output = tmp_path / "out"
    arguments = ("fit", small / "target.pdb", small / "target.mrc", "--resolution", 5, "--output", output)
    once = tmp_path / "once.toml"
    once.write_text("strength = 1.0\nminimize_last = 0\n[[stage]]\nsteps = 40\n")
    worse = (*arguments, "--protocol", once, "--platform=CPU", "--threads", 1)
    with monkeypatch.context() as patch:
        shake_after_steps(patch, 0.04)
        assert run(*worse) == 0
    summary = json.loads((output / "summary.json").read_text())
    assert summary["kept"] == "before" and f"CC {summary['cc_initial']:.3f} before" in summary["kept_because"]
    simulated = summary["simulated"]
    assert simulated["cc"] < summary["cc_final"] - 0.002 and summary["cc_final"] == summary["cc_initial"]
    for name in ("similarity", "q_score", "planarity_rms"):
        assert summary[f"{name}_final"] == summary[f"{name}_initial"] != simulated[name]
    for name in summary["geometry_final"].keys() - {"notes"}:
        assert summary["geometry_final"][name] == summary["geometry_initial"][name]
    assert simulated["geometry"]["bond_rmsd"] != summary["geometry_final"]["bond_rmsd"]
    assert all(row["correlation_final"] == row["correlation_initial"] for row in summary["residues"])
    # fitted.* are the model as it was, and after.* what became of it.
    given, fitted, after = (
        read_model(path) for path in (small / "target.pdb", output / "fitted.pdb", output / "after.pdb")
    )
    assert np.array_equal(fitted.positions, given.positions)
    assert np.abs(after.positions - given.positions).max() > 0.1
    whole, whole_after = (mdtraj.load(str(output / name)) for name in ("fitted.cif", "after.cif"))
    assert whole.n_atoms == whole_after.n_atoms > len(given.positions)
    rows = list(csv.DictReader((output / "log.csv").read_text().splitlines()))
    assert float(rows[-1]["cc"]) == pytest.approx(simulated["cc"], abs=1e-5)
    said = capsys.readouterr().out
    (doubt,) = [each for each in summary["doubts"] if "did not improve" in each]
    assert (
        f"Doubt: {doubt}" in said and "before (kept)" in said and "after.* what the simulation made" in doubt
    )
    # What a later fit does not leave is not left over from this one.
    assert run(*worse) == 2
    monkeypatch.setattr(fit_run, "why_not_better", lambda *_: None)
    assert fit(small, output, "--overwrite", "--steps", 40) == 0
    assert json.loads((output / "summary.json").read_text())["kept"] == "after"
    assert not [name for name in AFTER_FILES if (output / name).exists()]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "after.pdb").write_text("")
    assert run(*arguments[:-1], tmp_path / "other") == 2
    assert "already holds after.pdb" in capsys.readouterr().err


def test_a_model_outside_its_density_is_placed_in_it(small, tmp_path):
    write_fragment(tmp_path / "away.pdb", (60.0, -45.0, 30.0), SMALL)
    arguments = ("fit", tmp_path / "away.pdb", small / "target.mrc", "--resolution", 5, "--steps", 20)
    assert run(*arguments, "--output", tmp_path / "out", "--reference", small / "target.pdb") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["placement"]["moved_by"] == pytest.approx(np.linalg.norm((60, 45, 30)), abs=0.5)
    assert summary["ca_rmsd_initial"] < 0.5 and summary["cc_initial"] > 0.9
    assert "placed in the map" in summary["notes"][0]


def test_a_simulation_that_explodes_says_so_with_status_1_and_leaves_the_last_good_model(
    small, tmp_path, capsys, monkeypatch
):
    blow_up_in(monkeypatch, atoms=(0,))
    # Of few atoms, for it is minimised again and again in double precision.
    fewest = write_fragment(tmp_path / "fewest.pdb", (1.5, -1.0, 0.8), 6)
    arguments = ("--resolution", 5, "--output", tmp_path / "out", "--steps", 600, "--strength", 30)
    assert run("fit", fewest, small / "target.mrc", "--platform=CPU", *arguments) == 1
    message = capsys.readouterr().err
    assert "unstable 4 times" in message and "last_good.cif" in message and message.count("\n") == 2
    good = mdtraj.load(str(tmp_path / "out" / "unfinished" / "last_good.cif"))
    start = mdtraj.load(str(fewest))
    pairs = [each.topology.select("name CA") for each in (good, start)]
    assert np.abs(good.xyz[0, pairs[0]] - start.xyz[0, pairs[1]]).max() < 0.2
    assert not (tmp_path / "out" / "fitted.cif").exists()


def test_an_interrupted_fit_writes_what_there_is_with_status_130_and_says_so_first(small, tmp_path, forked):
    process = started(small, tmp_path / "out", "--steps", "100000000", "--threads", "1")
    wait_for(tmp_path / "out" / "unfinished" / "state.npz", process)
    process.send_signal(signal.SIGINT)
    report, errors = process.communicate(timeout=240)
    lines = errors.splitlines()
    assert process.returncode == 130
    assert len(lines) == 2 and "--resume" in lines[1] and "of 100000000" in lines[1]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["interrupted"] is True and summary["steps"] < 10**6 == summary["steps_planned"] / 100
    assert summary["doubts"][0].startswith(
        f"the fit was interrupted at step {summary['steps']} of 100000000, "
    )
    assert report.startswith(f"Interrupted: {summary['doubts'][0]}\n")
    assert summary["doubts"][0] not in report.split("\n", 1)[1]
    assert report.splitlines()[1].split() == ["before", "relaxed", "so", "far"]
    assert mdtraj.load(str(tmp_path / "out" / "fitted.cif")).n_atoms == summary["n_atoms"]
    assert (tmp_path / "out" / "report.html").exists()
    assert not (tmp_path / "out" / "overview.png").exists()


def test_an_interrupted_preparation_leaves_nothing(small, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        assert (tmp_path / "out").exists()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # until the signal comes

    monkeypatch.setattr("openmm_density.fitting.options.prepare", interrupted)
    assert fit(small, tmp_path / "out") == 130
    assert capsys.readouterr().err.splitlines() == ["openmm-density fit: interrupted; nothing was written"]
    assert not (tmp_path / "out").exists()


def test_an_error_ends_what_is_done_beside_the_fit(small, tmp_path, monkeypatch, capsys):
    ended = []

    def fails(*_):
        raise InputError("is of no use", argument="map")

    fit_begun = SimpleNamespace(beside=SimpleNamespace(end=lambda: ended.append(True)))
    monkeypatch.setattr("openmm_density.cli.fit._flexible_fit", lambda *_: fit_begun)
    monkeypatch.setattr("openmm_density.cli.fit._with_findings", fails)
    assert fit(small, tmp_path / "out") == 2
    assert "is of no use" in capsys.readouterr().err
    assert ended == [True] and not (tmp_path / "out").exists()


def test_b_factors_are_refined_in_the_end(fitted, folder):
    """In the models, the summary and the residues; the positions are not theirs to change."""
    summary = json.loads((fitted / "summary.json").read_text())
    found = summary["b_factors"]
    assert found["level"] == "residue" and found["cc"] > found["cc_uniform"] > 0.8
    assert summary["occupancies"] is None
    of_input, written = read_model(folder / "model.pdb"), read_model(fitted / "fitted.pdb")
    assert (written.b_factors != of_input.b_factors).all()
    np.testing.assert_array_equal(written.occupancies, of_input.occupancies)
    complete = read_model(fitted / "fitted.cif")
    assert complete.b_factors.min() == pytest.approx(found["least_b"], abs=0.01)
    row = summary["residues"][3]
    assert row["b_factor_final"] != row["b_factor_initial"] and row["b_factor_deviation"] > 0
    assert "B factors by residue, refined" in (fitted / "report.html").read_text()
