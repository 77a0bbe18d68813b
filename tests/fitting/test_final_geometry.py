"""How a final stage holds the geometry."""

import openmm
import pytest

from openmm_density.fitting.final_geometry import ANGLE_STIFFNESS, BOND_STIFFNESS, RESTRAINT_SCALES
from openmm_density.fitting.fit_systems import FitSystems
from openmm_density.fitting.protocols import Stage
from openmm_density.models.chemistry.elements import is_hydrogen


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
