from __future__ import annotations

from pathlib import Path

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.errors import InputError
from openmm_density.preparation import prepare
from openmm_density.restraints import (
    chiral_centres,
    chirality_restraint,
    peptide_restraint,
    peptide_torsions,
    secondary_structure_restraint,
    secondary_structure_torsions,
    torsion_angles,
)
from openmm_density.structures import Model, read_model


@pytest.fixture(scope="module")
def kinase(data_dir: Path) -> Model:
    return read_model(data_dir / "pair_adk/adk_open.pdb")


def context_with(force: openmm.Force, count: int, platform: str = "Reference") -> openmm.Context:
    system = openmm.System()
    for _ in range(count):
        system.addParticle(12.0)
    system.addForce(force)
    return openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName(platform))


def energy_at(context: openmm.Context, positions: np.ndarray) -> float:
    context.setPositions(positions / 10)
    return context.getState(energy=True).getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)


def turned_peptide(positions: np.ndarray, torsion: np.ndarray, angle: float) -> np.ndarray:
    """Turn everything after a peptide's C-N bond, which needs no ring or neighbour to be whole."""
    _, carbon, nitrogen, _ = torsion
    axis = positions[nitrogen] - positions[carbon]
    axis /= np.linalg.norm(axis)
    turned = positions.copy()
    arm = positions[nitrogen + 1 :] - positions[carbon]
    turned[nitrogen + 1 :] = positions[carbon] + (
        arm * np.cos(angle)
        + np.cross(axis, arm) * np.sin(angle)
        + np.outer(arm @ axis, axis) * (1 - np.cos(angle))
    )
    return turned


def test_omega_agrees_with_mdtraj(kinase: Model) -> None:
    trajectory = mdtraj.Trajectory(kinase.positions / 10, mdtraj.Topology.from_openmm(kinase.topology))
    indices, angles = mdtraj.compute_omega(trajectory)
    torsions = peptide_torsions(kinase.topology)
    np.testing.assert_array_equal(indices[np.argsort(indices[:, 1])], torsions[np.argsort(torsions[:, 1])])
    own = torsion_angles(kinase.positions, torsions)[np.argsort(torsions[:, 1])]
    difference = own - angles[0][np.argsort(indices[:, 1])]
    assert np.abs(np.mod(difference + np.pi, 2 * np.pi) - np.pi).max() < 1e-3


def test_no_peptide_torsion_across_a_gap(data_dir: Path) -> None:
    model = read_model(data_dir / "emd21457_ntd/6vyb_Ndom.pdb")
    torsions = peptide_torsions(model.topology)
    lengths = np.linalg.norm(model.positions[torsions[:, 1]] - model.positions[torsions[:, 2]], axis=1)
    assert len(torsions) == 192 and lengths.max() < 1.4


def test_natural_handedness_is_positive(kinase: Model) -> None:
    centres = chiral_centres(kinase.topology)
    names = [residue.name for residue in kinase.topology.residues()]
    expected = sum(name != "GLY" for name in names) + sum(name in ("THR", "ILE") for name in names)
    assert len(centres) == expected
    angles = np.degrees(torsion_angles(kinase.positions, centres))
    assert angles.min() > 25 and angles.max() < 45


@pytest.mark.parametrize("name", ["A", "C", "G", "U", "DA", "DC", "DG", "DT"])
def test_sugars_have_positive_centres(name: str) -> None:
    import pdbfixer

    template = app.PDBFile(str(Path(pdbfixer.__file__).parent / "templates" / f"{name}.pdb"))
    centres = chiral_centres(template.topology)
    assert len(centres) == (3 if name.startswith("D") else 4)
    angles = np.degrees(torsion_angles(np.array(template.positions.value_in_unit(unit.angstrom)), centres))
    assert angles.min() > 25 and angles.max() < 45


def test_energy_is_negligible_in_good_models(kinase: Model) -> None:
    for restraint, limit in ((peptide_restraint, 5.0), (chirality_restraint, 1.0)):
        context = context_with(restraint(kinase.topology, kinase.positions), len(kinase.positions))
        assert 0 <= energy_at(context, kinase.positions) < limit


