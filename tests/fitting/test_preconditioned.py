"""Minimisations that know what is stiff."""

from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from openmm import app

from openmm_density.fitting.preconditioned import Stiffness, minimize
from openmm_density.restraints import IdealGeometryRestraint
from openmm_density.restraints.contacts import ContactRestraint

from ..contexts import context_of

ATOMS, BOND, ANGLE = 12, 0.15, 1.9


def chain(still=()):
    """Return a Context of a zigzag chain of stiff bonds and softer angles whose first and last atom a weak spring pulls apart."""
    topology, system = app.Topology(), openmm.System()
    residue = topology.addResidue("XYZ", topology.addChain())
    atoms = [topology.addAtom(f"C{k}", app.element.carbon, residue) for k in range(ATOMS)]
    bonds, angles = openmm.HarmonicBondForce(), openmm.HarmonicAngleForce()
    for k in range(ATOMS):
        system.addParticle(0.0 if k in still else 12.0)
        if k > 0:
            topology.addBond(atoms[k - 1], atoms[k])
            bonds.addBond(k - 1, k, BOND, 3e5)
        if k > 1:
            angles.addAngle(k - 2, k - 1, k, ANGLE, 500.0)
    bonds.addBond(0, ATOMS - 1, 3.0, 50.0)
    system.addForce(bonds)
    system.addForce(angles)
    step = BOND * np.array([np.sin(ANGLE / 2), np.cos(ANGLE / 2), 0.0])
    positions = step * np.arange(ATOMS)[:, None]
    positions[:, 1] = step[1] * (np.arange(ATOMS) % 2)
    positions += np.random.default_rng(0).normal(scale=0.01, size=positions.shape)
    restraints = (each(topology, 10 * positions) for each in (IdealGeometryRestraint, ContactRestraint))
    context = context_of(system)
    context.setPositions(positions)
    return context, Stiffness(system, *restraints), positions


def found(context):
    state = context.getState(positions=True, energy=True, forces=True)
    forces = state.getForces(asNumpy=True)._value
    return (
        state.getPositions(asNumpy=True)._value,
        state.getPotentialEnergy()._value,
        np.linalg.norm(forces, axis=1).max(),
    )


def test_what_is_stiff_answers_a_force_as_the_energy_does():
    """Beside what every atom has, bonds and angles are all that there is here: forces are the stiffness times a displacement."""
    context, stiffness, _ = chain()
    minimize(context, stiffness, 500)
    at_rest = found(context)[0]
    solve = stiffness.factored(stiffness.held(at_rest), at_rest)
    one, other = np.random.default_rng(1).normal(size=(2, at_rest.size))
    assert one @ solve(other) == pytest.approx(other @ solve(one)) and one @ solve(one) > 0
    # Along a stiff bond atoms hardly move, beside it they do.
    along = np.zeros_like(at_rest)
    along[4] = (at_rest[5] - at_rest[4]) / np.linalg.norm(at_rest[5] - at_rest[4])
    beside = np.zeros_like(at_rest)
    beside[4, 2] = 1.0
    answers = [each.ravel() @ solve(each.ravel()) for each in (along, beside)]
    assert answers[0] < 0.7 * answers[1]


def test_it_comes_to_rest_and_the_energy_never_rises():
    context, stiffness, _ = chain()
    before = found(context)
    for _ in range(5):
        minimize(context, stiffness, 1)
        after = found(context)
        assert after[1] <= before[1]
        before = after
    minimize(context, stiffness, 500)
    _, energy, force = found(context)
    openmm.LocalEnergyMinimizer.minimize(context, 0.01)
    assert found(context)[1] == pytest.approx(energy, abs=0.05 * ATOMS) and force < 100


def test_atoms_without_mass_stay():
    context, stiffness, start = chain(still=(0, 7))
    minimize(context, stiffness, 50)
    after = found(context)[0]
    assert np.array_equal(after[[0, 7]], start[[0, 7]]) and not np.allclose(after[3], start[3], atol=1e-3)


def test_it_ends_when_asked_to():
    context, stiffness, start = chain()
    minimize(context, stiffness, 50, SimpleNamespace(requested=True))
    assert np.array_equal(found(context)[0], start)
