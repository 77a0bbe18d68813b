"""What a fit of a fragment of adenylate kinase leaves behind, and what its summary holds."""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from dataclasses import replace

import gemmi
import pytest

from openmm_density.base.errors import InputError
from openmm_density.cli import main
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.models import read_model
from openmm_density.report import OutputFolder
from openmm_density.validation.correlation import residue_correlations
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.geometry import geometry_report
from openmm_density.validation.q_score import q_scores

from ..fitting.conftest import RESIDUES
from ..fragments import RESOLUTION, write_with_alternates

STAGES = ("initial", "final", "reference")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return OutputFolder(tmp_path_factory.mktemp("results") / "out")


@pytest.fixture(scope="module")
def summary(fitted, folder):
    folder.write(*fitted, "model.pdb", "target.mrc")
    text = (folder.path / "summary.json").read_text(encoding="utf-8")
    # A line for each figure, and none for the entries of lists, of which there are thousands.
    assert len(text.splitlines()) < 600 and '"resolution": "Å"' in text
    return json.loads(text)


@pytest.fixture(scope="module")
def models(fitted, folder, summary):
    """Return topology and positions by stage; what is after is read from the file."""
    fit, _ = fitted
    after = read_model(folder.path / "fitted.pdb")
    given = fit.prepared.model
    return {
        "initial": (given.topology, given.positions),
        "final": (after.topology, after.positions),
        "reference": (fit.reference.topology, fit.reference.positions),
    }


@pytest.mark.parametrize("stage", STAGES)
def test_every_model_is_assessed(summary, models, fitted, stage):
    density_map, (topology, positions) = fitted[0].density_map, models[stage]
    # Positions in a PDB file have three decimals.
    scores = q_scores(density_map, topology, positions)
    assert summary[f"q_score_{stage}"] == pytest.approx(scores.mean, abs=1e-3)
    curve = model_fsc(density_map, topology, positions, RESOLUTION)
    assert summary[f"fsc_{stage}"]["frequency"] == pytest.approx(curve.frequency)
    assert summary[f"fsc_{stage}"]["correlation"] == pytest.approx(curve.correlation, abs=1e-2)
    assert summary[f"fsc_resolution_{stage}"] == pytest.approx(curve.resolution(), abs=1e-2)
    assert summary[f"fsc_falls_{stage}"] is curve.crossing().falls
    correlations = residue_correlations(density_map, topology, positions, RESOLUTION)
    rows = summary["residues"]
    # A voxel can come to lie on the other side of 3 Å.
    assert [row[f"correlation_{stage}"] for row in rows] == pytest.approx(correlations, abs=1e-2)
    assert [row[f"q_score_{stage}"] for row in rows] == pytest.approx(scores.residues, abs=1e-2)


def test_table_one_and_what_the_file_says_of_the_refinement(folder, summary):
    table, found = (folder.path / "table1.md").read_text(), summary["table1"]
    assert f"| CC_mask | {found['map']['correlations']['cc_mask']:.3f} |" in table
    block = gemmi.cif.read(str(folder.path / "fitted.cif")).sole_block()
    assert block.find_value("_em_3d_fitting.ref_protocol") == "'FLEXIBLE FIT'"
    assert "openmm-density" in block.find_values("_software.name")
    types = [f"{source}_{kind}" for source in ("amber", "ccp4") for kind in ("bond", "angle")]
    restraints = block.find_values("_refine_ls_restr.type")
    assert [gemmi.cif.as_string(each).rpartition("_")[0] for each in restraints] == types


def test_residues_are_those_of_the_model(summary, models):
    topology = models["initial"][0]
    found = [(row["chain"], row["number"], row["name"]) for row in summary["residues"]]
    assert found == [(each.chain.id, int(each.id), each.name) for each in topology.residues()]
    worst = min(summary["residues"], key=lambda row: row["correlation_final"])
    assert summary["worst_residues"][0] == {
        "residue": worst["residue"],
        "correlation": worst["correlation_final"],
    }


def test_the_geometry_of_the_reference_is_told(summary, models):
    expected = geometry_report(*models["reference"]).as_dict()
    # Its hydrogens are built for these.
    expected |= {name: summary["geometry_reference"][name] for name in ("clash_count", "clashscore")}
    assert expected["clashscore"] >= 0
    assert summary["geometry_reference"] == expected
    assert summary["geometry_final"].keys() == expected.keys()
    assert 0 < summary["planarity_rms_reference"] <= summary["planarity_worst_reference"] < 0.3


