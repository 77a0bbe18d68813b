from __future__ import annotations

from pathlib import Path

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.stereocentres import IDEAL_IMPROPER, chiral_centres, prochiral_centres
from openmm_density.models.chemistry.torsions import peptide_torsions, torsion_angles
from openmm_density.restraints import (
    ChiralityRestraint,
    HydrogenBondRestraint,
    PeptideRestraint,
    PredictedTorsionRestraint,
    SecondaryStructureRestraint,
    find_violations,
)

from ..small_models import ADK_OPEN
from .single_forces import context_with, energy_at, turned_peptide


def part_of(path: Path, first: int, last: int, output: Path) -> Model:
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.startswith("ATOM") and first <= int(line[22:26]) <= last]
    output.write_text("\n".join([*kept, "END", ""]))
    return read_model(output)


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(np.mod(a - b + np.pi, 2 * np.pi) - np.pi)


def test_no_peptide_torsion_across_a_gap(small_data: Path) -> None:
    model = read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb")
    torsions = peptide_torsions(model.topology)
    lengths = np.linalg.norm(model.positions[torsions[:, 1]] - model.positions[torsions[:, 2]], axis=1)
    assert len(torsions) == 184 and lengths.max() < 1.4
    # Nor does φ or ψ span one: all four atoms are neighbours.
    for torsion in SecondaryStructureRestraint(model.topology, model.positions).torsions:
        assert np.linalg.norm(np.diff(model.positions[torsion], axis=0), axis=1).max() < 1.7


def test_energy_of_a_turned_peptide_is_the_formula(kinase: Model) -> None:
    restraint = PeptideRestraint(kinase.topology, kinase.positions, 250.0)
    torsions = restraint.torsions
    omega = torsion_angles(kinase.positions, torsions)
    context = context_with(restraint.create_force(), len(kinase.positions))
    rest = energy_at(context, kinase.positions)
    assert 0 <= rest < 5
    for angle in (0.6, 1.5, -1.2, 3.0):
        turned = turned_peptide(kinase.positions, torsions[100], angle)
        found = torsion_angles(turned, torsions)
        assert np.mod(found[100] - omega[100], 2 * np.pi) == pytest.approx(angle % (2 * np.pi), abs=1e-6)
        own = 125.0 * max(0.0, np.pi - abs(found[100]) - np.radians(15)) ** 2
        before = 125.0 * max(0.0, np.pi - abs(omega[100]) - np.radians(15)) ** 2
        assert energy_at(context, turned) - rest == pytest.approx(own - before, rel=1e-5)


def test_a_turned_peptide_is_named(kinase: Model) -> None:
    restraint = PeptideRestraint(kinase.topology, kinase.positions)
    assert restraint.violations(kinase.positions) == []
    turned = turned_peptide(kinase.positions, restraint.torsions[100], np.radians(100))
    (violation,) = restraint.violations(turned)
    assert (violation.restraint, violation.quantity, violation.unit) == ("cis", "ω", "°")
    names = [
        f"A {a.residue.name} {a.residue.id}"
        for a in kinase.topology.atoms()
        if a.index in restraint.torsions[100][[0, 3]]
    ]
    assert list(violation.residues) == names
    assert violation.target == 180 and 70 < violation.deviation < 110
    assert str(violation).startswith(f"{names[0]} - {names[1]}: ω is ")
    assert violation.as_dict()["residues"] == names


def test_cis_peptides_stay_cis(kinase: Model) -> None:
    restraint = PeptideRestraint(kinase.topology, kinase.positions)
    (cis,) = np.flatnonzero(restraint.targets == 0.0)
    context = context_with(restraint.create_force(), len(kinase.positions))
    trans = turned_peptide(kinase.positions, restraint.torsions[cis], np.pi)
    assert energy_at(context, trans) > 1000
    (violation,) = restraint.violations(trans)
    assert violation.residues[1].startswith("A PRO") and violation.target == 0


def test_an_undecided_peptide_is_noted_and_held_at_trans(kinase: Model) -> None:
    torsions = peptide_torsions(kinase.topology)
    omega = torsion_angles(kinase.positions, torsions)[50]
    half = turned_peptide(kinase.positions, torsions[50], np.radians(75) - omega)
    restraint = PeptideRestraint(kinase.topology, half)
    (note,) = restraint.notes
    assert "neither cis nor trans in the start, and are held at trans" in note
    assert restraint.targets[50] == pytest.approx(np.pi)
    cis = turned_peptide(kinase.positions, torsions[50], np.radians(55) - omega)
    assert PeptideRestraint(kinase.topology, cis).targets[50] == 0.0
    assert PeptideRestraint(kinase.topology, kinase.positions).notes == []


