"""What metals bind, and that a fit's changes of it are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density.models import read_model
from openmm_density.models.chemistry.metal_sites import find_metal_sites, is_measured_donor
from openmm_density.validation.geometry import compare_geometry, geometry_report


def octahedron(length: float) -> tuple[app.Topology, np.ndarray]:
    """Return a magnesium with six waters around it and one farther off."""
    topology = app.Topology()
    chain = topology.addChain("A")
    places = [[0.0, 0, 0], *(length * np.concatenate([np.eye(3), -np.eye(3)])), [0.0, 3.0, 3.0]]
    for number in range(len(places)):
        name, element = ("MG", app.element.magnesium) if number == 0 else ("O", app.element.oxygen)
        residue = topology.addResidue("HOH" if number else "MG", chain, str(number))
        topology.addAtom(name, element, residue)
    return topology, np.array(places)


def test_magnesium_has_six_waters_at_the_published_distance() -> None:
    topology, positions = octahedron(2.07)
    sites = find_metal_sites(topology, positions)
    assert sites.pairs[:, 1].tolist() == [1, 2, 3, 4, 5, 6] and sites.targets == pytest.approx([2.07] * 6)
    before = geometry_report(topology, positions)
    assert before.as_dict()["metals"] == [{"metal": "A MG 0", "coordination": 6, "unusual_distances": {}}]
    moved = positions.copy()
    moved[1, 0] = 3.5
    moved[2, 1] = 2.5
    after = geometry_report(topology, moved)
    assert after.as_dict()["metals"] == [
        {"metal": "A MG 0", "coordination": 5, "unusual_distances": {"A HOH 2 O": 2.5}}
    ]
    assert compare_geometry(before, after).metal_changes == ["A MG 0 (6 to 5: without A HOH 1 O)"]
    assert compare_geometry(after, before).metal_changes == ["A MG 0 (5 to 6: with A HOH 1 O)"]
    # What is as near as before within the error of a fit is no change.
    moved[1, 0] = 2.6
    edge = positions.copy()
    edge[1, 0] = 2.5
    assert (
        compare_geometry(geometry_report(topology, edge), geometry_report(topology, moved)).metal_changes
        == []
    )


def test_waters_of_one_name_are_counted_each() -> None:
    """As in files whose waters begin again at 1."""
    topology, positions = octahedron(2.07)
    for residue in topology.residues():
        residue.id = "1"
    before = geometry_report(topology, positions)
    assert before.as_dict()["metals"][0]["coordination"] == 6
    moved = positions.copy()
    moved[1, 0] = 3.5
    changes = compare_geometry(before, geometry_report(topology, moved)).metal_changes
    assert changes == ["A MG 1 (6 to 5: without A HOH 1 O)"]


def test_iron_of_a_haem_binds_four_nitrogens_and_mostly_a_histidine(small_data: Path) -> None:
    model = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    metals = geometry_report(model.topology, model.positions).as_dict()["metals"]
    assert [each["metal"] for each in metals] == [f"{chain} HEM 201 FE" for chain in "ABCD"]
    # The histidine of chain B is 2.7 Å away.
    assert {each["coordination"] for each in metals} <= {4, 5}


def test_distances_are_published_of_few_nitrogens(small_data: Path) -> None:
    model = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    donors = [atom for atom in model.topology.atoms() if is_measured_donor(atom)]
    assert {(atom.residue.name, atom.name) for atom in donors if atom.element.symbol != "O"} == {
        ("HIS", "ND1"),
        ("HIS", "NE2"),
        ("CYS", "SG"),
    }
    assert {"O", "OD1", "OE2", "OG"} <= {atom.name for atom in donors}
