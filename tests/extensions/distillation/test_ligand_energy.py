"""A potential as what gives a ligand its energy: the best student acts, all of them watch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density.extensions.distillation import LigandEnergy
from openmm_density.extensions.distillation.accuracy import disagreement

from ...contexts import context_of, energy_of, forces_of, system_of


def test_the_best_student_acts_on_its_particles(potential):
    energy = LigandEnergy(potential)
    particles = np.array([7, 2, 5, 9, 0, 3])
    context = context_of(system_of(10, energy.create_force(particles, 10, "of_methanol")))
    positions = np.random.default_rng(1).normal(scale=0.2, size=(10, 3))
    context.setPositions(positions)
    forces = forces_of(context)
    own = energy._evaluated(positions[particles])
    # The first of the three has the least error, with the third.
    assert energy_of(context) == pytest.approx(own[0][0], rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(forces[particles], own[1][0], atol=1e-4 * np.abs(own[1][0]).max())
    assert not forces[[1, 4, 6, 8]].any()
    context.setParameter("of_methanol", 0.0)
    assert energy_of(context) == 0.0


def test_the_relaxed_molecule_has_no_energy(potential):
    energy = LigandEnergy(potential)
    rest = potential.ligand.positions
    assert energy.energy(rest) == pytest.approx(0.0, abs=1e-3)
    assert abs(energy.energy(rest + 0.1 * np.random.default_rng(2).normal(size=rest.shape))) > 1e-3
    np.testing.assert_array_equal(energy.positions, 10 * rest)


def test_students_that_disagree_are_told_from_those_that_do_not(potential):
    energy = LigandEnergy(potential)
    forces = energy._evaluated(potential.ligand.positions)[1]
    found = energy.disagreement(potential.ligand.positions)
    assert found == pytest.approx(float(disagreement(forces[:, None])[0])) and found > 0
    assert potential.accuracy.disagreement_worst < energy.bound < 10.0
    poor = replace(potential, accuracy=replace(potential.accuracy, disagreement_worst=50.0))
    assert LigandEnergy(poor).bound == 10.0


def test_charges_add_up_to_the_whole(potential):
    energy = LigandEnergy(potential)
    assert potential.charges.sum() == pytest.approx(0.0)
    assert energy.charges.sum() == pytest.approx(potential.ligand.charge)
    assert energy.elements == ("C", "O", "H", "H", "H", "H") and energy.bonds[0] == (0, 1)
