"""Sugar puckers and base pairs in a report of a model's geometry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density.models import Model, read_model
from openmm_density.validation.geometry import compare_geometry, geometry_report


@pytest.fixture(scope="module")
def rna(small_data: Path) -> Model:
    return read_model(small_data / "zoo/4p5j_rna.pdb")


def test_puckers_and_pairs_of_rna_are_in_its_report(rna: Model) -> None:
    report = geometry_report(rna.topology, rna.positions).as_dict()
    assert report["pucker_count"] == 82 and report["pucker_outlier_count"] == 2
    assert report["pucker_outliers"] == ["A A 1", "A U 12"]
    assert report["base_pair_count"] == 33 and "A G 2 - A C 74 (cWW)" in report["base_pairs"]
    assert report["twisted_count"] is None and report["rotamer_outlier_count"] is None


def test_dna_has_pairs_and_no_rule_for_puckers_and_a_protein_neither(small_data: Path) -> None:
    dna = read_model(small_data / "zoo/1bna_duplex.pdb")
    report = geometry_report(dna.topology, dna.positions).as_dict()
    assert report["pucker_count"] == 0 and report["pucker_outlier_count"] is None
    assert report["base_pair_count"] == 12
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