def test_energy_of_a_turned_peptide_is_the_formula(kinase: Model) -> None:
    torsions = peptide_torsions(kinase.topology)
    omega = torsion_angles(kinase.positions, torsions)
    context = context_with(peptide_restraint(kinase.topology, kinase.positions, 250.0), len(kinase.positions))
    rest = energy_at(context, kinase.positions)
    for angle in (0.6, 1.5, -1.2, 3.0):
        turned = turned_peptide(kinase.positions, torsions[100], angle)
        found = torsion_angles(turned, torsions)
        turned_by = np.mod(found[100] - omega[100], 2 * np.pi)
        assert turned_by == pytest.approx(angle % (2 * np.pi), abs=1e-6)
        away = np.pi - abs(found[100])
        own = 125.0 * max(0.0, away - np.radians(15)) ** 2
        before = 125.0 * max(0.0, np.pi - abs(omega[100]) - np.radians(15)) ** 2
        assert energy_at(context, turned) - rest == pytest.approx(own - before, rel=1e-5)


def test_cis_peptides_stay_cis(kinase: Model) -> None:
    torsions = peptide_torsions(kinase.topology)
    cis = np.flatnonzero(np.abs(torsion_angles(kinase.positions, torsions)) < 0.5)
    assert len(cis) == 1
    context = context_with(peptide_restraint(kinase.topology, kinase.positions), len(kinase.positions))
    assert energy_at(context, turned_peptide(kinase.positions, torsions[cis[0]], np.pi)) > 1000


def test_mirrored_model_costs_and_is_held_as_it_is(kinase: Model) -> None:
    count = len(chiral_centres(kinase.topology))
    mirrored = kinase.positions * [-1.0, 1.0, 1.0]
    context = context_with(chirality_restraint(kinase.topology, kinase.positions), len(kinase.positions))
    assert energy_at(context, mirrored) > 400 * count
    held = context_with(chirality_restraint(kinase.topology, mirrored), len(kinase.positions))
    assert energy_at(held, mirrored) == pytest.approx(energy_at(context, kinase.positions), abs=1e-6)


@pytest.mark.parametrize("restraint", [peptide_restraint, chirality_restraint, secondary_structure_restraint])
def test_forces_are_the_gradient(data_dir: Path, restraint) -> None:
    model = read_model(data_dir / "emd5925_frag/5925_native.pdb")
    rng = np.random.default_rng(3)
    positions = model.positions + rng.normal(scale=0.5, size=model.positions.shape)
    context = context_with(restraint(model.topology, model.positions), len(positions))
    assert energy_at(context, positions) > 100
    state = context.getState(forces=True)
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    np.testing.assert_allclose(forces.sum(axis=0), 0, atol=1e-6)
    largest = np.abs(forces).max()
    step = 2e-6
    for atom in np.argsort(-np.linalg.norm(forces, axis=1))[:6]:
        for axis in range(3):
            moved = positions.copy()
            moved[atom, axis] += 10 * step
            above = energy_at(context, moved)
            moved[atom, axis] -= 20 * step
            slope = (above - energy_at(context, moved)) / (2 * step)
            assert forces[atom, axis] == pytest.approx(-slope, abs=1e-6 * largest)


def test_secondary_structure_is_free_as_it_is_and_costs_when_it_unwinds(kinase: Model) -> None:
    force = secondary_structure_restraint(kinase.topology, kinase.positions)
    context = context_with(force, len(kinase.positions))
    assert energy_at(context, kinase.positions) == pytest.approx(0.0, abs=1e-6)
    torsions = secondary_structure_torsions(kinase.topology, kinase.positions)
    names = [atom.name for atom in kinase.topology.atoms()]
    assert {tuple(names[i] for i in torsion) for torsion in torsions} == {
        ("C", "N", "CA", "C"),
        ("N", "CA", "C", "N"),
    }
    # Adenylate kinase is about half helix and a fifth strand: most residues have both torsions.
    assert 0.55 * 2 * 214 < len(torsions) < 0.8 * 2 * 214
    rng = np.random.default_rng(0)
    shaken = kinase.positions + rng.normal(scale=0.5, size=kinase.positions.shape)
    turned = torsion_angles(shaken, torsions) - torsion_angles(kinase.positions, torsions)
    beyond = np.maximum(np.abs((turned + np.pi) % (2 * np.pi) - np.pi) - np.radians(10.0), 0.0)
    assert energy_at(context, shaken) == pytest.approx(0.5 * 400.0 * (beyond**2).sum(), rel=1e-6)
    context.setParameter("secondary_structure_strength", 0.0)
    assert energy_at(context, shaken) == 0.0


