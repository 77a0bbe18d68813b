"""Files are what their contents are, whatever they are called."""

import gzip
import shutil

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap, InputError
from openmm_density.analysis import load_trajectory
from openmm_density.base.given_files import kind_of
from openmm_density.cli.amplitudes import takes_amplitudes
from openmm_density.cli.arguments import check_files
from openmm_density.models import read_model
from openmm_density.models.structure_files import write_model_cif, write_pdb

from ..conftest import PROJECT

DATA = PROJECT / "tests" / "data"
PDB = PROJECT / "examples" / "data" / "adk_closed.pdb"
MRC = DATA / "emd6187_kinesin" / "chain_K_box.ccp4"


@pytest.fixture(scope="module")
def cif(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "model.cif"
    structure = gemmi.read_structure(str(PDB))
    structure.setup_entities()
    path.write_text("# a comment\n\n" + structure.make_mmcif_document().as_string())
    return path


@pytest.fixture(scope="module")
def refined(tmp_path_factory):
    """Return an MTZ file as a refinement writes it: amplitudes, free flags, and coefficients of two maps."""
    mtz = gemmi.Mtz(with_base=True)
    mtz.spacegroup = gemmi.SpaceGroup("P 1 21 1")
    mtz.set_cell_for_all(gemmi.UnitCell(20, 24, 18, 90, 98, 90))
    mtz.add_dataset("refined")
    for label, kind in (("FP", "F"), ("SIGFP", "Q"), ("FREE", "I"), ("FWT", "F"), ("PHWT", "P")):
        mtz.add_column(label, kind)
    hkl = gemmi.make_miller_array(mtz.cell, mtz.spacegroup, 2.0)
    rng = np.random.default_rng(5)
    values = rng.uniform(1, 10, len(hkl))
    columns = (values, 0.1 * values, np.arange(len(hkl)) % 20, values, np.zeros(len(hkl)))
    mtz.set_data(np.column_stack([hkl, *columns]).astype(np.float32))
    path = tmp_path_factory.mktemp("kinds") / "refined.mtz"
    mtz.write_to_file(str(path))
    return path


def test_kinds_are_told_by_content(tmp_path, cif, refined):
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(PDB.read_bytes()))
    nothing = tmp_path / "nothing.pdb"
    nothing.write_text("no such thing\n")
    found = [kind_of(path) for path in (PDB, packed, cif, MRC, refined, nothing, tmp_path / "not_there")]
    assert found == ["PDB", "PDB", "mmCIF", "MRC", "MTZ", "", ""]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("PDB", "model.mmcif"), ("PDB", "model.cif.gz"), ("mmCIF", "model.ent"), ("mmCIF", "model.txt")],
)
def test_a_file_under_another_name_is_the_same_model(tmp_path, cif, kind, name):
    """What is written of it is what is written of it under its own name."""
    source, path = PDB if kind == "PDB" else cif, tmp_path / name
    contents = source.read_bytes()
    path.write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)
    with pytest.warns(UserWarning, match=f"{name} is read as {kind}, which it is by its content") as told:
        right, wrong = read_model(source), read_model(path)
    assert told[0].filename == __file__ and load_trajectory(path).n_atoms == len(right.positions)
    np.testing.assert_array_equal(wrong.positions, right.positions)
    assert wrong.notes == [f"{name} is read as {kind}, which it is by its content.", *right.notes]
    for write, written in ((write_pdb, "out.pdb"), (write_model_cif, "out.cif")):
        texts = []
        for model in (right, wrong):
            write(tmp_path / written, model, model.positions)
            texts.append((tmp_path / written).read_text())
        assert texts[0] == texts[1]


def test_maps_are_read_by_content(tmp_path, refined):
    for source, name, kind in (
        (MRC, "map.mtz", "MRC"),
        (MRC, "map.situs", "MRC"),
        (refined, "map.mrc", "MTZ"),
        (MRC, "map.bin", "MRC"),
    ):
        shutil.copy(source, tmp_path / name)
        with pytest.warns(UserWarning, match=f"{name} is read as {kind}, which it is by its content") as told:
            found = DensityMap.from_file(tmp_path / name)
        assert told[0].filename == __file__
        expected = DensityMap.from_file(source)
        np.testing.assert_array_equal(found.data, expected.data)
        np.testing.assert_array_equal(found.origin, expected.origin)


def test_a_map_for_a_model_and_a_model_for_a_map_are_named(tmp_path, cif, refined):
    for source, name in ((PDB, "model.mrc"), (cif, "model.map"), (MRC, "map.pdb"), (refined, "data.cif")):
        shutil.copy(source, tmp_path / name)
    with pytest.raises(InputError, match=r"model.mrc: it is a model \(PDB\), not a density map"):
        DensityMap.from_file(tmp_path / "model.mrc")
    with pytest.raises(InputError, match=r"model.map: it is a model \(mmCIF\), not a density map"):
        DensityMap.from_file(tmp_path / "model.map")
    with pytest.raises(
        InputError, match=r"map.pdb: it is a map or its structure factors \(MRC\), not a model"
    ):
        read_model(tmp_path / "map.pdb")
    with pytest.raises(
        InputError, match=r"data.cif: it is a map or its structure factors \(MTZ\), not a model"
    ):
        read_model(tmp_path / "data.cif")
    for model, density_map in ((MRC, PDB), (tmp_path / "map.pdb", tmp_path / "model.mrc")):
        with pytest.raises(InputError, match="a model: they are swapped"):
            check_files([str(model)], [str(density_map)])
    # Each in its own place, whatever its name.
    check_files([str(PDB)], [str(MRC)])


def test_measured_amplitudes_come_before_map_coefficients_that_were_not_asked_for(tmp_path, refined):
    assert takes_amplitudes(str(refined), None)
    assert not takes_amplitudes(str(refined), ("FWT", "PHWT"))
    assert not takes_amplitudes(str(refined), None, rather_than_map=False)
    under_another_name = shutil.copy(refined, tmp_path / "refined.map")
    assert takes_amplitudes(str(under_another_name), None)
