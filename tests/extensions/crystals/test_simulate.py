"""``openmm-density simulate`` of a crystal's amplitudes."""

import json

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.crystals.simulated_data import read_crystal, simulated_reflections

from ...cli.commands import run
from ...fragments import write_fragment
from .simulated import direct_structure_factors


def test_amplitudes_of_a_crystal_are_those_that_score_finds(small_data, tmp_path, capsys):
    model, output = small_data / "xray_1g8a_P21" / "1G8A_refined.pdb", tmp_path / "data.mtz"
    words = ("simulate", model, "--resolution", 3, "--noise", 0.2, "--output", output)
    assert run(*words, "--seed", 3) == 0
    assert "amplitudes to 3.00 Å in P 1 21 1" in capsys.readouterr().out
    assert run(*words) == 2 and "data.mtz" in capsys.readouterr().err
    assert run("score", model, output, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # What no model explains: a complex error, of which about 0.65 is along the structure factor.
    assert found["r_work"] == pytest.approx(0.13, abs=0.02)
    assert found["n_free"] == round(0.05 * (found["n_work"] + found["n_free"]))
    assert found["solvent_density"] == pytest.approx(0.35, abs=0.03) and found["completeness"] == 1.0
    # Measured beside: gemmi's direct summation, of the atoms without solvent.
    structure = gemmi.read_structure(str(model))
    structure.setup_cell_images()
    data = simulated_reflections(read_crystal(model), 3.0)
    fine = np.argsort(data.inverse_d2)[-100:]
    direct = np.abs(direct_structure_factors(structure, data.hkl[fine]))
    assert np.corrcoef(direct, data.amplitudes[fine])[0, 1] > 0.98


def test_amplitudes_need_a_crystal_and_no_voxels(small_data, tmp_path, capsys):
    crystal, output = small_data / "xray_1g8a_P21" / "1G8A_refined.pdb", tmp_path / "data.mtz"
    for model, words, said in (
        (crystal, ("--voxel-size", 1), "--voxel-size is of a map"),
        (crystal, ("--noise", -1), "--noise must be 0 or more"),
        (crystal, ("--resolution", 0.05), "more than 5000000"),
        (crystal, ("--output", tmp_path / "map.mrc"), "--voxel-size is required for a map"),
        (write_fragment(tmp_path / "fragment.pdb", residues=8), (), "names no unit cell"),
    ):
        assert run("simulate", model, "--resolution", 3, "--output", output, *words) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not output.exists()