def test_a_model_without_protein_has_no_secondary_structure() -> None:
    topology = app.Topology()
    residue = topology.addResidue("HOH", topology.addChain())
    topology.addAtom("O", app.element.oxygen, residue)
    assert secondary_structure_restraint(topology, np.zeros((1, 3))).getNumTorsions() == 0


def test_strength_is_a_parameter_and_group_is_set(kinase: Model) -> None:
    force = peptide_restraint(
        kinase.topology,
        kinase.positions * unit.angstrom,
        300 * unit.kilojoule_per_mole / unit.radian**2,
        force_group=5,
    )
    assert (force.getForceGroup(), force.getNumTorsions()) == (5, 213)
    assert force.getGlobalParameterName(0) == "peptide_strength"
    assert force.getGlobalParameterDefaultValue(0) == 300
    renamed = chirality_restraint(kinase.topology, kinase.positions, parameter_name="hands")
    assert renamed.getGlobalParameterName(0) == "hands"
    context = context_with(renamed, len(kinase.positions))
    mirrored = kinase.positions * [-1.0, 1.0, 1.0]
    full = energy_at(context, mirrored)
    context.setParameter("hands", 500.0)
    assert energy_at(context, mirrored) == pytest.approx(full / 2, rel=1e-9)
    context.setParameter("hands", 0.0)
    assert energy_at(context, mirrored) == 0


def test_errors(kinase: Model) -> None:
    with pytest.raises(InputError, match="3340"):
        peptide_restraint(kinase.topology, kinase.positions[1:])
    with pytest.raises(InputError, match="not a number"):
        chirality_restraint(kinase.topology, kinase.positions * np.nan)
    with pytest.raises(InputError, match="strength"):
        peptide_restraint(kinase.topology, kinase.positions, -1.0)


def test_a_force_that_would_turn_a_peptide_does_not(data_dir: Path, tmp_path: Path) -> None:
    lines = (data_dir / "emd5925_frag/5925_native.pdb").read_text().splitlines()
    path = tmp_path / "part.pdb"
    path.write_text("\n".join(line for line in lines if line.startswith("ATOM") and int(line[22:26]) <= 10))
    prepared = prepare(read_model(path))
    torsions = peptide_torsions(prepared.topology)
    # Stronger, around trans, than the force field's own barrier, and 600 kJ/mol in all.
    pull = openmm.CustomTorsionForce("300*(1 - cos(theta))")
    pull.addTorsion(*(int(atom) for atom in torsions[4]), [])
    changes = {}
    for held in (False, True):
        system = prepared.system(constraints=None)
        system.addForce(openmm.CustomTorsionForce(pull))
        if held:
            system.addForce(peptide_restraint(prepared.topology, prepared.positions))
            system.addForce(chirality_restraint(prepared.topology, prepared.positions))
        integrator = openmm.LangevinMiddleIntegrator(300, 5, 0.001)
        integrator.setRandomNumberSeed(2)
        platform = openmm.Platform.getPlatformByName("CPU")
        context = openmm.Context(system, integrator, platform, {"Threads": "2"})
        context.setPositions(prepared.positions / 10)
        openmm.LocalEnergyMinimizer.minimize(context, 10, 100)
        context.setVelocitiesToTemperature(300, 2)
        integrator.step(2000)
        end = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
        omega = torsion_angles(prepared.positions, torsions), torsion_angles(end, torsions)
        changes[held] = np.abs(np.mod(omega[1] - omega[0] + np.pi, 2 * np.pi) - np.pi)
        if held:
            assert (torsion_angles(end, chiral_centres(prepared.topology)) > 0).all()
    assert changes[False][4] > np.pi / 2
    assert changes[True].max() < np.pi / 2