def test_units_are_of_keys_that_are_there(summary):
    names = set()

    def collect(value):
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(part)
        if isinstance(value, dict):
            names.update(value)

    collect({name: value for name, value in summary.items() if name != "units"})
    ends = ("", "_initial", "_relaxed", "_final", "_reference")
    missing = {name for name in summary["units"] if not any(name + end in names for end in ends)}
    # Of a placement, of contacts, of what was rebuilt, and of strengths that were tried.
    assert missing == {
        *("moved_by", "separation", "gain", "chi_before", "chi_after", "work"),
        *("chosen", "most"),
        # Of ligands with a learned potential.
        *("strain", "disagreement_worst", "disagreement_bound"),
    }


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_picture_comes_after_the_models_and_is_left_out_of_an_interrupted_fit(
    fitted, tmp_path, monkeypatch, interrupted
):
    fit, result = fitted

    def draw(path, *_):
        assert all((path.parent / name).exists() for name in ("fitted.cif", "fitted.pdb", "log.csv"))
        path.write_text("new")

    monkeypatch.setattr("openmm_density.report.overview.plot_overview", draw)
    folder = OutputFolder(tmp_path / "out")
    (folder.run.path / "state.npz").touch()
    picture = folder.path / "overview.png"
    picture.write_text("of an earlier fit")
    summary = folder.write(fit, replace(result, interrupted=interrupted), "model", "map")
    assert picture.exists() is not interrupted and (interrupted or picture.read_text() == "new")
    # What takes long and says nothing of a model on its way.
    assert (summary["map_checks"]["final"] is None) is interrupted
    assert folder.run.holds_a_state is interrupted


def test_what_a_killed_fit_left_goes_at_the_next_start(tmp_path):
    path, temporary = tmp_path / "out", f".{uuid.uuid4().hex}.tmp"
    unfinished, removed = path / "unfinished", path / ".unfinished.removed"
    for folder in (unfinished, removed):
        folder.mkdir(parents=True)
        (folder / "state.npz").write_text("a state")
    left = [path / temporary, unfinished / temporary, removed]
    for file in left[:2]:
        file.write_text("half")
    (path / "notes.tmp").write_text("the user's")
    with pytest.raises(InputError, match="holds an unfinished fit"):
        OutputFolder(path)
    assert not any(each.exists() for each in left)
    assert sorted(each.name for each in path.iterdir()) == ["notes.tmp", "unfinished"]
    (unfinished / temporary).write_text("half")
    folder = OutputFolder(path, resume=True)
    assert [each.name for each in unfinished.iterdir()] == ["state.npz"]
    with pytest.raises(InputError, match="a fit is running in it"):
        OutputFolder(path, overwrite=True)
    folder.discard()
    # Killed before it said what it was to do, it is no fit to go on with.
    (unfinished / "state.npz").unlink()
    (unfinished / ".lock").write_text("process 1 on nowhere")
    OutputFolder(path).discard()
    assert [each.name for each in path.iterdir()] == ["notes.tmp"]


@pytest.mark.parametrize("name", [".lock", "unfinished/trajectory.dcd", "unfinished/.lock"])
def test_links_in_a_folder_from_somebody_else_are_not_followed(fitted, tmp_path, name):
    path, victim = tmp_path / "out", tmp_path / "thesis"
    (path / "unfinished").mkdir(parents=True)
    victim.write_text("five years of work")
    (path / name).symlink_to(victim)
    with pytest.raises(InputError, match=f"{path}"):
        fitted[0].run(OutputFolder(path, resume=True).run)
    assert victim.read_text() == "five years of work"


def test_a_result_in_a_script_writes_what_the_command_does(fitted, tmp_path):
    _, result = fitted
    summary = replace(result, written=None).write(tmp_path / "of_script")
    assert json.loads((tmp_path / "of_script" / "summary.json").read_text())["model"] == summary["model"]
    folder = OutputFolder(tmp_path / "of_command")
    shutil.copyfile(result.ran[1].trajectory, folder.run.trajectory)
    folder.write(*fitted, "model", "map")
    folder.discard()
    written = [{each.name for each in (tmp_path / name).iterdir()} for name in ("of_script", "of_command")]
    assert written[0] == written[1] > {"trajectory.dcd", "report.html", "fitted.pdb"}
    with pytest.raises(InputError, match="already holds"):
        result.write(tmp_path / "of_script")
    with pytest.raises(InputError, match="where its fit has run"):
        pickle.loads(pickle.dumps(result)).write(tmp_path / "again")


