"""Conformers that are not fitted are written again, moved with their residues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
from scipy.spatial.transform import Rotation

from openmm_density.fitting.placement import Placement
from openmm_density.models import prepare, read_model
from openmm_density.models.alternates import motions_with_residues, moved_with_residues
from openmm_density.models.structure_files import (
    write_model_cif,
    write_pdb,
)

from ..contexts import context_of, forces_of
from ..fragments import write_fragment, write_with_alternates
from ..small_models import hetatm, turned_about, written

OPSIN = "xraymap_3pqr_R32/3pqr.pdb"

ZOO = Path(__file__).parents[1] / "data" / "zoo"


def _atom_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith(("ATOM", "HETATM"))]


def _turned(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return Rotation.random(random_state=seed).as_matrix(), np.array([3.0, -2.0, 5.0])


def test_both_conformers_are_written_in_the_order_of_the_file(small_data: Path, tmp_path: Path) -> None:
    model = read_model(small_data / OPSIN)
    assert len(model.alternates) == 23 and len(model.alternates.conformers()) == 2
    assert any("2 alternate conformers" in note and "(23 atoms)" in note for note in model.notes)
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    before, after = _atom_lines(small_data / OPSIN), _atom_lines(tmp_path / "out.pdb")
    # All but the serial number, and elements where the file leaves them open.
    assert [line[:6] + line[11:66] for line in after] == [line[:6] + line[11:66] for line in before]
    # What was written is read as it was.
    again = read_model(tmp_path / "out.pdb")
    assert [record.altloc for record in again.records] == [record.altloc for record in model.records]
    np.testing.assert_array_equal(again.alternates.positions, model.alternates.positions)


def test_conformers_move_with_a_rigid_model_exactly(small_data: Path) -> None:
    model = read_model(small_data / OPSIN)
    matrix, shift = _turned(0)
    moved = moved_with_residues(model, model.positions @ matrix.T + shift)
    np.testing.assert_allclose(moved, model.alternates.positions @ matrix.T + shift, atol=1e-9)
    placement = Placement(matrix.tolist(), shift.tolist(), 1.0, 0.0, 0.0, 0.0, 0.0)
    np.testing.assert_allclose(placement.apply(model).alternates.positions, moved, atol=1e-9)


def test_a_side_chain_keeps_to_where_it_branches_off(tmp_path: Path) -> None:
    model = read_model(write_with_alternates(tmp_path / "lysine.pdb"))
    assert [record.describe().split()[-1] for record in model.alternates.records] == ["CE", "NZ"]
    residue = list(model.topology.residues())[int(model.alternates.residues[0])]
    atoms = {atom.name: atom.index for atom in residue.atoms()}
    # The side chain turns about CA-CB, and the fitted conformer by itself about CD-CG too.
    positions = model.positions
    for first, second, names, angle in (
        ("CA", "CB", ("CG", "CD", "CE", "NZ"), 100.0),
        ("CG", "CD", ("CE", "NZ"), 150.0),
    ):
        behind = [atoms[name] for name in names]
        positions = turned_about(positions, atoms[first], atoms[second], behind, np.radians(angle))
    moved = moved_with_residues(model, positions)
    for name in ("CG", "CD"):
        before, after = (
            np.linalg.norm(alternate - places[atoms[name]], axis=1)
            for alternate, places in ((model.alternates.positions, model.positions), (moved, positions))
        )
        np.testing.assert_allclose(after, before, atol=1e-6)
    # It did not follow the fitted conformer's own turn.
    assert np.linalg.norm(moved[0] - positions[atoms["CE"]]) > 1.0


def test_conformers_of_bonded_residues_stay_bonded() -> None:
    """As in 1PFE, where each nucleotide's conformer went its own way: O3'-P 1.60 to 2.2 Å."""
    model = read_model(ZOO / "1pfe_backbone.cif")
    records = model.alternates.records
    ends = [
        next(k for k, record in enumerate(records) if (record.residue_number, record.name) == each)
        for each in ((1, "O3'"), (2, "P"))
    ]
    numbers = np.array([record.residue_number for record in model.records])
    positions = model.positions.copy()
    pivot = positions[numbers == 2].mean(axis=0)
    turn = Rotation.from_rotvec(np.radians(12.0) * np.array([0.0, 0.0, 1.0]))
    positions[numbers == 2] = turn.apply(positions[numbers == 2] - pivot) + pivot
    rigid = np.empty_like(model.alternates.positions)
    for members, rotation, shift in motions_with_residues(model, positions):
        rigid[members] = model.alternates.positions[members] @ rotation.T + shift
    length, of_rigid, now = (
        np.linalg.norm(np.subtract(*places[ends]))
        for places in (model.alternates.positions, rigid, moved_with_residues(model, positions))
    )
    assert abs(of_rigid - length) > 0.2
    assert abs(now - length) < 0.06


def test_a_conformer_keeps_the_angles_to_the_chain_that_it_shares() -> None:
    """Serine, in turn with proline, whose nitrogen and neighbour are shared; they are moved, and the fitted proline turns."""
    model = read_model(ZOO / "1ejg_microheterogeneity.pdb")
    places = {(record.residue_number, record.name): k for k, record in enumerate(model.records)}
    inner = [k for (number, name), k in places.items() if number == 22 and name not in ("N", "C", "O")]
    positions = turned_about(model.positions, places[22, "N"], places[22, "C"], inner, np.radians(25.0))
    moved = moved_with_residues(model, positions)
    serine = {
        (record.altloc, record.name): k
        for k, record in enumerate(model.alternates.records)
        if record.residue_name == "SER"
    }
    for label in "BC":
        for shared, own in (
            ((22, "N"), "CA"),
            ((22, "N"), "CB"),
            ((23, "N"), "C"),
            ((23, "CA"), "C"),
            ((21, "C"), "CA"),
        ):
            before, after = (
                np.linalg.norm(fitted[places[shared]] - others[serine[label, own]])
                for fitted, others in ((model.positions, model.alternates.positions), (positions, moved))
            )
            assert abs(after - before) < 0.08, (label, shared, own, before, after)


def test_a_conformer_gives_way_to_a_water_that_was_not_there(tmp_path: Path) -> None:
    lines = _atom_lines(write_with_alternates(tmp_path / "lysine.pdb"))
    lines.append(hetatm(990, " O", "HOH", 300, np.array([90.0, 0, 0]), "O"))
    model = read_model(written(tmp_path / "water.pdb", lines))
    positions = model.positions.copy()
    amine = next(k for k, record in enumerate(model.alternates.records) if record.name == "NZ")
    outwards = model.alternates.positions[amine] - model.alternates.positions[amine - 1]
    positions[-1] = model.alternates.positions[amine] + 1.3 * outwards / np.linalg.norm(outwards)
    moved = moved_with_residues(model, positions)
    assert np.linalg.norm(moved[amine] - positions[-1]) > 1.9
    bond = np.linalg.norm(moved[amine] - moved[amine - 1])
    assert abs(bond - np.linalg.norm(outwards)) < 0.15


def test_a_water_of_two_conformers_beside_nothing_that_is_bonded_is_carried(tmp_path: Path) -> None:
    lines = [hetatm(1, "O", "HOH", 1, np.zeros(3), "O"), hetatm(2, "O", "HOH", 1, np.ones(3), "O")]
    lines = [f"{line[:16]}{label}{line[17:]}" for line, label in zip(lines, "AB")]
    model = read_model(written(tmp_path / "waters.pdb", lines))
    np.testing.assert_allclose(
        moved_with_residues(model, model.positions + 2.0), [[3.0, 3.0, 3.0]], atol=1e-6
    )


def test_waters_ligands_and_mutants_are_carried_too(tmp_path: Path) -> None:
    def at(line: str, altloc: str, occupancy: float) -> str:
        return f"{line[:16]}{altloc}{line[17:54]}{occupancy:6.2f}{line[60:]}"

    lines = _atom_lines(write_fragment(tmp_path / "fragment.pdb", residues=6))
    serine = [
        line for line in lines if int(line[22:26]) == 3 and line[12:16].strip() in ("N", "CA", "C", "O", "CB")
    ]
    lines = [
        other
        for line in lines
        if int(line[22:26]) != 3 or line in serine
        for other in ([at(line, "A", 0.7).replace(line[17:20], "ALA")] if line in serine else [line])
    ]
    last = max(k for k, line in enumerate(lines) if int(line[22:26]) == 3) + 1
    lines[last:last] = [at(line, "B", 0.3).replace(line[17:20], "GLY") for line in serine[:4]]
    ligand = np.array([[30.0, 0, 0], [31.5, 0, 0], [32.0, 1.4, 0]])
    for altloc, occupancy, shift in (("A", 0.55, 0.0), ("B", 0.45, 0.6)):
        lines += [
            at(hetatm(900 + k, name, "EDO", 200, place + shift, element), altloc, occupancy)
            for k, (name, element, place) in enumerate(zip((" C1", " C2", " O2"), "CCO", ligand))
        ]
    lines += [
        at(hetatm(910, " O", "HOH", 300, np.array([40.0, 0, shift]), "O"), altloc, 0.5)
        for altloc, shift in (("A", 0.0), ("B", 1.2))
    ]
    model = read_model(written(tmp_path / "all.pdb", lines))
    records = model.alternates.records
    assert [(r.residue_name, r.altloc) for r in records] == [("GLY", "B")] * 4 + [("EDO", "B")] * 3 + [
        ("HOH", "B")
    ]
    positions = model.positions.copy()
    water = [k for k, record in enumerate(model.records) if record.residue_name == "HOH"]
    organic = [k for k, record in enumerate(model.records) if record.residue_name == "EDO"]
    positions[water] += 2.0
    matrix, shift = _turned(1)
    positions[organic] = positions[organic] @ matrix.T + shift
    moved = moved_with_residues(model, positions)
    np.testing.assert_allclose(moved[-1], model.alternates.positions[-1] + 2.0, atol=1e-9)
    np.testing.assert_allclose(moved[4:7], model.alternates.positions[4:7] @ matrix.T + shift, atol=1e-9)
    np.testing.assert_allclose(moved[:4], model.alternates.positions[:4], atol=1e-6)
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    kept = [line[11:60] for line in _atom_lines(tmp_path / "out.pdb")]
    assert sorted(kept) == sorted(line[11:60] for line in lines)
    write_model_cif(tmp_path / "out.cif", model, model.positions)
    assert len(read_model(tmp_path / "out.cif").alternates) == len(model.alternates)


def test_conformers_that_are_there_in_turn_do_not_act_on_one_another(tmp_path: Path) -> None:
    lines = _atom_lines(write_fragment(tmp_path / "fragment.pdb", residues=6))
    places = {300: ("A", 0.0), 301: ("B", 1.0), 302: ("B", 4.0), 303: (" ", 7.0)}
    lines += [
        hetatm(900 + number, " O", "HOH", number, np.array([40.0 + shift, 0, 0]), "O").replace(
            " O   HOH", f" O  {altloc}HOH"
        )
        for number, (altloc, shift) in places.items()
    ]
    model = read_model(written(tmp_path / "waters.pdb", lines))
    assert len(model.alternates) == 0 and [record.altloc for record in model.records[-4:]] == [
        "A",
        "B",
        "B",
        "",
    ]
    prepared = prepare(model)
    system = prepared.system()
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    excluded = {
        frozenset(parameters[:2])
        for parameters in map(nonbonded.getExceptionParameters, range(nonbonded.getNumExceptions()))
        if parameters[2]._value == parameters[4]._value == 0
    }
    waters = {
        residue.id: [atom.index for atom in residue.atoms()]
        for residue in prepared.topology.residues()
        if residue.name == "HOH"
    }
    for first, second, apart in (
        ("300", "301", True),
        ("300", "302", True),
        ("301", "302", False),
        ("302", "303", False),
    ):
        pairs = {frozenset((i, j)) for i in waters[first] for j in waters[second]}
        assert (pairs <= excluded) == apart and (apart or not pairs & excluded)
    # Half waters of which one is there at a time are no clash to be relieved.
    context = context_of(system, prepared.positions)
    assert np.abs(forces_of(context)[waters["300"]]).max() < 1e4