def test_stereocentres_of_ligands_are_found(small_data: Path) -> None:
    expected = {
        "NAG": {"C1", "C2", "C3", "C4", "C5"},
        "MAN": {"C1", "C2", "C3", "C4", "C5"},
        "BMA": {"C1", "C2", "C3", "C4", "C5"},
        "BOG": {"C1", "C2", "C3", "C4", "C5"},
        # Trehalose is two glucoses: each carbon has its like in the other ring, and four different neighbours.
        "TRE": {f"C{k}{ring}" for k in range(1, 6) for ring in ("", "P")},
        "RET": set(),  # retinal has none, its flat chain's methyl groups notwithstanding
        "PLM": set(),  # palmitate; its thioester's carbon is bent by 23° in 3PQR, and trigonal all the same
    }
    found: dict[str, set[str]] = {name: set() for name in expected}
    present = set()
    for file in ("emd21457_ntd/6vyb_Ndom.pdb", "xraymap_3pqr_R32/3pqr.pdb"):
        model = read_model(small_data / file)
        atoms = list(model.topology.atoms())
        present |= {atom.residue.name for atom in atoms} & expected.keys()
        restraint = ChiralityRestraint(model.topology, model.positions)
        known = held_centres(model.topology)
        assert len(restraint.torsions) > len(known)
        assert restraint.violations(model.positions) == []
        for centre in restraint.torsions[len(known) :, 0]:
            found[atoms[centre].residue.name].add(atoms[centre].name)
    assert present == expected.keys()
    assert found == expected


def held_centres(topology: app.Topology) -> np.ndarray:
    """Return those of standard residues."""
    return np.concatenate([chiral_centres(topology), prochiral_centres(topology)])


def test_methyl_groups_that_have_changed_places_are_found(kinase: Model) -> None:
    """A search moves side chains without hydrogens, in which nothing else tells one of them from the other."""
    restraint = ChiralityRestraint(kinase.topology, kinase.positions)
    swapped = kinase.positions.copy()
    methyls = prochiral_centres(kinase.topology)[:, 2:]
    assert len(methyls) > 20
    swapped[methyls] = swapped[methyls[:, ::-1]]
    found = {violation.quantity for violation in restraint.violations(swapped)}
    assert found == {"handedness of CB", "handedness of CG"}
    assert len(restraint.violations(swapped)) == len(methyls)


def test_mirrored_model_costs_is_named_and_is_held_as_it_is(kinase: Model) -> None:
    restraint = ChiralityRestraint(kinase.topology, kinase.positions)
    count = len(held_centres(kinase.topology))
    assert restraint.n_terms == count and restraint.violations(kinase.positions) == []
    mirrored = kinase.positions * [-1.0, 1.0, 1.0]
    context = context_with(restraint.create_force(), len(kinase.positions))
    assert 0 <= energy_at(context, kinase.positions) < 1
    assert energy_at(context, mirrored) > 400 * count
    violations = restraint.violations(mirrored)
    assert len(violations) == count
    assert {violation.quantity for violation in violations} == {
        f"handedness of {name}" for name in ("CA", "CB", "CG")
    }
    held = ChiralityRestraint(kinase.topology, mirrored)
    assert energy_at(context_with(held.create_force(), len(mirrored)), mirrored) == pytest.approx(
        energy_at(context, kinase.positions), abs=1e-6
    )


