from __future__ import annotations

import itertools
import sys

import mdtraj
import numpy as np
import pytest
from openmm import app

from openmm_density.models import Model
from openmm_density.validation.geometry import GeometryReport, compare_geometry, geometry_report, ramachandran

PARTS = ("count", "favoured_count", "allowed_count", "outlier_count", "outliers")


def torsions_by_mdtraj(model: Model) -> dict[int, tuple[float, float]]:
    trajectory = mdtraj.Trajectory(model.positions / 10, mdtraj.Topology.from_openmm(model.topology))
    residue_of = [atom.residue.index for atom in trajectory.topology.atoms]
    phi, psi = (
        {residue_of[atoms[1]]: angle for atoms, angle in zip(indices, np.degrees(angles[0]))}
        for indices, angles in (mdtraj.compute_phi(trajectory), mdtraj.compute_psi(trajectory))
    )
    return {i: (phi[i], psi[i]) for i in phi.keys() & psi.keys()}


def test_backbone_torsions_agree_with_mdtraj(emd6374: Model) -> None:
    found = ramachandran(emd6374.topology, emd6374.positions)
    expected = torsions_by_mdtraj(emd6374)
    assert found.residues.tolist() == sorted(expected)
    angles = np.degrees(np.stack([found.phi, found.psi], axis=1))
    np.testing.assert_allclose(angles, [expected[i] for i in sorted(expected)], atol=0.1)


@pytest.mark.parametrize(
    ("phi", "psi", "kind", "following", "region"),
    [
        (-63, -43, "ALA", "ALA", "F"),
        (-120, 130, "ALA", "ALA", "F"),
        (75, 120, "ALA", "ALA", "."),
        (-65, 80, "ALA", "ALA", "a"),
        (0, 0, "ALA", "ALA", "."),
        (85, 10, "GLY", "ALA", "F"),
        (100, 180, "GLY", "ALA", "F"),
        (100, 180, "ALA", "ALA", "."),
        (-65, 145, "PRO", "ALA", "F"),
        (-120, 130, "PRO", "ALA", "."),
        (-95, 5, "ALA", "PRO", "."),
        (-95, 5, "ALA", "ALA", "F"),
    ],
)
def test_regions_of_the_ramachandran_plot(
    phi: float, psi: float, kind: str, following: str, region: str
) -> None:
    topology, positions = tripeptide(kind, following, phi, psi)
    found = ramachandran(topology, positions)
    np.testing.assert_allclose(np.degrees([found.phi[0], found.psi[0]]), [phi, psi], atol=1e-6)
    assert found.regions.tolist() == [region]
    report = geometry_report(topology, positions)
    counts = (
        report.ramachandran_favoured_count,
        report.ramachandran_allowed_count,
        report.ramachandran_outlier_count,
    )
    assert counts == tuple(int(region == letter) for letter in "Fa.")
    assert report.ramachandran_outliers == ([f"A {kind} 2"] if region == "." else [])


def test_d_amino_acids_have_the_mirrored_plot() -> None:
    for kind, angles in (("ALA", (-63, -43)), ("DAL", (63, 43))):
        found = ramachandran(*tripeptide(kind, "ALA", *angles))
        assert found.regions.tolist() == ["F"]
    assert ramachandran(*tripeptide("DAL", "ALA", 75, -160)).regions.tolist() != ["."]
    assert ramachandran(*tripeptide("DAL", "ALA", -75, -120)).regions.tolist() == ["."]


@pytest.mark.parametrize(
    ("phi", "psi", "region"), [(-100, 180, "F"), (-100, -180, "F"), (180, 164, "a"), (-180, 164, "a")]
)
def test_the_plot_has_no_seam(phi: float, psi: float, region: str) -> None:
    assert ramachandran(*tripeptide("ALA", "ALA", phi, psi)).regions.tolist() == [region]


def test_without_pyrama_only_the_plot_is_missing(emd6374: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tables = geometry_report(emd6374.topology, emd6374.positions)
    assert with_tables.notes == []
    monkeypatch.setitem(sys.modules, "pyrama", None)
    assert_only_the_plot_is_missing(emd6374, with_tables)


def assert_only_the_plot_is_missing(model: Model, with_tables: GeometryReport) -> None:
    report = geometry_report(model.topology, model.positions)
    (note,) = report.notes
    assert "pip install pyrama" in note
    before, after = with_tables.as_dict(), report.as_dict()
    missing = {name for name in before if name.startswith("ramachandran_")}
    assert missing == {f"ramachandran_{part}" for part in PARTS}
    assert all(after[name] is None and before[name] is not None for name in missing)
    assert {name: value for name, value in after.items() if name not in missing} == {
        name: value for name, value in before.items() if name not in missing
    } | {"notes": [note]}
    change = compare_geometry(with_tables, report)
    assert (change.peptide_flips, change.inverted_centres) == ([], [])
    assert ramachandran(model.topology, model.positions).regions is None


def tripeptide(kind: str, following: str, phi: float, psi: float) -> tuple[app.Topology, np.ndarray]:
    """Return C of one residue, N, CA and C of the next, and N of a third, with the torsions in degrees."""
    topology = app.Topology()
    chain = topology.addChain("A")
    atoms = []
    for number, (name, members) in enumerate(
        (("ALA", ("CA", "C")), (kind, ("N", "CA", "C")), (following, ("N", "CA"))), start=1
    ):
        residue = topology.addResidue(name, chain, str(number))
        for member in members:
            element = app.element.nitrogen if member == "N" else app.element.carbon
            atoms.append(topology.addAtom(member, element, residue))
    for a, b in itertools.pairwise(atoms):
        topology.addBond(a, b)
    places = [np.array([0.0, 0, 0]), np.array([1.5, 0, 0]), np.array([2.0, 1.2, 0])]
    for torsion, length in ((180, 1.46), (phi, 1.52), (psi, 1.33), (180, 1.46)):
        places.append(extended(places[-3:], np.radians(torsion), length))
    return topology, np.array(places)


def extended(
    last: list[np.ndarray], torsion: float, length: float, angle: float = np.radians(112)
) -> np.ndarray:
    """Place an atom behind three others."""
    a, b, c = last
    along = (c - b) / np.linalg.norm(c - b)
    normal = np.cross(b - a, along)
    normal /= np.linalg.norm(normal)
    side = np.cross(normal, along)
    return c + length * (
        -np.cos(angle) * along + np.sin(angle) * (np.cos(torsion) * side + np.sin(torsion) * normal)
    )
