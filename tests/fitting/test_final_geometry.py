"""How a final stage holds the geometry."""

from dataclasses import replace

import numpy as np
import openmm
import pytest

from openmm_density.fitting.final_geometry import ANGLE_STIFFNESS, BOND_STIFFNESS, RESTRAINT_SCALES, stiffen
from openmm_density.fitting.fit_systems import FitSystems
from openmm_density.fitting.protocols import Stage
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.restraints import IdealGeometryRestraint


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
