"""``openmm-density b-factors``: B factors and occupancies of a model as it stands."""

import json
from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.atomic_parameters.output import b_factors_in_words
from openmm_density.models.structures import read_model

from ...cli.commands import run


@pytest.fixture
def files(small_data):
    folder = small_data / "emd5925_frag"
    return folder / "5925_native.pdb", folder / "emd5925.mrc.gz", "--resolution", 3.64


def test_model_is_written_with_its_b_factors(files, tmp_path, capsys):
    assert run("b-factors", *files, "--output", tmp_path / "b.pdb") == 0
    said = capsys.readouterr().out
    assert "A B factor of each residue was refined" in said
    given, written = read_model(files[0]), read_model(tmp_path / "b.pdb")
    np.testing.assert_array_equal(written.positions, given.positions)
    assert np.ptp(written.b_factors) > 50
    assert (written.b_factors != given.b_factors).mean() > 0.9


def test_json_has_every_residue(files, capsys):
    assert run("b-factors", *files, "--level", "group", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["residues"]) == 94
    assert found["b_factors"]["level"] == "group"
    assert found["b_factors"]["n_refined"] == 1
    assert found["in_words"].startswith("A B factor of each chain was refined")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--output", "b.txt"), "--output must end in .pdb or .cif, found b.txt"),
        (("--occupancies", "ligands"), "--occupancies the model has none of what it asks for (ligands)"),
        (("--half-map", "half.mrc"), "half.mrc: there is no such file"),
    ],
)
def test_what_cannot_be_used_is_said(files, options, said, capsys):
    assert run("b-factors", *files, *options) == 2
    assert said in capsys.readouterr().err


def test_what_the_new_b_factors_make_untrue_is_said(files, tmp_path, capsys):
    lines = files[0].read_text().splitlines(keepends=True)
    first = next(k for k, line in enumerate(lines) if line.startswith("ATOM"))
    lines.insert(first + 1, f"ANISOU{lines[first][6:28]}    100    200    300     10     20     30\n")
    (tmp_path / "in.pdb").write_text("".join(lines))
    assert run("b-factors", tmp_path / "in.pdb", *files[1:], "--output", tmp_path / "b.pdb") == 0
    assert "Note: ANISOU of 1 atom is left out" in capsys.readouterr().out


def test_half_maps_of_another_map_are_refused(files, tmp_path, capsys):
    density_map = DensityMap.from_file(files[1])
    noise = np.random.default_rng(0)
    for name in "ab":
        data = noise.normal(size=density_map.shape).astype(np.float32)
        replace(density_map, data=data).write(tmp_path / f"{name}.mrc")
    halves = ("--half-map", tmp_path / "a.mrc", "--half-map", tmp_path / "b.mrc")
    assert run("b-factors", *files, *halves) == 2
    assert "the half maps do not belong to the map" in capsys.readouterr().err


def test_odd_occupancies_and_a_folder_that_is_not_there_are_refused(files, tmp_path, capsys):
    text = files[0].read_text().replace("  1.00", "  1.70", 1)
    (tmp_path / "odd.pdb").write_text(text)
    assert run("b-factors", tmp_path / "odd.pdb", *files[1:]) == 2
    assert "odd.pdb: occupancies must be from 0 to 1, found A " in capsys.readouterr().err
    assert run("b-factors", *files, "--output", tmp_path / "none" / "b.pdb") == 2
    assert f"the folder {tmp_path / 'none'} does not exist: create it first." in capsys.readouterr().err


def test_the_result_says_that_the_model_is_wrong_and_that_levels_are_poorly_told():
    refined = {
        **{"level": "atom", "least_b": 10.0, "largest_b": 500.0, "mean_b": 57.0, "mean_b_deviation": 9.0},
        **{"cc_uniform": 0.75, "uniform_b": 30.0, "cc": 0.82, "cc_given": None, "half_maps": {}, "notes": []},
    }
    said = b_factors_in_words(refined)
    assert "the map hardly tells the level of B factors" in said and said.startswith(
        "A B factor of each atom"
    )
    assert "hardly tells" not in b_factors_in_words(refined | {"uniform_b": 55.0})
    # A fit to amplitudes has no half maps, and its correlation is that of before.
    without = refined | {"half_maps": None}
    assert "Half maps (--half-map)" in b_factors_in_words(without)
    of_amplitudes = b_factors_in_words(without, of_amplitudes=True)
    assert (
        "alf map" not in of_amplitudes and "before they were refined against the amplitudes" in of_amplitudes
    )
    # Beside its density.
    wrong = b_factors_in_words(refined | {"cc_uniform": 0.41})
    assert wrong.startswith("The model may not be where the map has it, or of another conformation: ")
