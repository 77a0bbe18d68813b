"""Which contacts between residues are bonds: those that chemistry makes, or the file names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openmm_density.models import Model, read_model

from ..fragments import write_fragment
from ..small_models import bonds_between_residues, hetatm, written

# A zigzag of carbons as in an alkane: 1.53 Å, 110°.
ZIGZAG = np.array([[1.253 * k, 0.878 * (k % 2), 0.0] for k in range(8)])


def _ligand(
    first: int, number: int, places: np.ndarray, name: str = "LIG", elements: str = "CCCCCCCC"
) -> list[str]:
    return [
        hetatm(first + k, f" {element}{k + 1}", name, number, place, element)
        for k, (place, element) in enumerate(zip(places, elements))
    ]


def _described(model: Model) -> list[tuple[str, str]]:
    return [tuple(model.records[k].describe() for k in pair) for pair in model.short_contacts]


@pytest.mark.parametrize("name", ["xraymap_3pqr_R32/3pqr.pdb", "emd21457_ntd/6vyb_Ndom.pdb"])
def test_real_bonds_are_found_without_their_records(small_data: Path, tmp_path: Path, name: str) -> None:
    """Sugars on asparagine and on one another, retinal on lysine, palmitate on cysteine."""
    lines = (small_data / name).read_text().splitlines()
    bare = [line for line in lines if not line.startswith(("LINK", "SSBOND", "CONECT", "END"))]
    model, without = read_model(small_data / name), read_model(written(tmp_path / "bare.pdb", bare))
    assert model.links and not without.links
    assert bonds_between_residues(without.topology) == bonds_between_residues(model.topology)
    assert model.short_contacts == without.short_contacts == ()


def test_a_short_contact_of_two_ligands_is_no_bond(tmp_path: Path) -> None:
    # With the length and the angles of a bond.
    lines = _ligand(1, 501, ZIGZAG[:3]) + _ligand(11, 502, ZIGZAG[3:6])
    model = read_model(written(tmp_path / "two.pdb", lines))
    assert bonds_between_residues(model.topology) == set()
    assert _described(model) == [("A LIG 501 C3", "A LIG 502 C1")]
    distance = np.linalg.norm(np.subtract(*model.positions[list(model.short_contacts[0])]))
    assert distance == pytest.approx(1.53, abs=0.01)
    # The file may say otherwise.
    link = "LINK         C3  LIG A 501                 C1  LIG A 502     1555   1555  1.53"
    for records in ([link, *lines], [*lines, "CONECT    3   11"]):
        named = read_model(written(tmp_path / "named.pdb", records))
        assert bonds_between_residues(named.topology) == {frozenset(("501.C3", "502.C1"))}
        assert named.short_contacts == ()


CYSTEINE = [
    "ATOM      1  N   CYS A   1      -2.400  -1.200   1.000  1.00 20.00           N",
    "ATOM      2  CA  CYS A   1      -2.400   0.100   0.350  1.00 20.00           C",
    "ATOM      3  C   CYS A   1      -3.700   0.800   0.700  1.00 20.00           C",
    "ATOM      4  O   CYS A   1      -4.500   0.300   1.500  1.00 20.00           O",
    "ATOM      5  CB  CYS A   1      -1.200   1.000   0.900  1.00 20.00           C",
    "ATOM      6  SG  CYS A   1       0.350   0.400   0.200  1.00 20.00           S",
]
SULPHUR = np.array([0.350, 0.400, 0.200])
TOWARDS = np.array([0.47, -0.85, 0.24]) / np.linalg.norm([0.47, -0.85, 0.24])
REACHED = SULPHUR + 1.81 * TOWARDS
"""Where a carbon is bound to the sulphur: at 1.81 Å, and at an angle of a bond."""


def _with_cysteine(path: Path, ligand: list[str], extra: Sequence[str] = ()) -> Model:
    return read_model(written(path, [*CYSTEINE, *extra, *ligand]))


def _axes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the direction from the sulphur to the ligand and two across it."""
    across = np.cross(TOWARDS, [0.0, 0.0, 1.0])
    across /= np.linalg.norm(across)
    return TOWARDS, across, np.cross(TOWARDS, across)


def _beyond(count: int, length: float = 1.53) -> np.ndarray:
    """Return the carbon at the sulphur, and so many atoms bound to it on the far side, as at a tetrahedral atom."""
    along, across, other = _axes()
    turns = 2 * np.pi * np.arange(count) / 3
    arms = [along / 3 + np.sqrt(8) / 3 * (np.cos(t) * across + np.sin(t) * other) for t in turns]
    return np.array([REACHED, *(REACHED + length * arm for arm in arms)])


