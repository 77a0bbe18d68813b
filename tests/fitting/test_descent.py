"""Descents in which no atom moves far at a time."""

import numpy as np
import openmm
import pytest

from openmm_density.fitting.descent import LONGEST_MOVE, descend

PLATFORMS = ["Reference", "CPU"]


def context_of(positions, platform, masses=None, constraint=None):
    """Argon atoms, whose forces overflow where they are in one place."""
    system = openmm.System()
    force = openmm.NonbondedForce()
    for mass in masses or [39.9] * len(positions):
        system.addParticle(mass)
        force.addParticle(0.0, 0.34, 1.0)
    if constraint is not None:
        system.addConstraint(*constraint)
    system.addForce(force)
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName(platform)
    )
    context.setPositions(positions)
    return context


def positions_of(context):
    return np.array(context.getState(positions=True).getPositions(asNumpy=True)._value)


def energy_of(context):
    return context.getState(energy=True).getPotentialEnergy()._value


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("apart", [0.01, 0.1, 0.3])
def test_atoms_part_by_no_more_than_a_tenth_of_a_bond_at_a_time(platform, apart):
    start = np.array([[0.0, 0, 0], [apart, 0, 0], [2.0, 0, 0]])
    context = context_of(start, platform)
    before, energy = start, np.inf
    for _ in range(60):
        descend(context, 1)
        after, now = positions_of(context), energy_of(context)
        assert np.linalg.norm(after - before, axis=1).max() < 1.001 * LONGEST_MOVE and now <= energy
        before, energy = after, now
    distance = after[1, 0] - after[0, 0]
    assert distance == pytest.approx(2 ** (1 / 6) * 0.34, abs=0.02) and energy < 0


@pytest.mark.parametrize("platform", PLATFORMS)
def test_atoms_without_mass_stay_and_constraints_hold(platform):
    start = np.array([[0.0, 0, 0], [0.2, 0, 0], [0.2, 0.3, 0]])
    context = context_of(start, platform, [0.0, 39.9, 39.9], constraint=(1, 2, 0.3))
    descend(context, 50)
    after = positions_of(context)
    assert np.array_equal(after[0], start[0]) and after[1, 0] > 0.3
    assert np.linalg.norm(after[1] - after[2]) == pytest.approx(0.3, abs=1e-4)


def test_it_ends_where_forces_vanish():
    context = context_of(np.array([[0.0, 0, 0], [5.0, 0, 0]]), "Reference")
    context.getSystem().getForce(0).setParticleParameters(0, 0.0, 0.34, 0.0)
    context.reinitialize(preserveState=True)
    before = positions_of(context)
    descend(context, 10)
    assert np.array_equal(positions_of(context), before)