def flattened(positions: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return positions in which a centre lies in the plane of its three neighbours."""
    centre, a, b, c = atoms
    flat = positions.copy()
    normal = np.cross(flat[b] - flat[a], flat[c] - flat[a])
    normal /= np.linalg.norm(normal)
    flat[centre] -= normal * ((flat[centre] - flat[a]) @ normal)
    return flat


def test_a_flat_centre_of_a_standard_residue_is_noted_and_held_at_the_hand_of_most(kinase: Model) -> None:
    centres = chiral_centres(kinase.topology)
    flat = flattened(kinase.positions, centres[5])
    # Of a model in a mirror, too.
    for positions, hand in ((flat, 1.0), (flat * [1, 1, -1], -1.0)):
        restraint = ChiralityRestraint(kinase.topology, positions)
        assert len(restraint.notes) == 1 and "flat in the start, and held at the hand" in restraint.notes[0]
        (at,) = np.flatnonzero(restraint.torsions[:, 0] == centres[5, 0])
        np.testing.assert_allclose(restraint.targets[at], hand * IDEAL_IMPROPER)


def test_secondary_structure_is_free_as_it_is_and_costs_when_it_unwinds(kinase: Model) -> None:
    restraint = SecondaryStructureRestraint(kinase.topology, kinase.positions)
    context = context_with(restraint.create_force(), len(kinase.positions))
    assert energy_at(context, kinase.positions) == pytest.approx(0.0, abs=1e-6)
    torsions = restraint.torsions
    names = [atom.name for atom in kinase.topology.atoms()]
    assert {tuple(names[i] for i in torsion) for torsion in torsions} == {
        ("C", "N", "CA", "C"),
        ("N", "CA", "C", "N"),
    }
    # Adenylate kinase is about half helix and a fifth strand: most residues have both torsions.
    assert 0.55 * 2 * 214 < len(torsions) < 0.8 * 2 * 214
    trajectory = mdtraj.Trajectory(kinase.positions / 10, mdtraj.Topology.from_openmm(kinase.topology))
    phi, psi = mdtraj.compute_phi(trajectory)[0], mdtraj.compute_psi(trajectory)[0]
    structured = np.isin(mdtraj.compute_dssp(trajectory)[0], ("H", "E"))
    residue = np.array([atom.residue.index for atom in kinase.topology.atoms()])
    expected = [t for t in np.concatenate([phi, psi]).tolist() if structured[residue[t[1]]]]
    assert sorted(torsions.tolist()) == sorted(expected)
    rng = np.random.default_rng(0)
    shaken = kinase.positions + rng.normal(scale=0.5, size=kinase.positions.shape)
    beyond = np.maximum(
        apart(torsion_angles(shaken, torsions), torsion_angles(kinase.positions, torsions)) - np.radians(10),
        0,
    )
    assert energy_at(context, shaken) == pytest.approx(0.5 * 400.0 * (beyond**2).sum(), rel=1e-6)
    violations = restraint.violations(shaken)
    assert len(violations) == (beyond > np.radians(20)).sum() > 10
    assert {violation.quantity for violation in violations} == {"φ", "ψ"}
    assert all(len(violation.residues) == 1 for violation in violations)
    assert violations[0].deviation == max(violation.deviation for violation in violations)


def test_torsions_of_sure_residues_are_held_and_released_where_they_are_turned_far(kinase: Model) -> None:
    sure = np.arange(kinase.topology.getNumResidues()) % 4 > 0
    restraint = PredictedTorsionRestraint(kinase.topology, kinase.positions, residues=sure)
    trajectory = mdtraj.Trajectory(kinase.positions / 10, mdtraj.Topology.from_openmm(kinase.topology))
    residue = np.array([atom.residue.index for atom in kinase.topology.atoms()])
    # All but those of the first and last residue, which have one of the two.
    sure[[0, -1]] = False
    both = np.concatenate([mdtraj.compute_phi(trajectory)[0], mdtraj.compute_psi(trajectory)[0]])
    assert sorted(restraint.torsions.tolist()) == sorted(t for t in both.tolist() if sure[residue[t[1]]])
    context = context_with(restraint.create_force(), len(kinase.positions))
    assert energy_at(context, kinase.positions) == pytest.approx(0.0, abs=1e-6)
    shaken = kinase.positions + np.random.default_rng(0).normal(scale=0.5, size=kinase.positions.shape)
    turned = apart(torsion_angles(shaken, restraint.torsions), restraint.targets)
    beyond, well = np.maximum(turned - np.radians(10), 0), np.radians(30)
    expected = 200.0 * well**2 * (1 - np.exp(-0.5 * (beyond / well) ** 2))
    assert energy_at(context, shaken) == pytest.approx(expected.sum(), rel=1e-6)
    assert expected.max() > 54.8 and len(restraint.violations(shaken)) == (turned > np.radians(40)).sum() > 10


def test_models_without_what_is_restrained(small_data: Path, emd5925: Model, tmp_path: Path) -> None:
    kinds = (
        *(PeptideRestraint, ChiralityRestraint, SecondaryStructureRestraint, HydrogenBondRestraint),
        PredictedTorsionRestraint,
    )
    water = app.Topology()
    water.addAtom("O", app.element.oxygen, water.addResidue("HOH", water.addChain()))
    kept = [atom.index for atom in emd5925.topology.atoms() if atom.name == "CA"]
    alpha = app.Topology()
    chain = alpha.addChain("A")
    for residue in emd5925.topology.residues():
        alpha.addAtom("CA", app.element.carbon, alpha.addResidue(residue.name, chain, residue.id))
    for topology, positions in ((water, np.zeros((1, 3))), (alpha, emd5925.positions[kept])):
        for kind in kinds:
            restraint = kind(topology, positions)
            assert restraint.n_terms == 0 and restraint.violations(positions) == []
            assert energy_at(context_with(restraint.create_force(), len(positions)), positions) == 0
    one = part_of(small_data / "emd5925_frag/5925_native.pdb", 5, 5, tmp_path / "one.pdb")
    assert [kind(one.topology, one.positions).n_terms for kind in kinds] == [0, 1, 0, 0, 0]


def test_errors(kinase: Model) -> None:
    with pytest.raises(InputError, match="1655"):
        PeptideRestraint(kinase.topology, kinase.positions[1:])
    with pytest.raises(InputError, match="not a number"):
        ChiralityRestraint(kinase.topology, kinase.positions * np.nan)
    with pytest.raises(InputError, match="force_constant must be 0 or more"):
        SecondaryStructureRestraint(kinase.topology, kinase.positions, -1.0)
    with pytest.raises(InputError, match="force_constant must be a number"):
        HydrogenBondRestraint(kinase.topology, kinase.positions, "strong")
    with pytest.raises(InputError, match="1655"):
        PeptideRestraint(kinase.topology, kinase.positions).violations(kinase.positions[1:])
    for wrong in (np.ones(3, dtype=bool), np.ones(kinase.topology.getNumResidues()), "all"):
        with pytest.raises(
            InputError, match="residues must be true or false for each of 214 residues, found"
        ):
            PredictedTorsionRestraint(kinase.topology, kinase.positions, residues=wrong)


def pulled(positions: np.ndarray, torsions: np.ndarray, strength: float) -> openmm.CustomTorsionForce:
    """Return a force that pulls torsions away from what they are."""
    pull = openmm.CustomTorsionForce(f"{strength}*cos(theta - start)")
    pull.addPerTorsionParameter("start")
    for atoms, angle in zip(torsions.tolist(), torsion_angles(positions, torsions).tolist()):
        pull.addTorsion(*atoms, [angle])
    return pull


@pytest.mark.parametrize("held", [False, True])
def test_what_is_half_way_over_is_drawn_back_only_where_it_is_held(tmp_path: Path, held: bool) -> None:
    """Peptides at 90° and flat centres, which something pulls on to the other side."""
    # Residues 84 to 91 of adenylate kinase, with the cis peptide before Pro 87.
    model = part_of(ADK_OPEN, 84, 91, tmp_path / "part.pdb")
    # Cα of Asp 84, Cβ of Thr 89 and of Ile 90.
    torsions, centres = peptide_torsions(model.topology)[1:4], chiral_centres(model.topology)[[0, 5, 7]]
    assert (np.abs(torsion_angles(model.positions, torsions)) < 0.5).sum() == 1
    restraints = [kind(model.topology, model.positions) for kind in (PeptideRestraint, ChiralityRestraint)]
    paths = [
        (
            name,
            pulled(model.positions, atoms[None], strength),
            [path(atoms, part) for part in (0.9, 1.0, 1.1, 2.0)],
        )
        for name, of_all, strength, path in (
            (
                "cis",
                torsions,
                200.0,
                lambda atoms, part: turned_peptide(model.positions, atoms, part * np.pi / 2),
            ),
            (
                "chirality",
                centres,
                500.0,
                lambda atoms, part: _through_its_plane(model.positions, atoms, part),
            ),
        )
        for atoms in of_all
    ]
    for name, pull, (*near, other_side) in paths:
        context = context_with(pull, len(model.positions))
        for restraint in restraints if held else ():
            context.getSystem().addForce(restraint.create_force())
        context.reinitialize()
        before, half, after = (energy_at(context, positions) for positions in near)
        assert before < half < after if held else before > half > after
        assert find_violations(restraints, other_side)[name]


def _through_its_plane(positions: np.ndarray, atoms: np.ndarray, part: float) -> np.ndarray:
    """Return positions with a centre moved towards the plane of its neighbours (1) and its place in their mirror (2)."""
    return positions + part * (flattened(positions, atoms) - positions)
