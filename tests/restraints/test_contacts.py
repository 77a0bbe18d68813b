"""The repulsion of atoms in contact, and the pairs that clash."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.models import Model
from openmm_density.models.chemistry.contacts import ContactAtoms
from openmm_density.restraints.contacts import ContactRestraint

from .single_forces import assert_forces_are_the_gradient, context_with, energy_at


@pytest.fixture(scope="module")
def pressed(emd5925: Model) -> np.ndarray:
    """Return the positions of a model that is a tenth too small."""
    centre = emd5925.positions.mean(axis=0)
    return centre + 0.9 * (emd5925.positions - centre)


def test_forces_are_the_gradient(emd5925: Model, pressed: np.ndarray) -> None:
    assert_forces_are_the_gradient(ContactRestraint(emd5925.topology, pressed).create_force(), pressed)


def test_a_minimisation_with_it_ends_without_clashes(emd5925: Model, pressed: np.ndarray) -> None:
    restraint = ContactRestraint(emd5925.topology, pressed)
    assert len(restraint.violations(pressed)) > 20
    context = context_with(restraint.create_force(), len(pressed))
    assert energy_at(context, pressed) > 50
    openmm.LocalEnergyMinimizer.minimize(context, 0.1)
    parted = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    assert restraint.violations(parted) == [] and len(ContactAtoms(emd5925.topology).near(parted)[0]) == 0
    assert np.abs(parted - pressed).max() < 2.5


def test_a_force_constant_of_zero_disables_it(emd5925: Model, pressed: np.ndarray) -> None:
    restraint = ContactRestraint(emd5925.topology, pressed, force_group=4, parameter_name="apart")
    force = restraint.create_force()
    assert (force.getForceGroup(), force.getName()) == (4, "ContactRestraint")
    context = context_with(force, len(pressed))
    context.setParameter("apart", 0.0)
    assert energy_at(context, pressed) == 0


def test_what_never_occurs_together_is_not_parted(emd5925: Model, pressed: np.ndarray) -> None:
    every = ContactRestraint(emd5925.topology, pressed)
    some = ContactRestraint(emd5925.topology, pressed, apart=every.pairs[::2])
    np.testing.assert_array_equal(some.pairs, every.pairs[1::2])
    np.testing.assert_array_equal(some.lengths, every.lengths[1::2])


def test_nothing_to_part() -> None:
    topology = app.Topology()
    residue = topology.addResidue("HOH", topology.addChain())
    topology.addAtom("O", app.element.oxygen, residue)
    pairs, clash = ContactAtoms(topology).near(np.zeros((1, 3)), 3.0)
    assert pairs.shape == (0, 2) and clash.shape == (0,)
    restraint = ContactRestraint(topology, np.zeros((1, 3)))
    assert restraint.n_terms == 0 and restraint.violations(np.zeros((1, 3))) == []
