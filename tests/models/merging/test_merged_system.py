"""A merged System has the energies and forces of its parts."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.base.errors import InputError
from openmm_density.models import prepare
from openmm_density.models.merging import displacements_apart, merge_systems
from openmm_density.models.merging.displacements import closest_approach
from openmm_density.restraints import PositionalRestraint, make_restraints

from ...contexts import context_of, energy_of, forces_of
from ...fragments import fragment

GAP = 2.0
RESTRAINTS = "ss,chirality,cis,ramachandran,rotamers,elastic,distance,position"


def energy_and_forces(system, positions, platform="Reference", parameters=None):
    context = context_of(system, platform=platform)
    context.setPositions(positions)
    for name, value in (parameters or {}).items():
        context.setParameter(name, value)
    return energy_of(context), forces_of(context)


def restrained(path, residues, solvent="none", names=RESTRAINTS):
    model = prepare(fragment(path, residues=residues), solvent=solvent)
    system = model.system(hydrogen_mass=3.0)
    for restraint in make_restraints(names, model.topology, model.positions):
        system.addForce(restraint.create_force())
    return SimpleNamespace(system=system, positions=model.positions / 10, topology=model.topology)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two molecules with all of our restraints, and positions of either away from its minimum."""
    folder = tmp_path_factory.mktemp("parts")
    return [restrained(folder / f"{n}.pdb", n) for n in (12, 9)]


def shaken(positions, seed):
    return positions + np.random.default_rng(seed).normal(scale=0.005, size=positions.shape)


def assert_merged_is_the_sum(systems, positions, platform="Reference", tolerance=1e-6, parameters=None):
    merged = merge_systems(systems, displacements_apart(positions, GAP))
    energy, forces = energy_and_forces(
        merged.system, merged.merged_positions(positions), platform, parameters
    )
    alone = [energy_and_forces(*each, platform, parameters) for each in zip(systems, positions)]
    largest = np.abs(forces).max()
    assert energy == pytest.approx(sum(each[0] for each in alone), rel=tolerance)
    for here, (_, there) in zip(merged.split(forces), alone):
        assert np.abs(here - there).max() < tolerance * largest
    return merged


@pytest.mark.parametrize("platform, tolerance", [("Reference", 1e-8), ("CPU", 1e-4)])
def test_copies_of_one_molecule(parts, platform, tolerance):
    positions = [shaken(parts[0].positions, seed) for seed in range(3)]
    merged = assert_merged_is_the_sum([parts[0].system] * 3, positions, platform, tolerance)
    assert merged.system.getNumForces() == parts[0].system.getNumForces()
    assert merged.system.getNumConstraints() == 3 * parts[0].system.getNumConstraints()
    assert merged.first.tolist() == [n * len(positions[0]) for n in range(4)]


def test_different_molecules_share_forces_and_parameters(parts):
    positions = [shaken(each.positions, seed) for seed, each in enumerate(parts)]
    systems = [each.system for each in parts]
    merged = assert_merged_is_the_sum(systems, positions, parameters={"chirality_strength": 0.0})
    assert merged.system.getNumForces() <= max(each.getNumForces() for each in systems) + 1


def test_a_force_of_one_part_alone_is_numbered_anew(parts):
    first, second = (copy.deepcopy(each.system) for each in parts)
    centroid = openmm.CustomCentroidBondForce(2, "100*(distance(g1, g2) - 1)^2")
    groups = [centroid.addGroup(range(a, a + 5)) for a in (0, 20)]
    centroid.addBond(groups)
    compound = openmm.CustomCompoundBondForce(3, "10*angle(p1, p2, p3)^2*distance(p1, p3)")
    compound.addBond([1, 5, 9])
    torsion = openmm.RBTorsionForce()
    torsion.addTorsion(0, 4, 9, 14, *range(1, 7))
    external = openmm.CustomExternalForce("5*(x - 0.1)^2 + z*y + weight*x")
    external.addPerParticleParameter("weight")
    external.addParticle(7, [2.0])
    for force in (centroid, compound, torsion, external):
        second.addForce(force)
    positions = [each.positions for each in parts]
    assert_merged_is_the_sum([first, second], positions)
    assert_merged_is_the_sum([second, first, second], [positions[1], positions[0], positions[1]])


@pytest.mark.parametrize("solvent", ["obc", "gbn2"])
def test_implicit_solvent(tmp_path, solvent):
    part = restrained(tmp_path / "part.pdb", 5, solvent, "cis")
    positions = [shaken(part.positions, seed) for seed in range(2)]
    assert_merged_is_the_sum([part.system] * 2, positions, tolerance=1e-6)


def test_cmap_torsions_keep_their_maps(parts):
    systems = []
    random = np.random.default_rng(1)
    shared = random.normal(size=576)
    for part, (first, last) in zip(
        parts, ((shared, random.normal(size=576)), (random.normal(size=576), shared))
    ):
        force = openmm.CMAPTorsionForce()
        for energies in (first, last):
            force.addMap(24, energies)
        force.addTorsion(0, 0, 4, 9, 14, 4, 9, 14, 20)
        force.addTorsion(1, 2, 5, 7, 30, 12, 9, 24, 20)
        system = openmm.System()
        for i in range(part.system.getNumParticles()):
            system.addParticle(part.system.getParticleMass(i))
        system.addForce(force)
        systems.append(system)
    positions = [each.positions for each in parts]
    merged = assert_merged_is_the_sum([*systems, systems[1]], [*positions, positions[1]])
    assert merged.system.getForce(0).getNumMaps() == 3 and merged.system.getForce(0).getNumTorsions() == 6