def test_a_covalent_inhibitor_is_bound_and_a_full_carbon_is_not(tmp_path: Path) -> None:
    bound = _with_cysteine(tmp_path / "bound.pdb", _ligand(20, 300, _beyond(1), elements="CC"))
    assert frozenset(("1.SG", "300.C1")) in bonds_between_residues(bound.topology)
    assert bound.short_contacts == ()
    # Hydrogens of the file take valences.
    full = [
        *_ligand(20, 300, _beyond(1), elements="CC"),
        *(
            hetatm(30 + k, f" H{k + 1}", "LIG", 300, place, "H")
            for k, place in enumerate([*_beyond(3, 1.09)[2:], _beyond(0)[0] + [0.7, 0.7, 0.5]])
        ),
    ]
    saturated = _with_cysteine(tmp_path / "full.pdb", full)
    assert bonds_between_residues(saturated.topology) == set()
    assert ("A CYS 1 SG", "A LIG 300 C1") in _described(saturated)
    # A thiol that has its hydrogen is bound to nothing else.
    thiol = [hetatm(7, " HG", "CYS", 1, np.array([0.9, 0.9, 1.35]), "H").replace("HETATM", "ATOM  ")]
    protonated = _with_cysteine(tmp_path / "thiol.pdb", _ligand(20, 300, _beyond(1), elements="CC"), thiol)
    assert bonds_between_residues(protonated.topology) == set()
    assert _described(protonated) == [("A CYS 1 SG", "A LIG 300 C1")]


def test_additives_and_flat_carbons_are_not_bound(tmp_path: Path) -> None:
    glycerol = _with_cysteine(tmp_path / "gol.pdb", _ligand(20, 300, _beyond(1), "GOL", "CC"))
    assert bonds_between_residues(glycerol.topology) == set()
    assert _described(glycerol) == [("A CYS 1 SG", "A GOL 300 C1")]
    # Three neighbours in a plane, and the sulphur above it: an aromatic carbon in contact.
    _, across, other = _axes()
    turns = 2 * np.pi * np.arange(3) / 3
    flat = [REACHED, *(REACHED + 1.4 * (np.cos(t) * across + np.sin(t) * other) for t in turns)]
    aromatic = _with_cysteine(tmp_path / "flat.pdb", _ligand(20, 300, np.array(flat), elements="CCCC"))
    assert bonds_between_residues(aromatic.topology) == set()
    assert ("A CYS 1 SG", "A LIG 300 C1") in _described(aromatic)


@pytest.mark.parametrize(
    ("centre", "around", "length", "bound"),
    [
        ("S", "OOC", 1.62, True),  # a serine that PMSF blocks
        ("P", "OOC", 1.60, True),  # a phosphonate
        ("S", "CCC", 1.62, False),
        ("C", "CCC", 1.43, True),  # an ether of a tetrahedral carbon
    ],
)
def test_serine_is_bound_to_what_lacks_a_neighbour(
    tmp_path: Path, centre: str, around: str, length: float, bound: bool
) -> None:
    serine = [
        line.replace("CYS", "SER").replace(" SG ", " OG ").replace("           S", "           O")
        for line in CYSTEINE
    ]
    along, across, other = _axes()
    start = SULPHUR + length * along
    turns = 2 * np.pi * np.arange(3) / 3
    arms = [along / 3 + np.sqrt(8) / 3 * (np.cos(t) * across + np.sin(t) * other) for t in turns]
    places = [start, *(start + (1.45 if element == "O" else 1.6) * arm for element, arm in zip(around, arms))]
    ligand = [
        hetatm(20 + k, f" {element}{k + 1}", "LIG", 300, place, element)
        for k, (element, place) in enumerate(zip(centre + around, places))
    ]
    model = read_model(written(tmp_path / "serine.pdb", [*serine, *ligand]))
    expected = {frozenset(("1.OG", f"300.{centre}1"))} if bound else set()
    assert bonds_between_residues(model.topology) == expected
    assert len(model.short_contacts) == (0 if bound else 1)


def test_a_contact_at_an_impossible_angle_is_no_bond(tmp_path: Path) -> None:
    # Its neighbour lies beside the sulphur: a clash of two molecules, not the end of one.
    along, across, _ = _axes()
    places = np.array([REACHED, REACHED + 1.53 * across - 0.63 * along])
    model = _with_cysteine(tmp_path / "beside.pdb", _ligand(20, 300, places, elements="CC"))
    assert bonds_between_residues(model.topology) == set()
    assert ("A CYS 1 SG", "A LIG 300 C1") in _described(model)


def test_a_protein_without_ligands_has_no_such_contacts(tmp_path: Path) -> None:
    assert read_model(write_fragment(tmp_path / "fragment.pdb", residues=24)).short_contacts == ()


@pytest.mark.parametrize(
    ("out", "up", "carbon"), [(0.94, 0.83, -1.5), (1.2, 0.77, -2.09), (-0.55, 1.3, -2.39)]
)
def test_a_bad_carboxylate_is_one(tmp_path, out, up, carbon):
    """Its oxygens 1.5 to 1.7 Å apart, or its carbon up to 2.4 Å from the next one, as in haems of 4HHB."""
    places = {"C1": (carbon, 0.0), "C2": (0.0, 0.0), "O1": (out, up), "O2": (out, -up)}
    lines = [
        f"HETATM{n:5d}  {name:3s} LIG A   1    {x:8.3f}{y:8.3f}{0.0:8.3f}  1.00 20.00           {name[0]}"
        for n, (name, (x, y)) in enumerate(places.items(), start=1)
    ]
    path = tmp_path / "ligand.pdb"
    path.write_text("\n".join([*lines, "END", ""]))
    bonds = {frozenset((a.name, b.name)) for a, b in read_model(path).topology.bonds()}
    assert bonds == {frozenset(pair) for pair in (("C1", "C2"), ("C2", "O1"), ("C2", "O2"))}
