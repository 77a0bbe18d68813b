"""What an mmCIF file says of a refinement, beside what it said before."""

from dataclasses import replace

import gemmi
import pytest

from openmm_density.extensions.deposition.cif_categories import add_refinement
from openmm_density.models.structure_files import write_model_cif
from openmm_density.models.structures import read_model

ITEMS = {
    "_em_3d_fitting.": {
        *("id", "entry_id", "method", "target_criteria", "software_name", "details"),
        *("overall_b_value", "ref_space", "ref_protocol"),
    },
    "_refine_ls_restr.": {
        *("criterion", "dev_ideal", "dev_ideal_target", "number", "rejects", "type", "weight"),
        *("pdbx_refine_id", "pdbx_restraint_function"),
    },
}
"""Of the PDBx/mmCIF dictionary, version 5."""

SAID = """
_software.pdbx_ordinal 1
_software.name REFMAC
_software.version 5.8.0158
_software.classification refinement
"""


@pytest.fixture
def model(haemoglobin, tmp_path):
    """Return haemoglobin from a file that tells of an earlier refinement."""
    path = tmp_path / "input.cif"
    path.write_text(haemoglobin[0].path.read_text() + SAID)
    return read_model(path)


@pytest.fixture
def written(model, known, tmp_path):
    path = tmp_path / "fitted.cif"
    write_model_cif(path, model, model.positions)
    before = gemmi.cif.read(str(path)).sole_block()
    add_refinement(path, known, model.b_factors, "cross-correlation")
    return before, gemmi.cif.read(str(path)).sole_block()


def test_the_categories_are_there_with_the_dictionarys_names(written, known):
    _, block = written
    for category, names in ITEMS.items():
        assert set(block.get_mmcif_category(category)) <= names
    fitting = block.get_mmcif_category("_em_3d_fitting.")
    assert fitting["ref_protocol"] == ["FLEXIBLE FIT"] and fitting["ref_space"] == ["REAL"]
    assert f"CC_mask {known.figures['map']['correlations']['cc_mask']:.3f}" in fitting["details"][0]
    assert fitting["entry_id"] == block.get_mmcif_category("_refine.")["entry_id"] == ["5NI1"]
    restraints = block.get_mmcif_category("_refine_ls_restr.")
    by_type = dict(zip(restraints["type"], map(float, restraints["dev_ideal"])))
    assert by_type["amber_bond_d"] == pytest.approx(known.geometry["bond_rmsd"], abs=1e-4)
    assert by_type["ccp4_angle_rmsz"] == pytest.approx(known.geometry["angle_rmsz"], abs=1e-4)
    assert set(restraints["pdbx_refine_id"]) == set(block.get_mmcif_category("_refine.")["pdbx_refine_id"])


def test_what_the_input_had_stays(written):
    before, block = written
    changed = {"_refine.", "_refine_ls_restr.", "_em_3d_fitting.", "_software."}
    for category in set(before.get_mmcif_category_names()) - changed:
        assert block.get_mmcif_category(category, raw=True) == before.get_mmcif_category(category, raw=True)
    for category in ("_software.", "_refine."):
        table, old = block.get_mmcif_category(category), before.get_mmcif_category(category)
        assert old and {name: table[name][: len(rows)] for name, rows in old.items()} == old
    assert block.get_mmcif_category("_software.")["name"] == ["REFMAC", "openmm-density"]


def test_twice_is_told_in_rows_of_their_own(model, known, tmp_path):
    path = tmp_path / "fitted.cif"
    write_model_cif(path, model, model.positions)
    for _ in range(2):
        add_refinement(path, known, model.b_factors, "cross-correlation")
    block = gemmi.cif.read(str(path)).sole_block()
    assert block.get_mmcif_category("_em_3d_fitting.")["id"] == ["1", "2"]


def test_a_method_that_is_not_known_is_ours(model, known, tmp_path):
    path = tmp_path / "fitted.cif"
    write_model_cif(path, model, model.positions)
    block = gemmi.cif.read(str(path)).sole_block()
    block.set_pair("_refine.pdbx_refine_id", "'?'")
    path.write_text(block.as_string())
    add_refinement(path, known, model.b_factors, "cross-correlation")
    refined = gemmi.cif.read(str(path)).sole_block().get_mmcif_category("_refine.")
    assert refined["pdbx_refine_id"] == ["ELECTRON MICROSCOPY"]


def test_a_crystal_has_r_factors_and_tells_of_its_reflections(model, known, crystal, tmp_path):
    path = tmp_path / "fitted.cif"
    write_model_cif(path, model, model.positions)
    theirs = {"version": "2025.11", "figures": {}, "missing": {}}
    known = replace(known, figures={**known.figures, "cctbx": theirs}, crystal=crystal)
    add_refinement(path, known, 0 * model.b_factors, "cross-correlation")
    block = gemmi.cif.read(str(path)).sole_block()
    assert not block.get_mmcif_category("_em_3d_fitting.")
    refined = block.get_mmcif_category("_refine.")
    for name, value in (
        ("ls_R_factor_R_work", "0.1843"),
        ("ls_R_factor_R_free", "0.2149"),
        ("ls_R_factor_R_free_error", "0.0096"),
        ("ls_number_reflns_obs", "10000"),
        ("ls_number_reflns_R_free", "500"),
        ("ls_percent_reflns_obs", "98.50"),
        ("ls_d_res_low", "20.000"),
        ("ls_d_res_high", "1.500"),
    ):
        assert refined[name] == [value]
    assert "B_iso_mean" not in refined
    assert block.get_mmcif_category("_refine_ls_shell.")["R_factor_R_free"] == ["0.3500"]
    assert block.get_mmcif_category("_reflns.")["B_iso_Wilson_estimate"] == ["14.25"]
    assert block.get_mmcif_category("_software.")["name"] == ["REFMAC", "openmm-density", "cctbx"]
    # What the data's authors say of them stays.
    assert block.get_mmcif_category("_exptl.")["method"] == ["Electron Microscopy"]
    block.find_mmcif_category("_exptl.").erase()
    block.set_pair("_exptl_crystal.id", "7")
    block.set_pair("_reflns.number_obs", "12345")
    path.write_text(block.as_string())
    add_refinement(path, known, model.b_factors, "cross-correlation")
    block = gemmi.cif.read(str(path)).sole_block()
    assert block.find_value("_reflns.number_obs") == "12345"
    assert block.get_mmcif_category("_exptl.") == {"entry_id": ["5NI1"], "method": ["X-RAY DIFFRACTION"]}
    assert block.get_mmcif_category("_exptl_crystal.") == {"id": ["7"]}