def test_dynamics_of_copies_are_those_of_each_alone(parts):
    """Constraints and masses as well: Verlet steps on Reference are the same but for rounding."""
    merged = merge_systems([parts[0].system] * 2, displacements_apart([parts[0].positions] * 2, GAP))
    starts = [shaken(parts[0].positions, 0), parts[0].positions]

    def after(system, positions):
        integrator = openmm.VerletIntegrator(0.001)
        integrator.setConstraintTolerance(1e-10)
        context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
        context.setPositions(positions)
        context.applyConstraints(1e-10)
        integrator.step(5)
        return context.getState(positions=True).getPositions(asNumpy=True)._value

    together = merged.separate_positions(after(merged.system, merged.merged_positions(starts)))
    for here, start in zip(together, starts):
        assert np.abs(here - after(parts[0].system, start)).max() < 1e-7


def test_forces_that_are_left_out(parts):
    merged = merge_systems([parts[0].system] * 2, np.eye(3)[:2] * 30, without=["PeptideRestraint"])
    names = {force.getName() for force in merged.system.getForces()}
    assert "PeptideRestraint" not in names and "ChiralityRestraint" in names


def test_what_cannot_be_merged_is_refused(parts):
    apart = np.eye(3)[:2] * 30

    def refused(words, change, others=None):
        system = openmm.System() if others is None else copy.deepcopy(others)
        if others is None:
            system.addParticle(1.0)
        change(system)
        with pytest.raises(InputError, match=words):
            merge_systems([system] * 2, apart)

    def with_force(force):
        return lambda system: system.addForce(force)

    without_cutoff = openmm.NonbondedForce()
    without_cutoff.addParticle(0, 1, 0)
    periodic = openmm.NonbondedForce()
    periodic.addParticle(0, 1, 0)
    periodic.setNonbondedMethod(periodic.PME)
    refused("cut-off", with_force(without_cutoff))
    refused("periodic", with_force(periodic))
    refused("CMMotionRemover cannot be merged", with_force(openmm.CMMotionRemover()))
    refused("coordinates in its energy", with_force(openmm.CustomCompoundBondForce(1, "x1^2")))
    refused(
        "virtual sites",
        lambda system: system.setVirtualSite(0, openmm.TwoParticleAverageSite(1, 2, 0.5, 0.5)),
        parts[0].system,
    )
    with pytest.raises(InputError, match="one for each System"):
        merge_systems([parts[0].system], apart)
    with pytest.raises(InputError, match="one for each System, found 0 for 0"):
        merge_systems([], apart[:0])
    for wrong in ([0, 5, 0, 1, 1, 1], "apart", None, [[0, 0, 0], [0, 1]]):
        with pytest.raises(InputError, match=r"displacements must be numbers of shape \(N, 3\), found"):
            merge_systems([part.system for part in parts], wrong)
    with pytest.raises(InputError, match="displacements must be finite"):
        merge_systems([part.system for part in parts], apart * np.nan)
    other = copy.deepcopy(parts[1].system)
    next(f for f in other.getForces() if isinstance(f, openmm.NonbondedForce)).setCutoffDistance(0.9)
    with pytest.raises(InputError, match="same settings"):
        merge_systems([parts[0].system, other], apart)


def test_global_parameters_that_disagree_are_refused(tmp_path):
    model = prepare(fragment(tmp_path / "part.pdb", residues=3))
    systems = []
    for force_constant in (1.0, 2.0):
        system = model.system()
        restraint = PositionalRestraint(
            model.topology, model.positions, force_constant * unit.kilojoule_per_mole / unit.nanometer**2
        )
        system.addForce(restraint.create_force())
        systems.append(system)
    with pytest.raises(InputError, match="positional_restraint_strength"):
        merge_systems(systems, np.eye(3)[:2] * 30)


def test_displacements_keep_models_apart_and_near_zero():
    random = np.random.default_rng(0)
    models = [random.uniform(3, 3 + size, size=(20, 3)) for size in (1.0, 2.0, 4.0, 1.5, 3.0, 2.0, 2.0, 2.0)]
    moved = [each + by for each, by in zip(models, displacements_apart(models, 2.5))]
    assert closest_approach(moved) > 2.5
    assert np.abs(np.concatenate(moved)).max() < 7
    assert closest_approach(moved[:1]) == np.inf
    for wrong in ([], [np.full((2, 3), np.nan)]):
        with pytest.raises(InputError, match="finite"):
            displacements_apart(wrong, 1.0)
    with pytest.raises(InputError, match="positive"):
        displacements_apart(models, 0.0)
    with pytest.raises(InputError, match="gap must be a number"):
        displacements_apart(models, "far")
    with pytest.raises(InputError, match=r"shape \(N, 3\), found shape \(3,\)"):
        displacements_apart(models[0], 2.5)
