"""Table 1 as Markdown."""

from dataclasses import replace

from openmm_density.deposition.table import FILL_IN, crystal_of, table_one

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
    assert "Clashscore" not in found and 'pip install "openmm-density[deposition]"' in text
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


def test_a_crystal_has_r_factors_and_no_microscope(known, haemoglobin):
    _, density_map = haemoglobin
    crystal = crystal_of(replace(density_map, periodic=True), (10, 20, 30, 90, 95.5, 90), "P 1 21 1")
    assert crystal == "P 1 21 1; 10.00, 20.00, 30.00, 90.00, 95.50, 90.00"
    unknown = crystal_of(replace(density_map, periodic=True), (10, 20, 30, 90, 90, 90), "")
    assert unknown.startswith(f"{FILL_IN}; 10.00,")
    found = rows(table_one(replace(known, crystal=crystal, r_work=0.1812, r_free=0.2149)))
    assert (
        found["R_work / R_free"][0] == "0.1812 / 0.2149"
        and found["Space group and cell (Å, °)"][0] == crystal
    )
    assert "Voltage (kV)" not in found
    assert rows(table_one(replace(known, crystal=crystal)))["R_work / R_free"][0] == FILL_IN
