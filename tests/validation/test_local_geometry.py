"""What became worse in a model, whatever the cause: real models with one thing damaged at a time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.planes import find_planes
from openmm_density.validation.flatness import with_conjugated_systems
from openmm_density.validation.local_geometry import LocalGeometry, Worse


@pytest.fixture(scope="module")
def kinesin(small_data: Path) -> Model:
    return read_model(small_data / "emd6187_kinesin" / "1bg2_K_fitted.pdb")


@pytest.fixture(scope="module")
def junction(small_data: Path) -> Model:
    return read_model(small_data / "zoo" / "104d_junction.pdb")


def geometry(model: Model, **options: object) -> LocalGeometry:
    planes = with_conjugated_systems(model.topology, find_planes(model.topology, model.positions))
    return LocalGeometry(model.topology, model.positions, planes=planes, **options)


def places(model: Model) -> Callable[[str], int]:
    index = {record.describe(): k for k, record in enumerate(model.records)}
    return index.__getitem__


def along(positions: np.ndarray, fixed: int, moved: int, length: float) -> np.ndarray:
    """Return positions with an atom at another distance from one, in the same direction."""
    result = positions.copy()
    arm = positions[moved] - positions[fixed]
    result[moved] = positions[fixed] + arm * length / np.linalg.norm(arm)
    return result


def of_kind(found: list[Worse], kind: str) -> list[Worse]:
    return [each for each in found if each.kind == kind]


def test_a_model_that_did_not_change_and_one_that_is_as_good_have_nothing_worse(
    haemoglobin, kinesin, junction
):
    for model in (haemoglobin, kinesin, junction):
        check = geometry(model)
        assert check.worse(model.positions) == []
        turned = model.positions @ np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]) + [3.0, 4.0, 5.0]
        noise = np.random.default_rng(1).normal(scale=0.03, size=turned.shape)
        assert check.worse(turned + noise) == []


def test_a_bond_that_became_long_is_named_with_what_is_usual(junction):
    place = places(junction)
    ends = place("A G 4 O3'"), place("A DT 5 P")
    (found,) = of_kind(geometry(junction).worse(along(junction.positions, *ends, 2.22)), "bond")
    assert found.atoms == ("A G 4 O3'", "A DT 5 P")
    # Amber's OS-P, which is the same in RNA and DNA.
    assert found.usual == (pytest.approx(1.61), pytest.approx(1.61))
    assert found.before == pytest.approx(1.6, abs=0.03) and found.after == pytest.approx(2.22)


def test_two_oxygens_of_a_phosphate_that_fell_onto_one_another_are_a_bent_angle(junction):
    place = places(junction)
    oxygen, phosphorus, end = (place(name) for name in ("A DT 5 OP1", "A DT 5 P", "A G 4 O3'"))
    positions = junction.positions.copy()
    arm, towards = (positions[k] - positions[phosphorus] for k in (oxygen, end))
    length = np.linalg.norm(arm)
    moved = arm + 0.9 * towards
    positions[oxygen] = positions[phosphorus] + moved * length / np.linalg.norm(moved)
    found = geometry(junction).worse(positions)
    assert ("A G 4 O3'", "A DT 5 P", "A DT 5 OP1") in [each.atoms for each in of_kind(found, "angle")]


def test_a_bad_bond_of_a_ligand_is_named_where_it_stays_and_where_it_gets_worse(haemoglobin):
    place = places(haemoglobin)
    ends = place("A HEM 201 CGA"), place("A HEM 201 O1A")
    bad = along(haemoglobin.positions, *ends, 0.63)
    check = LocalGeometry(haemoglobin.topology, bad)
    for length in (0.37, 0.63):
        (found,) = of_kind(check.worse(along(bad, *ends, length)), "bond")
        assert found.atoms == ("A HEM 201 CGA", "A HEM 201 O1A")
        assert found.before == pytest.approx(0.63) and found.after == pytest.approx(length)
    long = LocalGeometry(haemoglobin.topology, along(haemoglobin.positions, *ends, 1.68))
    for each in (check, long):
        assert of_kind(each.worse(haemoglobin.positions), "bond") == []


@pytest.mark.parametrize(
    ("names", "degrees"), [(("CB", "CG", "ND1"), 85.0), (("ND1", "CE1", "NE2"), 133.0)], ids=["out", "within"]
)
def test_an_angle_of_histidine_that_was_bad_and_is_as_usual_is_no_finding(haemoglobin, names, degrees):
    place = places(haemoglobin)
    named = tuple(f"A HIS 87 {name}" for name in names)
    end, vertex, turned = map(place, named)
    bad = haemoglobin.positions.copy()
    arm, out = bad[turned] - bad[vertex], bad[end] - bad[vertex]
    axis = np.cross(arm, out) / np.linalg.norm(np.cross(arm, out))
    angle = np.arccos(arm @ out / np.linalg.norm(arm) / np.linalg.norm(out)) - np.radians(degrees)
    bad[turned] = bad[vertex] + Rotation.from_rotvec(angle * axis).apply(arm)
    told = [
        [each.atoms for each in of_kind(LocalGeometry(haemoglobin.topology, before).worse(after), "angle")]
        for before, after in ((bad, haemoglobin.positions), (haemoglobin.positions, bad))
    ]
    assert named not in told[0] and named in told[1]


def test_what_was_built_is_compared_with_what_is_usual(haemoglobin):
    place, built = places(haemoglobin), np.zeros(len(haemoglobin.positions), dtype=bool)
    carbon, oxygen, alpha = (place(f"A LEU 2 {name}") for name in ("C", "O", "CA"))
    built[oxygen] = True
    check = LocalGeometry(haemoglobin.topology, haemoglobin.positions, built=built)
    assert check.worse(haemoglobin.positions) == []
    (bond,) = of_kind(check.worse(along(haemoglobin.positions, carbon, oxygen, 3.2)), "bond")
    assert (bond.before, bond.after) == (None, pytest.approx(3.2))
    # CA-C-O of 164°.
    positions = haemoglobin.positions.copy()
    out = positions[carbon] - positions[alpha]
    side = positions[oxygen] - positions[carbon]
    side -= side @ out / (out @ out) * out
    angle = np.radians(164)
    positions[oxygen] = positions[carbon] + 1.23 * (
        -np.cos(angle) * out / np.linalg.norm(out) + np.sin(angle) * side / np.linalg.norm(side)
    )
    names = ("A LEU 2 CA", "A LEU 2 C", "A LEU 2 O")
    (bent,) = (each for each in of_kind(check.worse(positions), "angle") if each.atoms == names)
    assert (bent.before, round(bent.after)) == (None, 164)


def test_a_residue_that_was_inverted_is_named(haemoglobin, kinesin):
    for model, residue, names in (
        (haemoglobin, "A LEU 2 ", ("CA",)),
        (kinesin, " ADP ", ("C1'", "C2'", "C3'", "C4'")),
    ):
        atoms = [k for k, record in enumerate(model.records) if residue in record.describe()]
        positions = model.positions.copy()
        positions[atoms] = positions[atoms] * [1, 1, -1] + [0, 0, 2 * positions[atoms, 2].mean()]
        found = of_kind(geometry(model).worse(positions), "centre")
        assert set(names) <= {each.atoms[0].split()[-1] for each in found}
        assert all(each.before * each.after < 0 for each in found)
    # A centre that was built with the wrong hand had none before.
    mirrored = haemoglobin.positions * [1, 1, -1]
    built = np.arange(len(mirrored)) == places(haemoglobin)("A LEU 2 CB")
    (wrong,) = of_kind(LocalGeometry(haemoglobin.topology, mirrored, built=built).worse(mirrored), "centre")
    assert wrong.atoms == ("A LEU 2 CA",) and wrong.before is None


def test_a_plane_and_a_haem_that_were_bent_are_named(haemoglobin):
    check, place = geometry(haemoglobin), places(haemoglobin)
    atoms = np.array([k for k, r in enumerate(haemoglobin.records) if r.describe().startswith("B HEM 201")])
    centred = haemoglobin.positions[atoms] - haemoglobin.positions[atoms].mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    positions = haemoglobin.positions.copy()
    positions[atoms] += np.outer((centred @ axes[0]) ** 2 / 16, axes[2])
    assert [each.atoms[0][:9] for each in of_kind(check.worse(positions), "plane")] == ["B HEM 201"]
    positions = haemoglobin.positions.copy()
    positions[place("A PHE 33 CZ")] += (
        1.2
        * np.cross(
            *(
                positions[place(f"A PHE 33 {name}")] - positions[place("A PHE 33 CG")]
                for name in ("CD1", "CD2")
            )
        )
        / 2.0
    )
    assert of_kind(check.worse(positions), "plane")[0].atoms == ("A PHE 33 CZ",)


def test_an_ion_that_left_its_place_is_named(haemoglobin, kinesin):
    magnesium = next(k for k, record in enumerate(kinesin.records) if record.element == "Mg")
    positions = kinesin.positions.copy()
    positions[magnesium] += [2.0, 0, 0]
    found = of_kind(geometry(kinesin).worse(positions), "metal")
    strayed = [each for each in found if each.atoms == (kinesin.records[magnesium].describe(),)]
    assert [round(each.after, 1) for each in strayed] == [2.0]
    # It falls onto an oxygen that was behind water.
    oxygens = np.array(
        [k for k, r in enumerate(kinesin.records) if r.element == "O" and r.residue_name != "HOH"]
    )
    away = np.linalg.norm(kinesin.positions[oxygens] - kinesin.positions[magnesium], axis=1)
    oxygen = oxygens[np.argmin(np.where(away > 3.2, away, np.inf))]
    fallen = along(kinesin.positions, oxygen, magnesium, 2.0)
    pairs = [set(each.atoms) for each in of_kind(geometry(kinesin).worse(fallen), "metal")]
    assert {kinesin.records[k].describe() for k in (magnesium, oxygen)} in pairs
    # A bond of iron with histidine that was pulled apart, and one that was too long before.
    place = places(haemoglobin)
    ends = place("A HIS 87 NE2"), place("A HEM 201 FE")
    apart = along(haemoglobin.positions, *ends[::-1], 3.4)
    pair = tuple(haemoglobin.records[k].describe() for k in ends)
    for start in (haemoglobin.positions, apart):
        found = LocalGeometry(haemoglobin.topology, start).worse(apart)
        assert pair in [each.atoms for each in of_kind(found, "metal")]


def test_a_metal_that_comes_to_where_it_binds_as_usual_is_not_named(haemoglobin):
    """Iron with a histidine that no bond names, 2.16 Å by its target: from hardly too far away, and as near as no metal binds."""
    place = places(haemoglobin)
    ends = place("A HIS 87 NE2"), place("A HEM 201 FE")
    far, usual, short = (along(haemoglobin.positions, *ends[::-1], r) for r in (2.75, 2.2, 1.7))
    pair = {haemoglobin.records[k].describe() for k in ends}
    topology = deepcopy(haemoglobin.topology)
    topology._bonds = [each for each in topology.bonds() if {each[0].index, each[1].index} != set(ends)]
    check = LocalGeometry(topology, far)
    for positions, is_named in ((usual, False), (short, True)):
        found = [set(each.atoms) for each in of_kind(check.worse(positions), "metal")]
        assert (pair in found) == is_named


def test_atoms_that_were_as_near_as_a_bond_and_are_apart_are_named(small_data):
    cyclic = read_model(small_data / "zoo" / "5vav_cyclic.pdb")
    place = places(cyclic)
    ends = place("A GLY 1 N"), place("A ASP 14 C")
    opened = along(cyclic.positions, *ends[::-1], 2.97)
    # As if nothing had told of the bond.
    topology = app.Topology()
    chain, atoms = topology.addChain("A"), []
    for residue in cyclic.topology.residues():
        new = topology.addResidue(residue.name, chain, residue.id)
        atoms += [topology.addAtom(atom.name, atom.element, new) for atom in residue.atoms()]
    for a, b in cyclic.topology.bonds():
        if {a.index, b.index} != set(ends):
            topology.addBond(atoms[a.index], atoms[b.index])
    (found,) = of_kind(LocalGeometry(topology, cyclic.positions).worse(opened), "apart")
    assert found.atoms == ("A GLY 1 N", "A ASP 14 C") and found.before == pytest.approx(1.33, abs=0.02)
    told = [(found.usual[0], found.kind), *((0, each.kind) for each in geometry(cyclic).worse(opened))]
    assert (0, "bond") in told


def test_new_clashes_are_named_but_not_those_of_different_conformers(haemoglobin):
    place = places(haemoglobin)
    one, other = place("A LEU 2 CD1"), place("B LEU 3 CD1")
    positions = haemoglobin.positions.copy()
    positions[other] = positions[one] + [1.45, 0, 0]
    labels = [""] * len(positions)
    (found,) = (
        each
        for each in of_kind(geometry(haemoglobin, labels=labels).worse(positions), "contact")
        if each.atoms[0] == "A LEU 2 CD1" and each.atoms[1] == "B LEU 3 CD1"
    )
    assert found.before > 5 and found.after == pytest.approx(1.45)
    labels[one], labels[other] = "A", "B"
    named = [each.atoms for each in of_kind(geometry(haemoglobin, labels=labels).worse(positions), "contact")]
    assert ("A LEU 2 CD1.A", "B LEU 3 CD1.B") not in named


def test_bonds_within_a_conformer_are_those_that_it_had_and_none_joins_different_ones(haemoglobin):
    place = places(haemoglobin)
    one, other = place("A LEU 2 CD1"), place("B LEU 3 CD1")
    near = haemoglobin.positions.copy()
    near[other] = near[one] + [1.45, 0, 0]
    labels = ["A" if k in (one, other) else "" for k in range(len(near))]
    check = LocalGeometry(haemoglobin.topology, near, labels=labels)
    assert not [each for each in check.worse(near) if set(each.atoms) == {"A LEU 2 CD1.A", "B LEU 3 CD1.A"}]
    parted = near.copy()
    parted[other] += [2.0, 0, 0]
    assert [each.kind for each in check.worse(parted) if "B LEU 3 CD1.A" in each.atoms][-1] == "apart"
    labels[place("A LEU 2 CG")] = "B"
    mixed = geometry(haemoglobin, labels=labels).worse(along(near, place("A LEU 2 CG"), one, 4.0))
    assert not [each for each in of_kind(mixed, "bond") if "A LEU 2 CD1.A" in each.atoms]


def test_bonds_of_a_file_that_no_topology_has_are_compared(haemoglobin):
    place = places(haemoglobin)
    ends = place("A LEU 2 CD1"), place("A LEU 2 CD2")
    length = np.linalg.norm(np.subtract(*haemoglobin.positions[list(ends)]))
    check = LocalGeometry(haemoglobin.topology, haemoglobin.positions, bonds=[ends])
    (found,) = of_kind(check.worse(haemoglobin.positions), "bond")
    assert found.after == pytest.approx(length)
