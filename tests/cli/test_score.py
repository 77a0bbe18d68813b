"""``openmm-density score``."""

import json

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.analysis import load_trajectory
from openmm_density.cli.score_report import warnings_about
from openmm_density.validation.map_checks import MapChecks

from ..predicted_models import write_prediction
from .commands import run


def test_score_agrees_with_the_summary(fitted, folder, capsys):
    assert run("score", fitted / "fitted.pdb", folder / "target.mrc", "--resolution", 5, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    summary = json.loads((fitted / "summary.json").read_text())
    assert scores["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-3)
    without_hydrogens = ("score", fitted / "fitted.cif", folder / "target.mrc", "--resolution", 5, "--atoms")
    assert run(*without_hydrogens, "element != H", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-2) and found["notes"] == []
    assert run(*without_hydrogens[:-1], "--json") == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert 'hydrogens count, which maps hardly show: --atoms "element != H"' in note
    assert run(*without_hydrogens[:-1]) == 0
    assert note in capsys.readouterr().out
    trajectory = ("score", fitted / "trajectory.dcd", folder / "target.mrc", "--resolution", 5)
    assert run(*trajectory, "--topology", fitted / "fitted.cif") == 0
    # Frames are counted from 0, as in JSON.
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[1]) for line in lines if line.startswith("frame")] == list(range(6))
    assert lines[6].startswith("CC of 6 frames: mean 0.") and lines[6].endswith("; of the last:")
    assert lines[7].startswith("CC of 40 residues: mean 0.")
    assert run(*trajectory, "--topology", fitted / "fitted.cif", "--json") == 0
    assert json.loads(capsys.readouterr().out)["frames"] == list(range(6))


def test_score_ends_with_what_a_person_reads(folder, capsys):
    arguments = ("score", folder / "model.pdb", folder / "target.mrc", "--resolution", 5)
    assert run(*arguments, "--q-score", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [found["model"], found["map"]] == [str(each) for each in arguments[1:3]]
    worst = sorted(zip(found["residue_correlations"][0], found["residue_labels"]))
    assert [tuple(each.values()) for each in found["worst_residues"]] == [
        (label, value) for value, label in worst[:10]
    ]
    assert run(*arguments, "--q-score") == 0
    shown = capsys.readouterr().out.splitlines()
    lines = [line for line in shown if not line.startswith("Warning: ")]
    usual = f" ({found['q_score_usual']:.2f} is usual)"
    assert lines[0] == f"CC {found['cc_mask'][0]:.4f}  Q {found['q_score'][0]:.4f}{usual}" and len(lines) == 4
    mean = sum(found["residue_correlations"][0]) / 40
    assert lines[1].startswith(
        f"CC of 40 residues: mean {mean:.3f}, {worst[0][0]:.3f} to {worst[-1][0]:.3f}; "
    )
    assert f"lowest: {worst[0][1]} ({worst[0][0]:.2f}), {worst[1][1]} " in lines[1]
    assert lines[2].startswith("Q of 40 residues: mean ")
    assert lines[3] == "each residue: --per-residue; all figures: --json"
    assert run(*arguments, "--per-residue") == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in table[1:41]] == [label.split() for label in found["residue_labels"]]
    assert table[41].startswith("CC ") and table[-1].startswith("CC of 40 residues")


