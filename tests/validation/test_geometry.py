from __future__ import annotations

from pathlib import Path

import mdtraj
import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.models import prepare
from openmm_density.models.chemistry.stereocentres import chiral_centres
from openmm_density.models.chemistry.torsions import peptide_torsions
from openmm_density.models.structures import Model, read_model
from openmm_density.validation import model_geometry
from openmm_density.validation.all_atom_contacts import contacts_of_prepared
from openmm_density.validation.geometry import compare_geometry, geometry_report
from openmm_density.validation.ideal_values import geometry_scores
from openmm_density.validation.model_geometry import geometry_of_model
from tests.small_models import ADK_OPEN, fragment_lines, written

from ..small_models import turned_about


@pytest.mark.parametrize(
    ("name", "bond_limit", "angle_limit"),
    [
        ("emd6374_frag/6374_native.pdb", 0.02, 2.2),
        ("emd3488_5ni1/5ni1_updated.cif", 0.02, 2.5),
        ("xraymap_3pqr_R32/3pqr.pdb", 0.02, 2.3),
        (ADK_OPEN, 0.02, 3.0),
    ],
)
def test_refined_models_are_near_ideal(
    small_data: Path, name: str, bond_limit: float, angle_limit: float
) -> None:
    model = read_model(small_data / name)
    report = geometry_report(model.topology, model.positions)
    assert 0.003 < report.bond_rmsd < bond_limit
    assert 0.5 < report.angle_rmsd < angle_limit
    assert report.clashscore is None
    assert report.bond_rmsz < 1.5 and report.angle_rmsz < 1.6
    assert report.wrong_alpha_count == report.wrong_centre_count == report.twisted_count == 0


