"""``fit --symmetry``: one unit is fitted, and its assembly written."""

import json

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import read_model

from ...cli.commands import run
from .test_finding import assembly, operators, unit  # noqa: F401


@pytest.fixture(scope="module")
def ring(tmp_path_factory, unit):  # noqa: F811
    """Two chains about an axis, displaced from their map."""
    folder = tmp_path_factory.mktemp("ring")
    truth = operators("C2")
    whole = assembly(folder / "truth.cif", unit, *truth)
    density_map = DensityMap.simulate(whole.topology, whole.positions, 5.0, 1.7)
    density_map.write(folder / "map.mrc")
    for chain in (moved := gemmi.read_structure(str(folder / "truth.cif")))[0]:
        for residue in chain:
            for atom in residue:
                sign = 1.0 if chain.name == "A" else -1.0
                atom.pos += gemmi.Position(0.7 * sign, 0.5 * sign, 0.4)
    moved.make_mmcif_document().write_file(str(folder / "start.cif"))
    return folder


def fit(ring, output, *extra):
    return run(
        "fit", ring / "start.cif", ring / "map.mrc", "--resolution", 5, "--output", output, "--protocol", "quick",
        "--platform=CPU", "--steps", 60, "--strength", 30, "--place", "off", "--search", "off", "--threads", 1, *extra,
    )  # fmt: skip


def test_the_unit_is_fitted_and_gemmi_builds_the_assembly(ring, tmp_path, capsys):
    assert fit(ring, tmp_path / "run", "--symmetry", "auto") == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())["assembly"]
    assert (found["symmetry"], found["copies"], found["unit"], found["axes_from"]) == (
        "C2",
        2,
        ["A"],
        "chains",
    )
    assert found["cc_initial"] + 0.05 < found["cc_final"] and found["cc_final"] > 0.8
    assert "assembly of 2 copies (C2): CC" in capsys.readouterr().out
    assert "one of 2 copies that its symmetry makes" in (tmp_path / "run" / "table1.md").read_text()
    block = gemmi.cif.read(str(tmp_path / "run" / "fitted.cif")).sole_block()
    assert f"CC_mask of all its copies {found['cc_final']:.3f}" in block.find_value("_em_3d_fitting.details")
    assert "copies by C2" in (tmp_path / "run" / "report.html").read_text()
    structure = gemmi.read_structure(str(tmp_path / "run" / "assembly.cif"))
    unit_atoms = structure[0].count_atom_sites()
    structure.transform_to_assembly("1", gemmi.HowToNameCopiedChain.AddNumber)
    expanded = gemmi.read_structure(str(tmp_path / "run" / "assembly_expanded.cif"))
    built, written = (
        np.array([site.atom.pos.tolist() for site in each[0].all()]) for each in (structure, expanded)
    )
    assert len(built) == 2 * unit_atoms
    np.testing.assert_allclose(built, written, atol=2e-3)
    # The copies are where the truth has them.
    truth, fitted = (
        read_model(path) for path in (ring / "truth.cif", tmp_path / "run" / "assembly_expanded.cif")
    )
    traces = [
        np.array([model.positions[atom.index] for atom in model.topology.atoms() if atom.name == "CA"])
        for model in (truth, fitted)
    ]
    assert np.sqrt(((traces[0] - traces[1]) ** 2).sum(axis=1).mean()) < 0.6


@pytest.mark.parametrize(
    "extra, said",
    [
        (("--symmetry", "X4"), r"symmetry must be a symmetry"),
        (("--symmetry", "helical:0,20"), "rise"),
        (("--symmetry", "C2", "--replicas", "4"), "symmetry cannot be used with"),
        (("--symmetry", "C2", "--solvent", "water"), "symmetry cannot be used with"),
        (("--symmetry", "C3"), "has chains in the symmetry C2"),
        (("--symmetry", "crystal"), "cannot be used: the map is not that of a crystal's whole cell"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(ring, tmp_path, extra, said, capsys):
    assert fit(ring, tmp_path / "run", *extra) == 2
    told = capsys.readouterr().err
    assert said.removeprefix("symmetry ") in told and told.count("\n") == 1
    assert not (tmp_path / "run" / "summary.json").exists()


def test_score_tells_of_the_symmetry(ring, capsys):
    asked = ("score", ring / "truth.cif", ring / "map.mrc", "--resolution", 5, "--symmetry", "C2")
    assert run(*asked) == 0
    told = capsys.readouterr().out
    assert "symmetry C2, axes from the chains: the map correlates with its copies by 0.9" in told
    assert run(*asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)["assembly"]
    assert found["copies"] == 2 and found["cc"] > 0.95 and found["unit"] == ["A"]
