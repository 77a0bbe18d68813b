"""``openmm-density distill``: its files, its exit status, and what it says."""

import json

import pytest

from openmm_density.extensions import distillation
from openmm_density.extensions.distillation import DistillationSettings, read_potential, rounds
from openmm_density.extensions.distillation.students import Committee

from ...cli.commands import run
from ...test_imports import quick  # noqa: F401

for package in ("rdkit", "tblite", "safetensors"):
    pytest.importorskip(package, reason="the extra [ligands] is not installed")

TINY = DistillationSettings(
    layers=1, n_radial=4, n_conformers=1, n_first=8, n_added=2, n_held_out=2, first_steps=2, most_rounds=0
)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    for name, steps in {
        "_COLD_BEGINNING": 2,
        "_COLD_STEPS": 10,
        "_SPRING_STEPS": 40,
        "_RELAXING_STEPS": 5,
    }.items():
        monkeypatch.setattr(rounds, name, steps)
    monkeypatch.setattr(distillation, "DistillationSettings", lambda most_rounds: TINY)


def test_an_unfinished_potential_is_written_marked_and_exits_with_1(tmp_path, capsys):
    output = tmp_path / "water.safetensors"
    assert run("distill", "O", "--solvent", "water", "--output", output, "--threads", 1) == 1
    printed = capsys.readouterr()
    assert "3 atoms, charge +0, learned from GFN2-xTB in water (ALPB)" in printed.out
    assert "not done: forces must be within 1 kcal/mol/Å of the teacher's, found" in printed.err
    assert read_potential(output).done is False
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"water.safetensors", "water.json", "water.png", "water.labels"}
    assert json.loads((tmp_path / "water.json").read_text())["ligand"]["smiles"] == "O"
    assert run("distill", "O", "--output", output) == 2
    assert "it exists already: choose another name, or pass --overwrite." in capsys.readouterr().err


def test_a_finished_potential_exits_with_0(tmp_path, monkeypatch):
    monkeypatch.setattr("openmm_density.extensions.distillation.accuracy.FORCE_LIMIT", 1e9)
    # Students of two steps break whatever they move.
    monkeypatch.setattr(Committee, "forces_of", lambda *_: lambda positions: 0 * positions)
    output = tmp_path / "water.safetensors"
    assert run("distill", "O", "--output", output, "--threads", 1) == 0
    assert read_potential(output).done is True


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nonsense"], '"nonsense": a ligand must be a SMILES'),
        (["/"], "/: it is a folder: give a file of one molecule, a model with its SMILES, or a SMILES."),
        (["CO", "--solvent", "ink"], '--solvent must be a known solvent, found "ink"'),
        (["CO", "--dictionary", "missing.cif"], "missing.cif: there is no such file"),
        (["CO", "--output", "x.pdb"], "--output must end in .safetensors, found x.pdb: give another name."),
        (["CO", "--threads", "0"], "--threads must be 1 or more, found 0"),
        (["CO", "--rounds", "0"], "--rounds must be 1 or more, found 0: give 1 or more."),
    ],
)
def test_wrong_input_is_refused_with_status_2(tmp_path, capsys, given, said):
    assert run("distill", "--output", tmp_path / "x.safetensors", *given) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x.safetensors").exists()


def test_an_interrupted_run_says_what_is_kept(tmp_path, capsys, monkeypatch):
    def interrupted(*_, labels, **__):
        labels.write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(distillation, "distill", interrupted)
    assert run("distill", "CO", "--output", tmp_path / "x.safetensors") == 130
    assert "interrupted; the same command goes on from the labels in" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x.json", "x.png"])
def test_what_is_beside_a_potential_is_not_replaced_unasked(tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    assert run("distill", "CO", "--output", tmp_path / "x.safetensors") == 2
    assert f"{name}: it exists already: choose another name, or pass --overwrite." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--dictionary", "none.cif"], "none.cif: there is no such file"),
        (["--output", "map.mrc"], "map.mrc: it exists already"),
        (["--output", "none/new"], "none/new: the folder none does not exist"),
    ],
)
def test_files_are_refused_before_anything_slow(quick, options, named, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.mrc").write_text("")
    assert named in quick(["distill", "CO", "--output", "new.safetensors", *options], 2)
