"""Table 1 as Markdown."""

from dataclasses import replace

import pytest

from openmm_density import DensityMap
from openmm_density.extensions.deposition.diffraction import Crystal, crystal_of
from openmm_density.extensions.deposition.table import FILL_IN, Symmetric, table_one
from openmm_density.models import read_model
from openmm_density.validation.geometry import geometry_report

THEIRS = {
    "version": "2025.11",
    "figures": {"rotamer_outlier_percent": 1.25, "ramachandran_z_whole": [-1.5, 0.4], "clashscore": 7.5},
    "missing": {"CaBLAM": "needs tables"},
}


def rows(text):
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cell[0]: [each.strip(" |") for each in cell[1:]] for cell in cells}


def test_every_figure_has_a_row_with_who_says_it_and_what_is_unknown_is_marked(known):
    text = table_one(known)
    found = rows(text)
    model, figures = known.figures["model"], known.figures["map"]
    assert (
        found["CC_mask"][0] == f"{figures['correlations']['cc_mask']:.3f}"
        and "Afonine" in found["CC_mask"][1]
    )
    assert found["EMRinger score"][0] == f"{figures['emringer']:.2f}"
    assert found["Ligands and ions"][0] == "HEM: 4" and found["Waters"][0] == str(
        model["composition"]["water"]
    )
    assert found["Mean B factor, water (Å²)"][0] == f"{model['mean_b_factors']['water']:.1f}"
    assert "Mean B factor, nucleotide (Å²)" not in found
    assert found["Voltage (kV)"][0] == FILL_IN and "R_work / R_free" not in found
    assert "Amber ff14SB" in found["R.m.s. deviation, bond lengths (Å)"][1]
    # Without MolProbity ours are there, and say that they are not MolProbity's.
    assert "not MolProbity's" in found["Side chains not staggered (%)"][1]
    rms, beyond, of = (known.geometry[f"angle_{name}"] for name in ("rmsz", "outlier_count", "z_count"))
    assert found["RMSZ, bond angles (#\\|Z\\|>5)"][0] == f"{rms:.2f} ({beyond} of {of})"
    own = rows(table_one(replace(known, geometry={**known.geometry, "clashscore": 12.5})))
    assert own["Clashscore"][0] == "12.50"
    assert "our implementation" in own["Clashscore"][1] and "CaBLAM" in text
    assert 'pip install "openmm-density[deposition]"' in text
    assert "None" not in text and "nan" not in text


def test_molprobitys_figures_replace_ours_with_the_version(known):
    text = table_one(replace(known, figures={**known.figures, "cctbx": THEIRS}))
    found = rows(text)
    assert found["Clashscore"] == ["7.50", "cctbx 2025.11"]
    assert found["Rotamer outliers (%)"] == ["1.25", "cctbx 2025.11"]
    assert found["Ramachandran Z, whole (r.m.s.)"][0] == "-1.50 (0.40)"
    assert "Side chains not staggered (%)" not in found
    assert "Ramachandran outliers (%)" in found  # ours, as theirs failed
    assert "CaBLAM: needs tables." in text and "pip install" not in text


def test_a_crystal_has_r_factors_and_no_microscope(known, crystal):
    found = rows(table_one(replace(known, crystal=crystal)))
    assert found["Space group"][0] == "P 1 21 1" and found["Cell α, β, γ (°)"][0] == "90.00, 95.50, 90.00"
    for name, value in (
        ("R_work / R_free", "0.1843 / 0.2149"),
        ("R_work / R_free, 1.55–1.50 Å", "0.3000 / 0.3500"),
        ("Resolution range (Å)", "20.00–1.50 (1.55–1.50)"),
        ("Reflections", "10000 (1000)"),
        ("Reflections, work / free", "9500 / 500"),
        ("Completeness (%)", "98.5 (87.7)"),
        ("Wilson B factor (Å²)", "14.2"),
    ):
        assert found[name][0] == value
    assert found["Wavelength (Å)"][0] == FILL_IN and "Voltage (kV)" not in found


def test_a_table_of_one_unit_says_so_above_its_figures(known):
    whole, unit = (table_one(replace(known, symmetric=Symmetric("C2", n, 0.75))) for n in (1, 2))
    first = unit.splitlines()[2]
    assert first.startswith(
        "The model is one of 2 copies that its symmetry makes, and all figures are of this one"
    )
    assert "CC_mask of all is 0.750" in first and "## Model composition, one of 2 copies" in unit
    assert "copies" not in whole


def test_a_piece_of_a_crystals_map_is_that_of_a_crystal(small_data, tmp_path):
    whole = DensityMap.from_file(small_data / "xray_1g8a_P21" / "composite_omit_map.mtz")
    assert crystal_of(whole, None, "") == Crystal("P 1 21 1", whole.cell)
    piece = whole.crop([[0.0, 0.0, 0.0]], 5.0)
    piece.write(tmp_path / "piece.ccp4")
    whole.write(tmp_path / "whole.ccp4")
    for found in (piece, piece.resample(1.0), DensityMap.from_file(tmp_path / "piece.ccp4")):
        assert not found.periodic and crystal_of(found, None, "") == Crystal("P 1 21 1", None)
    again = DensityMap.from_file(tmp_path / "whole.ccp4")
    assert again.periodic and again.space_group == "P 1 21 1"
    of_file = DensityMap.from_file(small_data / "xraymap_3pqr_R32" / "3pqr.ccp4.gz")
    assert not of_file.periodic and of_file.space_group == "R 3 2:H"


def test_a_map_of_cryo_em_is_that_of_none(small_data, tmp_path):
    box = DensityMap.from_file(small_data / "emd21457_ntd" / "emd_21457_seg_orig0.mrc")
    assert crystal_of(box, (9, 9, 9, 90, 90, 90), "P 1") is None
    box.write(tmp_path / "again.mrc")
    assert DensityMap.from_file(tmp_path / "again.mrc").space_group is None


@pytest.mark.parametrize(("name", "pairs"), [("1bna_duplex", "12"), ("4p5j_rna", "33")])
def test_nucleic_acids_have_puckers_and_pairs_and_no_peptides(known, small_data, name, pairs):
    model = read_model(small_data / f"zoo/{name}.pdb")
    geometry = geometry_report(model.topology, model.positions).as_dict()
    of_map = known.figures["map"] | {"cc_bases": 0.8125, "cc_backbone": 0.75}
    found = rows(table_one(replace(known, geometry=geometry, figures=known.figures | {"map": of_map})))
    assert found["Base pairs"][0] == pairs
    assert found["CC of bases"][0] == "0.812" and found["CC of sugars and phosphates"][0] == "0.750"
    assert ("Mean suiteness" in found) == ("Suite outliers (%)" in found) == (name == "4p5j_rna")
    of_rna = found.get("Sugar pucker outliers (%)")
    assert of_rna is None if name.startswith("1bna") else of_rna[0] == "2.44" and "Pperp" in of_rna[1]
    assert not any(word in row for row in found for word in ("eptides", "Ramachandran", "Side chains"))
    assert "Cis peptides not before proline" in rows(table_one(known)) and "Base pairs" not in rows(
        table_one(known)
    )