def test_every_bond_and_angle_of_a_protein_is_assessed(emd6374: Model) -> None:
    report = geometry_report(emd6374.topology, emd6374.positions)
    assert report.bond_count == emd6374.topology.getNumBonds()
    assert report.atom_count == len(emd6374.positions)
    neighbours = np.zeros(len(emd6374.positions), dtype=int)
    for a, b in emd6374.topology.bonds():
        neighbours[[a.index, b.index]] += 1
    assert report.angle_count == int((neighbours * (neighbours - 1) // 2).sum())


def test_a_stretched_bond_is_measured_and_named(emd6374: Model) -> None:
    atoms = list(emd6374.topology.atoms())
    side = next(a for a in atoms if a.residue.name == "SER" and a.name == "OG")
    parent = next(a for a in side.residue.atoms() if a.name == "CB")
    positions = emd6374.positions.copy()
    axis = positions[side.index] - positions[parent.index]
    length = np.linalg.norm(axis)
    positions[side.index] += axis / length * (2.41 - length)
    report = geometry_report(emd6374.topology, positions)
    # Amber's CT-OH bond is 1.41 Å.
    assert report.worst_bond == pytest.approx(1.0, abs=1e-9)
    assert report.worst_bond_atoms == f"D SER {side.residue.id} CB - D SER {side.residue.id} OG"
    before = geometry_report(emd6374.topology, emd6374.positions)
    assert report.bond_rmsd**2 * report.bond_count == pytest.approx(
        before.bond_rmsd**2 * before.bond_count + 1.0, abs=0.01
    )


def test_mirrored_model_has_only_wrong_centres(emd6374: Model) -> None:
    report = geometry_report(emd6374.topology, emd6374.positions * [1.0, 1.0, -1.0])
    names = [residue.name for residue in emd6374.topology.residues()]
    assert report.wrong_alpha_count == sum(name != "GLY" for name in names)
    assert report.wrong_centre_count == sum(name in ("THR", "ILE") for name in names)
    assert report.wrong_centres[0] == "D MET 1 CA"
    original = geometry_report(emd6374.topology, emd6374.positions)
    assert report.bond_rmsd == pytest.approx(original.bond_rmsd, rel=1e-12)


def test_clashes_are_those_of_all_atoms_with_the_hydrogens_that_are_built(emd6374: Model) -> None:
    prepared = prepare(emd6374)
    rng = np.random.default_rng(1)
    places = prepared.positions + rng.normal(scale=0.3, size=prepared.positions.shape)
    contacts = contacts_of_prepared(prepared.topology, prepared.input_index, places)
    report = geometry_report(prepared.topology, places)
    assert report.clash_count >= len(contacts.clashes) > 20  # with those of atoms that were built
    model = geometry_of_model(emd6374)
    own = contacts_of_prepared(prepared.topology, prepared.input_index, prepared.positions)
    assert model.clashscore == own.clashscore and model.clash_count == len(own.clashes)
    assert model.bond_rmsz == geometry_scores(emd6374.topology, emd6374.positions).bond_rmsz


def test_a_model_without_hydrogens_that_can_be_built_has_no_clashscore(
    emd6374: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(model: Model) -> None:
        raise InputError("of an unknown kind")

    monkeypatch.setattr(model_geometry, "prepare", failing)
    report = geometry_of_model(emd6374)
    assert report.clashscore is None and report.clash_count is None
    assert "hydrogens could not be built (of an unknown kind" in report.notes[-1]


def test_ligands_are_not_measured_against_tables_they_are_not_in(small_data: Path) -> None:
    model = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    report = geometry_report(model.topology, model.positions)
    haem = sum("HEM" in (a.residue.name, b.residue.name) for a, b in model.topology.bonds())
    assert report.bond_count == model.topology.getNumBonds() - haem


def test_changes_between_models_are_named(emd6374: Model) -> None:
    before = geometry_report(emd6374.topology, emd6374.positions)
    same = compare_geometry(before, before)
    assert (same.peptide_flips, same.inverted_centres, same.largest_omega_change) == ([], [], 0.0)

    positions = emd6374.positions.copy()
    first, carbon, nitrogen, _ = peptide_torsions(emd6374.topology)[50]
    axis = positions[nitrogen] - positions[carbon]
    axis /= np.linalg.norm(axis)
    # Half a turn about the C-N bond of everything before it.
    residue = list(emd6374.topology.atoms())[first].residue
    moved = [
        a.index for a in emd6374.topology.atoms() if a.residue.index <= residue.index and a.index != carbon
    ]
    arm = positions[moved] - positions[carbon]
    positions[moved] = positions[carbon] + 2 * np.outer(arm @ axis, axis) - arm
    # Mirror one Cβ and hence its Cα in the plane of N, Cα and C.
    centre, n, c, beta = chiral_centres(emd6374.topology)[120]
    normal = np.cross(positions[n] - positions[centre], positions[c] - positions[centre])
    normal /= np.linalg.norm(normal)
    positions[beta] -= 2 * normal * ((positions[beta] - positions[centre]) @ normal)
    change = compare_geometry(before, geometry_report(emd6374.topology, positions))
    assert change.peptide_flips == [before.peptides[50]]
    assert before.centres[120] in change.inverted_centres
    assert change.largest_omega_change == pytest.approx(180, abs=0.1)
    assert change.as_dict()["peptide_flips"] == change.peptide_flips


@pytest.mark.parametrize(
    ("name", "favoured", "outliers"),
    [
        ("xray_1g8a_P21/1G8A_refined.pdb", 0.97, 0),
        ("emd6374_frag/6374_native.pdb", 0.97, 0),
        ("emd3488_5ni1/5ni1_updated.cif", 0.94, 0),
    ],
)
def test_refined_models_lie_in_the_favoured_regions(
    small_data: Path, name: str, favoured: float, outliers: int
) -> None:
    model = read_model(small_data / name)
    report = geometry_report(model.topology, model.positions)
    assert report.ramachandran_favoured_count > favoured * report.ramachandran_count
    assert report.ramachandran_outlier_count == outliers
    assert report.rotamer_outlier_count < 0.06 * report.rotamer_count


def test_a_turned_side_chain_is_a_rotamer_outlier(emd6374: Model) -> None:
    before = geometry_report(emd6374.topology, emd6374.positions)
    assert before.rotamer_count == sum(
        residue.name not in ("ALA", "GLY", "PRO") for residue in emd6374.topology.residues()
    )
    residue = next(
        r
        for r in emd6374.topology.residues()
        if r.name == "LEU" and f"D LEU {r.id}" not in before.rotamer_outliers
    )
    names = {atom.name: atom.index for atom in residue.atoms()}
    trajectory = mdtraj.Trajectory(emd6374.positions / 10, mdtraj.Topology.from_openmm(emd6374.topology))
    chi = [names[name] for name in ("N", "CA", "CB", "CG")]
    found = np.degrees(mdtraj.compute_dihedrals(trajectory, [chi])[0, 0])
    moved = [names[name] for name in ("CG", "CD1", "CD2")]
    # Staggered is at −60°, 60° and 180°, eclipsed between them.
    for target, is_outlier in (
        (-105, True),
        (-99, False),
        (-60, False),
        (2, True),
        (121, True),
        (140.5, False),
    ):
        bond, angle = (names["CA"], names["CB"]), np.radians(target - found)
        turned = turned_about(emd6374.positions, *bond, moved, angle)
        outliers = geometry_report(emd6374.topology, turned).rotamer_outliers
        assert (f"D LEU {residue.id}" in outliers) is is_outlier
        assert len(outliers) == before.rotamer_outlier_count + is_outlier


def test_side_chains_that_are_cut_short_are_judged_as_far_as_they_go(
    small_data: Path, tmp_path: Path
) -> None:
    lines = [
        line for line in fragment_lines(small_data) if line[12:16].strip() not in ("CD1", "CD2", "CE", "NZ")
    ]
    model = read_model(written(tmp_path / "cut.pdb", lines))
    report = geometry_report(model.topology, model.positions)
    with_gamma = [
        residue
        for residue in model.topology.residues()
        if residue.name != "PRO"
        and {"CG", "CG1", "OG", "OG1", "SG"} & {atom.name for atom in residue.atoms()}
    ]
    assert report.rotamer_count == len(with_gamma) > 0


def test_model_without_anything_to_measure(small_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "ion.pdb"
    path.write_text("HETATM    1 MG    MG A   1       1.000   2.000   3.000  1.00 20.00          MG\n")
    model = read_model(path)
    report = geometry_report(model.topology, model.positions)
    assert (report.bond_count, report.angle_count, report.bond_z_count, report.cis_count) == (0, 0, 0, 0)
    assert report.as_dict()["bond_rmsd"] is None


def test_errors(emd6374: Model, emd5925: Model) -> None:
    with pytest.raises(InputError, match="one for each"):
        geometry_report(emd6374.topology, emd6374.positions[1:])
    with pytest.raises(InputError, match="NaN or infinite coordinates"):
        geometry_report(emd6374.topology, emd6374.positions * np.inf)
    reports = [geometry_report(model.topology, model.positions) for model in (emd6374, emd5925)]
    with pytest.raises(InputError, match="different models"):
        compare_geometry(*reports)


def test_what_there_is_none_of_is_not_counted_as_right(emd6374: Model) -> None:
    topology = app.Topology()
    residue = topology.addResidue("DA", topology.addChain("A"), "1")
    for name, element in (("P", app.element.phosphorus), ("OP1", app.element.oxygen)):
        topology.addAtom(name, element, residue)
    bare = geometry_report(topology, [[0.0, 0.0, 0.0], [1.48, 0.0, 0.0]]).as_dict()
    protein = geometry_report(emd6374.topology, emd6374.positions).as_dict()
    names = ("ramachandran_outlier_count", "rotamer_outlier_count", "twisted_count", "wrong_alpha_count")
    assert [bare[name] for name in names] == [None] * 4
    assert all(isinstance(protein[name], int) for name in names)