def test_score_shows_the_confidence_of_a_prediction_beside_its_correlation(folder, tmp_path, capsys):
    plddt = np.linspace(40, 95, 40).round(2)
    model = write_prediction(tmp_path / "model.pdb", values=plddt, source=folder / "model.pdb")
    arguments = ("score", model, folder / "target.mrc", "--resolution", 5, "--predicted")
    assert run(*arguments, "yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["residue_plddt"] == pytest.approx(plddt)
    unnamed = model.rename(tmp_path / "model.txt")
    assert run("score", unnamed, *arguments[2:], "yes", "--per-residue") == 0
    heading, *rows = capsys.readouterr().out.splitlines()[:41]
    assert heading.split() == ["residue", "CC", "pLDDT"]
    assert [float(row.split()[-1]) for row in rows] == pytest.approx(plddt)
    unnamed.rename(model)
    assert run(*arguments, "no", "--json") == 0
    assert "residue_plddt" not in json.loads(capsys.readouterr().out)


def test_score_warns_of_a_model_that_is_elsewhere_and_of_a_stretch_that_is_wrong(folder, tmp_path, capsys):
    structure = gemmi.read_structure(str(folder / "target.pdb"))

    def write(name, first, last, shift):
        for residue in list(structure[0][0])[first:last]:
            for atom in residue:
                atom.pos += gemmi.Position(*shift)
        structure.write_pdb(str(tmp_path / name))

    def warnings_of(name):
        arguments = ("score", tmp_path / name, folder / "target.mrc", "--resolution", 5)
        assert run(*arguments, "--json") == 0
        warnings = json.loads(capsys.readouterr().out)["warnings"]
        assert run(*arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("Warning")] == [
            f"Warning: {each}" for each in warnings
        ]
        return warnings

    write("right.pdb", 0, 0, (0, 0, 0))
    assert warnings_of("right.pdb") == []
    write("stretch.pdb", 14, 22, (2.5, 2.5, -2.5))
    (stretch,) = warnings_of("stretch.pdb")
    assert (
        stretch.startswith("residues A 1") and "fit the map far worse than the rest of the chain" in stretch
    )
    write("away.pdb", 0, 40, (20.0, 0.0, 0.0))
    away = warnings_of("away.pdb")
    for said in (
        "of the atoms are outside the map",
        "the model is off by half the map's box",
        "no correlation where the map is flat",
    ):
        assert sum(said in warning for warning in away) == 1
    assert not any("the correlation is low" in warning for warning in away)
    trajectory = load_trajectory(tmp_path / "away.pdb")
    density_map = DensityMap.from_file(folder / "target.mrc")
    unexplained = warnings_about(trajectory, density_map, 0.01, [], MapChecks())
    assert sum("the correlation is low (0.01)" in warning for warning in unexplained) == 1


def test_score_writes_a_table_one_and_says_where_it_cannot(folder, tmp_path, capsys):
    arguments = ("score", folder / "model.pdb", folder / "target.mrc", "--resolution", 5)
    assert run(*arguments, "--table1", tmp_path / "table1.md", "--json") == 0
    output = capsys.readouterr()
    assert "Table 1, to be filled in" in output.err
    found = json.loads(output.out)["table1"]
    text = (tmp_path / "table1.md").read_text()
    assert f"| CC_mask | {found['map']['correlations']['cc_mask']:.3f} |" in text and "*[fill in]*" in text
    assert found["model"]["composition"]["protein"] == 40
    assert run(*arguments, "--table1", tmp_path / "none" / "table1.md") == 2
    assert f"the folder {tmp_path / 'none'} does not exist: create it first." in capsys.readouterr().err
    assert run(*arguments, "--table1", tmp_path / "x.md", "--atoms", "name CA") == 2
    assert "--table1 shows all atoms of the model" in capsys.readouterr().err
    assert run(*arguments, "--table1", tmp_path / "x.md", "--predicted", "yes") == 2
    assert "model.pdb: cannot be a prediction" in capsys.readouterr().err


def changed(source, path, **columns):
    """Write a PDB file with other text in columns of the atoms of residue 10."""
    spans = {"occupancy": (54, 60), "b_factor": (60, 66)}
    lines = source.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("ATOM") and line[22:26] == "  10":
            for name, text in columns.items():
                first, last = spans[name]
                line = line[:first] + text.rjust(last - first) + line[last:]
            lines[number] = line
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"occupancy": "1.50"}, "occupancies must be from 0 to 1, found A LYS 10 N 1.5, "),
        ({"b_factor": "0.00"}, "B factors must be above 0, found A LYS 10 N 0, "),
        ({"b_factor": "-5.00"}, "B factors must be above 0, found A LYS 10 N -5, "),
    ],
)
def test_a_table_one_of_values_that_no_atom_can_have_is_refused(small_data, tmp_path, capsys, columns, said):
    folder = small_data / "emd5925_frag"
    model = changed(folder / "5925_native.pdb", tmp_path / "odd.pdb", **columns)
    arguments = (model, folder / "emd5925.mrc.gz", "--resolution", 3.64)
    assert run("score", *arguments, "--table1", tmp_path / "table1.md") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "table1.md").exists()
    assert model.read_text()


def test_a_table_one_of_conformers_that_are_more_than_one_and_of_another_crystal_is_refused(
    small_data, tmp_path, capsys
):
    folder = small_data / "xraymap_3pqr_R32"
    lines = (folder / "3pqr.pdb").read_text().splitlines()
    both = [i for i, line in enumerate(lines) if line.startswith("ATOM") and line[16] in "AB"]
    for i in both:
        lines[i] = lines[i][:54] + "  0.80" + lines[i][60:]
    (tmp_path / "sum.pdb").write_text("\n".join(lines) + "\n")
    table = ("--table1", tmp_path / "table1.md")
    arguments = (tmp_path / "sum.pdb", folder / "3pqr.ccp4.gz", "--resolution", 2.85)
    assert run("score", *arguments, *table) == 2
    assert "occupancies of an atom's conformers must add up to 1 at most, found " in capsys.readouterr().err
    folder = small_data / "xray_1g8a_P21"
    text = (folder / "1G8A_refined.pdb").read_text()
    cell = next(line for line in text.splitlines() if line.startswith("CRYST1"))
    other = tmp_path / "other.pdb"
    other.write_text(text.replace(cell, cell[:6] + "   60.000" + cell[15:]))
    arguments = (folder / "composite_omit_map.mtz", "--resolution", 1.8)
    assert run("score", other, *arguments, *table) == 2
    assert "its cell is not that of the map" in capsys.readouterr().err
    assert run("fit", other, *arguments, "--output", tmp_path / "run", "--place", "off") == 2
    assert "its cell is not that of the map" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
