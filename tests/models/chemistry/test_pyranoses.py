"""Rings of sugars: Cremer and Pople's parameters, conformations and anomers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density.models import read_model
from openmm_density.models.chemistry.pyranoses import Pyranoses, find_pyranoses
from openmm_density.restraints import GlycosidicRestraint
from openmm_density.validation.geometry import compare_geometry, geometry_report

from ...small_models import turned_about


def ring(q: float, phi: float, theta: float) -> np.ndarray:
    """Return a ring of six by Cremer and Pople's equation, turned at random, shape (6, 3)."""
    j = np.arange(6)
    phi, theta = np.radians((phi, theta))
    z = np.sqrt(1 / 3) * q * np.sin(theta) * np.cos(phi + 4 * np.pi * j / 6)
    z = z + np.sqrt(1 / 6) * q * np.cos(theta) * (-1.0) ** j
    turned, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    turned *= np.linalg.det(turned)
    # Clockwise seen from above.
    return np.stack([1.45 * np.cos(np.pi * j / 3), -1.45 * np.sin(np.pi * j / 3), z], axis=1) @ turned.T + 7.0


def sugar(locant: str = "1") -> Pyranoses:
    """Return a pyranose of the atoms 0 to 5 alone."""
    none = np.array([-1])
    return Pyranoses(np.array([0]), np.arange(6)[None], none, none, (locant,), np.array([True]))


@pytest.mark.parametrize(
    ("phi", "theta", "name"),
    [
        (77.0, 4.0, "4C1"),
        (10.0, 175.0, "1C4"),
        (2.0, 90.0, "3,OB"),  # at 0° it may be 360
        (32.0, 88.0, "3S1"),
        (240.0, 90.0, "1,4B"),
        (240.0, 54.7, "4E"),
        (210.0, 50.8, "4H3"),
        (330.0, 129.2, "3H2"),
        (355.0, 125.0, "3E"),
    ],
)
def test_parameters_are_those_of_the_published_equation_and_names_those_of_the_map(phi, theta, name) -> None:
    positions = ring(0.57, phi, theta)
    assert np.ravel(sugar().puckers(positions)) == pytest.approx([0.57, phi, theta], abs=1e-6)
    assert sugar().conformations(positions) == [name]
    above = {"4C1": (4, 1), "4E": (4,), "3,OB": (3, 0)}.get(name)
    if above:  # the atom named first is on the side from which the ring runs clockwise
        normal = np.cross(positions[2] - positions[0], positions[4] - positions[0])
        heights = (positions - positions.mean(axis=0)) @ -normal
        assert heights[above[0]] > 0.3 * np.abs(heights).max()


def test_sialic_acids_have_their_own_numbers() -> None:
    assert sugar("2").conformations(ring(0.57, 0.0, 178.0)) == ["2C5"]


def test_sugars_are_found_by_their_bonds_and_know_their_chair_and_anomer(small_data: Path) -> None:
    model = read_model(small_data / "xraymap_3pqr_R32/3pqr.pdb")
    found = {
        each["residue"]: (each["conformation"], each["anomer"])
        for each in geometry_report(model.topology, model.positions).as_dict()["pyranoses"]
    }
    assert found["A NAG 402"] == ("4C1", "β") and found["A MAN 405"] == ("4C1", "α")
    # As in the deposition: the mannose of the core, at the end of the density, is no chair.
    assert found["A BMA 404"] == ("E1", "β")


def test_l_sugars_have_the_other_chair_and_a_ring_or_anomer_that_changes_is_told(small_data: Path) -> None:
    model = read_model(small_data / "zoo/3zw1_anomers.pdb")
    sugars, residues = find_pyranoses(model.topology), list(model.topology.residues())
    unusual = sugars.unusual(model.positions)
    by_name = {residues[k].name: n for n, k in enumerate(sugars.residues)}
    fucose = by_name["FUC"]
    assert sugars.conformations(model.positions)[fucose] == "1C4" and not unusual[fucose]
    before = geometry_report(model.topology, model.positions)
    # The whole model mirrored: D become L, each in the chair that is usual there, anomers stay.
    mirrored = geometry_report(model.topology, model.positions * [1.0, 1.0, -1.0])
    assert mirrored.sugars.conformations[fucose] == "4C1"
    assert (mirrored.sugars.is_unusual == unusual).all()
    assert (mirrored.sugars.anomers == before.sugars.anomers).all()
    moved = model.positions.copy()
    oxygen, carbon = sugars.anomeric[fucose], sugars.rings[fucose, 1]
    sides = moved[sugars.rings[fucose, [0, 2]]] - moved[carbon]
    normal = np.cross(*sides) / np.linalg.norm(np.cross(*sides))
    moved[oxygen] -= 2 * normal * ((moved[oxygen] - moved[carbon]) @ normal)
    label = before.sugars.names[fucose]
    after = geometry_report(model.topology, moved)
    assert compare_geometry(before, after).pyranose_changes == [f"{label} (anomer inverted)"]
    assert compare_geometry(before, before).pyranose_changes == []


def test_links_of_sugars_stay_turned_as_they_are(small_data: Path) -> None:
    model = read_model(small_data / "zoo/3zw1_anomers.pdb")
    restraint = GlycosidicRestraint(model.topology, model.positions)
    atoms = list(model.topology.atoms())
    names = [[f"{atoms[k].residue.name} {atoms[k].name}" for k in four] for four in restraint.torsions]
    assert ["FUC O5", "FUC C1", "NAG O3", "NAG C3"] in names and [
        "GAL C1",
        "NAG O4",
        "NAG C4",
        "NAG C3",
    ] in names
    assert restraint.violations(model.positions) == []
    fucose = [atom.index for atom in atoms if atom.residue.name == "FUC"]
    place = {(atom.residue.name, atom.name): atom.index for atom in atoms}
    bond = place["NAG", "C3"], place["NAG", "O3"]
    turned = turned_about(model.positions, *bond, fucose, np.radians(100.0))
    (violation,) = restraint.violations(turned)
    assert violation.quantity == "ψ" and violation.deviation == pytest.approx(100.0, abs=0.1)


def test_a_model_without_sugars_has_none() -> None:
    assert len(find_pyranoses(app.Topology()).residues) == 0
