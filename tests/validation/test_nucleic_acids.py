"""Sugar puckers and base pairs in a report of a model's geometry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import Model, read_model
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.geometry import compare_geometry, geometry_report
from openmm_density.validation.model_report import map_report
from openmm_density.validation.nucleic_acids import nucleotide_parts
from openmm_density.validation.q_score import q_scores


def test_puckers_and_pairs_of_rna_are_in_its_report(rna: Model) -> None:
    report = geometry_report(rna.topology, rna.positions).as_dict()
    assert report["pucker_count"] == 82 and report["pucker_outlier_count"] == 2
    assert report["pucker_outliers"] == ["A A 1", "A U 12"]
    assert report["suite_count"] == 82 and report["suite_outlier_count"] == len(report["suite_outliers"]) == 8
    assert report["mean_suiteness"] == pytest.approx(0.634, abs=1e-3)
    assert report["base_pair_count"] == 33 and "A G 2 - A C 74 (cWW)" in report["base_pairs"]
    assert report["twisted_count"] is None and report["rotamer_outlier_count"] is None


def test_dna_has_pairs_and_no_rule_for_puckers_and_a_protein_neither(small_data: Path) -> None:
    dna = read_model(small_data / "zoo/1bna_duplex.pdb")
    report = geometry_report(dna.topology, dna.positions).as_dict()
    assert report["pucker_count"] == 0 and report["pucker_outlier_count"] is None
    assert report["base_pair_count"] == 12 and report["suite_count"] == 0
    assert report["mean_suiteness"] is report["suite_outlier_count"] is None
    protein = read_model(small_data / "emd5925_frag/5925_native.pdb")
    report = geometry_report(protein.topology, protein.positions).as_dict()
    assert report["base_pair_count"] is None and report["base_pairs"] == report["pucker_outliers"] == []


def test_pairs_that_open_and_close_are_named(small_data: Path) -> None:
    dna = read_model(small_data / "zoo/1bna_duplex.pdb")
    opened = dna.positions.copy()
    out = [atom.index for atom in dna.topology.atoms() if atom.residue.id in ("11", "12")]
    opened[out] += np.array([0.0, 0.0, 6.0])
    before, after = (geometry_report(dna.topology, positions) for positions in (dna.positions, opened))
    change = compare_geometry(before, after)
    assert change.base_pairs_lost == ["A DC 11 - B DG 14 (cWW)", "A DG 12 - B DC 13 (cWW)"]
    assert set(change.base_pairs_gained).isdisjoint(change.base_pairs_lost)
    assert compare_geometry(after, before).base_pairs_gained == change.base_pairs_lost
    assert compare_geometry(before, before).base_pairs_lost == []


def test_bases_and_backbone_have_correlations_of_their_own(
    rna: Model, emd5925: Model, map5925: DensityMap
) -> None:
    density_map = DensityMap.simulate(rna.topology, rna.positions, 4.0, 1.3)
    parts = nucleotide_parts(rna.topology)
    names = np.array([atom.name for atom in rna.topology.atoms()])
    assert set(names[parts == 0]) == set(
        ["N1", "C2", "N2", "O2", "N3", "C4", "N4", "O4", "C5", "C6", "N6", "O6", "N7", "C8", "N9"]
    )
    assert {"P", "OP1", "OP2", "C1'", "O3'"} < set(names[parts == 1]) and (parts >= 0).all()
    correlation = MapCorrelation(density_map, rna.topology, 4.0)
    moved = rna.positions.copy()
    moved[parts == 0] += [0.0, 0.0, 1.5]
    found = correlation.group_correlations(moved, parts, 2)
    assert found[0] < found[1] - 0.05 < 0.99
    # One group of all atoms is the whole model.
    (whole,) = correlation.group_correlations(moved, np.zeros_like(parts), 1)
    assert whole == pytest.approx(correlation.cc_mask(moved), abs=1e-9)
    told = map_report(rna.topology, moved, density_map, 4.0)
    assert [told["cc_bases"], told["cc_backbone"]] == found.tolist()
    scores = q_scores(density_map, rna.topology, moved).atoms
    assert told["q_score_bases"] == pytest.approx(np.nanmean(scores[parts == 0]))
    assert told["q_score_bases"] < told["q_score_backbone"]
    told = map_report(emd5925.topology, emd5925.positions, map5925, 3.64)
    assert told["cc_bases"] is told["cc_backbone"] is told["q_score_bases"] is None


def test_a_nucleotide_whose_name_is_not_known_is_one_of_its_chain(small_data: Path) -> None:
    model = read_model(small_data / "zoo/1bna_duplex.pdb")
    parts = nucleotide_parts(model.topology)
    list(model.topology.residues())[4].name = "XYZ"
    assert nucleotide_parts(model.topology).tolist() == parts.tolist() and (parts >= 0).all()


def test_a_ligand_that_is_a_nucleotide_is_no_nucleic_acid(small_data: Path) -> None:
    kinesin = read_model(small_data / "emd6187_kinesin" / "1bg2_K_fitted.pdb")
    assert "ADP" in {residue.name for residue in kinesin.topology.residues()}
    assert (nucleotide_parts(kinesin.topology) == -1).all()
    assert geometry_report(kinesin.topology, kinesin.positions).as_dict()["base_pair_count"] is None
