"""How a final stage holds the geometry."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import openmm
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.fitting.final_geometry import (
    ANGLE_STIFFNESS,
    ANGLES_BEYOND,
    BOND_STIFFNESS,
    HYDROGEN_SCALE,
    OUTLIER,
    OUTLIER_SCALE,
    RESTRAINT_SCALES,
    force_of_angles,
    forces_of_puckers,
    stagger_methyls,
    stiffen,
)
from openmm_density.fitting.final_strength import MOST_ANGLE_RMSZ, MOST_BOND_RMSZ, stiffer
from openmm_density.fitting.fit_systems import FitSystems
from openmm_density.fitting.minimization import Minimizer
from openmm_density.fitting.platforms import make_context
from openmm_density.fitting.protocols import Stage
from openmm_density.fitting.stability import Safeguard
from openmm_density.models import prepare, read_model
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.chemistry.sugar_puckers import AMPLITUDE, C2_ENDO, C3_ENDO, find_sugars
from openmm_density.restraints import IdealGeometryRestraint
from openmm_density.validation.geometry import ModelGeometry

from ..contexts import context_of, energy_of, system_of
from ..small_models import ADK_CLOSED


def constants(system, topology):
    """Return force constants of bonds and angles by their atoms, and which atoms are hydrogens."""
    found = {}
    for force in system.getForces():
        if isinstance(force, openmm.HarmonicBondForce):
            for index in range(force.getNumBonds()):
                *atoms, _, constant = force.getBondParameters(index)
                found[tuple(atoms)] = constant._value
        if isinstance(force, openmm.HarmonicAngleForce):
            for index in range(force.getNumAngles()):
                *atoms, _, constant = force.getAngleParameters(index)
                found[tuple(atoms)] = constant._value
    return found, {atom.index for atom in topology.atoms() if is_hydrogen(atom)}


def values(system):
    """Return the values in nm and radians at which bonds and angles have no energy, by their atoms, the first below the last."""
    found = {}
    for force in system.getForces():
        if isinstance(force, openmm.HarmonicBondForce):
            for index in range(force.getNumBonds()):
                *atoms, value, _ = force.getBondParameters(index)
                found[tuple(sorted(atoms))] = value._value
        if isinstance(force, openmm.HarmonicAngleForce):
            for index in range(force.getNumAngles()):
                first, vertex, last, value, _ = force.getAngleParameters(index)
                found[min(first, last), vertex, max(first, last)] = value._value
    return found


def test_bonds_and_angles_between_heavy_atoms_are_stiffer_in_a_final_stage(fitted):
    fit, result = fitted
    systems, topology = fit._systems, fit.prepared.topology
    before, hydrogens = constants(systems.of_stage(Stage("on", 1), result.final)[1], topology)
    stiff, _ = constants(systems.of_stage(Stage("end", 1, final=True), result.final)[1], topology)
    assert before.keys() == stiff.keys() and len(before) > 300
    for atoms, constant in before.items():
        factor = {2: BOND_STIFFNESS, 3: ANGLE_STIFFNESS}[len(atoms)] if hydrogens.isdisjoint(atoms) else 1.0
        assert stiff[atoms] == pytest.approx(factor * constant)
    again, _ = constants(systems.of_stage(Stage("on", 1), result.final)[1], topology)
    assert again == before


def test_where_ideal_geometry_is_restrained_they_have_its_values(fitted):
    fit, _ = fitted
    topology = fit.prepared.topology
    ideal = IdealGeometryRestraint(topology, fit.prepared.positions).terms
    plain, stiff, restrained = (fit.prepared.system() for _ in range(3))
    stiffen(stiff, topology)
    stiffen(restrained, topology, ideal)
    assert constants(stiff, topology) == constants(restrained, topology) != constants(plain, topology)
    known = {tuple(atoms): value for atoms, value in zip(ideal.bonds.atoms.tolist(), ideal.bonds.values / 10)}
    known |= zip(map(tuple, ideal.angles.atoms.tolist()), ideal.angles.values)
    found = values(restrained)
    assert found.keys() <= known.keys() and len(found) > 300
    assert found == pytest.approx({atoms: known[atoms] for atoms in found})
    # So has the last minimisation.
    resting, *_ = fit._systems.at_rest(fit.density, fit.prepared.positions, stiff=True)
    resting = values(resting)
    assert {atoms: resting[atoms] for atoms in found} == pytest.approx(found)
    # What the library does not know keeps the force field's.
    none = np.zeros(topology.getNumAtoms(), dtype=bool)
    stiffen(plain, topology, replace(ideal, bonds=ideal.bonds.among(none), angles=ideal.angles.among(none)))
    assert values(plain) == values(stiff)


def test_the_backbone_is_held_more_strongly_there(fitted):
    fit, result = fitted
    (backbone,) = (each for each in fit.restraints if each.name == "ramachandran")
    for final, scale in ((False, 1.0), (True, RESTRAINT_SCALES["ramachandran"])):
        stage = Stage("end", 1, restraints=("ramachandran",), final=final)
        system = fit._systems.of_stage(stage, result.final)[1]
        platform = openmm.Platform.getPlatformByName("Reference")
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
        FitSystems.release_restraints(fit._systems, context, stage)
        found = context.getParameter(backbone.parameter_name)
        assert found == pytest.approx(scale * backbone.force_constant)


@pytest.fixture(scope="module")
def bent(fitted):
    """Return a fit, the density of its model with atoms displaced by 0.3 Å, and where these are."""
    fit, result = fitted
    shaken = result.final + np.random.default_rng(0).normal(scale=0.3, size=result.final.shape)
    target = DensityMap.simulate(fit.prepared.topology, shaken, 3.0, 0.8)
    density = DensityFit(target, fit.prepared.topology, 3.0, positions=shaken, system=fit.prepared.system())
    return fit, density, shaken


def test_hydrogens_ride_on_heavy_atoms_at_rest(bent):
    """One that evades what is near would hide a clash of those that programs build anew."""
    fit, _, shaken = bent
    topology = fit.prepared.topology
    ideal = IdealGeometryRestraint(topology, shaken)
    context = context_of(system_of(len(shaken), force_of_angles(topology, ideal)), shaken)
    light = np.array([is_hydrogen(atom) for atom in topology.atoms()])
    z, riding = ideal.terms.angles.z(shaken), light[ideal.terms.angles.atoms].any(axis=1)
    far = np.maximum(0.0, np.abs(z) - OUTLIER)
    for beyond in (0.0, 3.0):
        context.setParameter(ANGLES_BEYOND, beyond)
        held = np.where(riding, (HYDROGEN_SCALE - 1.0) * ideal.force_constant, beyond)
        expected = 0.5 * (held * z**2 + OUTLIER_SCALE * (ideal.force_constant + beyond) * far**2).sum()
        assert energy_of(context) == pytest.approx(expected, rel=1e-4)


def test_a_model_comes_to_rest_in_the_geometry_of_depositions(bent):
    """Against a density that a bent model made, and with as few clashes as can be."""
    fit, density, shaken = bent
    systems, stop = fit._systems, SimpleNamespace(requested=False)
    platform = openmm.Platform.getPlatformByName("CPU"), {"Threads": "1"}
    system = systems.with_density(density, stiff=True)
    context = make_context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(shaken / 10)
    context.setParameter(density.parameter_name, 30.0 * density.n_fitted_atoms)
    minimizer = Minimizer(systems, Safeguard(fit.prepared.topology, system), *platform)
    minimizer.minimize(context, 200)
    assessed, found = ModelGeometry(fit.prepared.topology), []

    def positions():
        return context.getState(positions=True).getPositions(asNumpy=True)._value * 10

    def asked(positions):
        found.append(assessed.report(positions))
        return stiffer(found[-1])

    before = assessed.report(positions())
    assert before.angle_rmsz > 0.9 and before.bond_rmsz > 0.6
    rest = minimizer.rest_of(context, density, stiff=True)
    minimizer.bring_to_rest(context, rest, 300, stop, asked)
    after = assessed.report(positions())
    assert after.bond_rmsz <= MOST_BOND_RMSZ and after.angle_rmsz <= MOST_ANGLE_RMSZ
    assert after.angle_outlier_count == 0 and after.clash_count <= min(before.clash_count, 2)
    assert after.angle_rmsz == found[-1].angle_rmsz
    assert density.similarity(positions()) > 0.8


def test_hydrogens_of_methyl_groups_are_staggered():
    """Of alanine, valine and methionine, and none of the amino terminus."""
    model = prepare(read_model(ADK_CLOSED))
    topology = model.topology
    force, atoms = stagger_methyls(topology), list(topology.atoms())
    methyls = {"ALA": 1, "VAL": 2, "LEU": 2, "ILE": 2, "THR": 1, "MET": 1}
    residues = [residue.name for residue in topology.residues()]
    assert force.getNumTorsions() == sum(methyls.get(name, 0) for name in residues) > 60
    for index in range(force.getNumTorsions()):
        *members, periodicity, phase, _ = force.getTorsionParameters(index)
        *_, carbon, hydrogen = (atoms[member] for member in members)
        assert (
            carbon.element.symbol == "C"
            and hydrogen.element.symbol == "H"
            and (periodicity, phase._value) == (3, 0)
        )


def test_sugars_come_to_rest_in_the_pucker_that_pperp_implies(small_data):
    dna, rna = (read_model(small_data / "zoo" / name) for name in ("1bna_duplex.pdb", "4p5j_rna.pdb"))
    assert forces_of_puckers(dna.topology, dna.positions, 3) == []  # of DNA it tells nothing
    sugars = find_sugars(rna.topology)
    (force,) = forces_of_puckers(rna.topology, rna.positions, 3)
    held = np.array([force.getTorsionParameters(k)[4][0] for k in range(force.getNumTorsions())])
    told = np.where(sugars.perpendiculars(rna.positions) < 2.9, C2_ENDO, C3_ENDO)[sugars.judged()]
    assert np.allclose(held.reshape(-1, 3)[sugars.judged(), 1], AMPLITUDE * np.cos(told))
    assert len(set(told)) == 2 and force.getForceGroup() == 3
    assert force.getGlobalParameterName(0) == "puckers_at_rest"