def test_without_a_reference_there_is_none(fitted, tmp_path):
    fit, result = fitted
    alone = FlexibleFit.__new__(FlexibleFit)
    vars(alone).update(vars(fit), reference=None)
    found = OutputFolder(tmp_path / "out").write(
        alone, replace(result, cc_reference=None, ca_rmsd_initial=None, ca_rmsd_final=None), "model", "map"
    )
    assert found["geometry_reference"] is found["q_score_reference"] is found["fsc_reference"] is None
    assert "q_score_reference" not in found["residues"][0] and found["q_score_final"] is not None


def test_a_model_that_pdb_cannot_hold_comes_back_as_mmcif(fitted, tmp_path):
    fit, result = fitted
    model = result.prepared.model
    records = tuple(replace(record, chain="Long") for record in model.records)
    prepared = replace(result.prepared, model=replace(model, records=records))
    folder = OutputFolder(tmp_path / "out")
    assert folder.write(fit, result, "model", "map")["given"] == ["model"]
    found = folder.write(fit, replace(result, prepared=prepared), "model", "map")
    assert not (folder.path / "fitted.pdb").exists()
    again = read_model(folder.path / "fitted_input.cif")
    assert [record.describe() for record in again.records] == [record.describe() for record in records]
    assert again.positions == pytest.approx(prepared.input_positions(result.final), abs=1e-3)
    [note] = [note for note in found["notes"] if "fitted.pdb was left out" in note]
    assert "chain 'Long'" in note and "fitted_input.cif" in note
    folder.write(fit, result, "model", "map")
    assert (folder.path / "fitted.pdb").exists() and not (folder.path / "fitted_input.cif").exists()


def test_a_model_outside_the_map_has_results_all_the_same(fitted, tmp_path):
    fit, result = fitted
    away = replace(result, final=result.final + 300.0)
    found = OutputFolder(tmp_path / "out").write(fit, away, "placed.cif", "map", given=["a.pdb:2", "b.pdb"])
    assert found["model"] == "placed.cif" and found["given"] == ["a.pdb:2", "b.pdb"]
    assert found["q_score_final"] is found["fsc_final"] is None
    assert found["residues"][0]["correlation_final"] is None
    assert any("outside the map" in doubt for doubt in found["doubts"])


def test_conformers_that_were_not_fitted_are_in_the_result_and_can_be_scored(fitted, tmp_path, capsys):
    fit, result = fitted
    model = read_model(write_with_alternates(tmp_path / "model.pdb", RESIDUES))
    # As it was fitted, but for what that left out.
    model = replace(result.prepared.model, records=model.records, alternates=model.alternates)
    result = replace(result, prepared=replace(result.prepared, model=model))
    folder = OutputFolder(tmp_path / "out")
    found = folder.write(fit, result, "model", "map")
    assert (found["n_alternate_conformers"], found["n_alternate_atoms"]) == (1, 2)
    structure = gemmi.read_structure(str(folder.path / "fitted.pdb"))
    labelled = [(cra.atom.name, cra.atom.altloc) for cra in structure[0].all() if cra.atom.has_altloc()]
    assert labelled == [("CE", "A"), ("CE", "B"), ("NZ", "A"), ("NZ", "B")]
    fit.density_map.write(tmp_path / "map.mrc")
    arguments = [
        "score",
        str(folder.path / "fitted.pdb"),
        str(tmp_path / "map.mrc"),
        "--resolution",
        f"{RESOLUTION:g}",
    ]
    assert main([*arguments, "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    # What is scored is what was fitted.
    assert scored["cc_mask"] == pytest.approx([result.cc_final], abs=2e-3)


@pytest.mark.parametrize(("file", "whose"), [("batch.json", "a batch"), ("series_settings.json", "a series")])
def test_the_folder_of_many_fits_is_none_of_one(tmp_path, file, whose):
    (tmp_path / file).write_text("{}")
    for how in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(InputError, match=f"it is the folder of {whose}, whose fits have folders"):
            OutputFolder(tmp_path, **how)
    assert [each.name for each in tmp_path.iterdir()] == [file]
