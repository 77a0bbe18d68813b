"""The figures of a Table 1: composition, B factors, and those of model and map."""

import json

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.deposition.figures import (
    FiguresOfModel,
    composition,
    deposition_figures,
    mean_b_factors,
)


def test_composition_and_b_factors_are_those_that_gemmi_counts(haemoglobin):
    model, _ = haemoglobin
    structure = gemmi.read_structure(str(model.path))
    structure.remove_alternative_conformations()
    kinds = {"protein": [], "ligand": [], "water": []}
    for chain in structure[0]:
        for residue in chain:
            info = gemmi.find_tabulated_residue(residue.name)
            kind = "water" if info.is_water() else "protein" if info.is_amino_acid() else "ligand"
            kinds[kind].append([atom.b_iso for atom in residue if not atom.is_hydrogen()])
    found = composition(model.topology)
    assert {kind: found[kind] for kind in kinds} == {kind: len(each) for kind, each in kinds.items()}
    assert found["atoms"] == sum(len(each) for values in kinds.values() for each in values)
    assert found["ligands"] == {"HEM": 4} and found["chains"] == 4 and found["nucleotide"] == 0
    means = mean_b_factors(model.topology, model.b_factors)
    for kind, values in kinds.items():
        assert means[kind] == pytest.approx(np.mean(np.concatenate(values)), rel=1e-5)
    assert means["nucleotide"] is None


def test_the_figures_are_plain_and_relative_q_is_to_what_is_expected(known):
    figures = known.figures
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    of_map = figures["map"]
    assert of_map["q_score"] == pytest.approx(0.6)
    assert of_map["q_score_relative"] == pytest.approx(0.6 / (1.1242 - 3.2 * 0.1866))
    assert of_map["correlations"]["b_used"] == "model" and figures["cctbx"] is None
    assert of_map["fsc"]["masked_0.5"]["resolution"] > of_map["fsc"]["masked_0.143"]["resolution"] > 2


def test_what_is_away_from_the_map_has_no_figures_and_breaks_nothing(haemoglobin):
    model, density_map = haemoglobin
    nowhere = FiguresOfModel(
        model.topology, model.positions + 800, np.zeros(len(model.positions)), model.occupancies
    )
    found = deposition_figures(nowhere, density_map, 9.0)["map"]
    assert found["q_score"] is found["smoc"] is found["emringer"] is None
    assert set(found["fsc"].values()) == {None}
    assert found["correlations"] == dict.fromkeys(("cc_mask", "cc_volume", "cc_peaks", "cc_box")) | {
        "b_used": "8 d"
    }
