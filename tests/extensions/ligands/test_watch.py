"""Ligands in a Context, watched: held where their potential does not know them, in the shape that it knew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.distillation import LigandEnergy
from openmm_density.fitting.ligand_watch import HELD_STEPS, LigandWatch, check_same_potentials
from openmm_density.models import prepare

from ...contexts import context_of


class Doubting(LigandEnergy):
    """A potential whose students disagree as much as the first bond is longer than 1.6 Å."""

    def disagreement(self, positions):
        return max(0.0, 1000 * (float(np.linalg.norm(positions[1] - positions[0])) - 0.16))


@pytest.fixture(scope="module")
def prepared(model, agreed):
    potential = Doubting(agreed, None, "of the file")
    return prepare(model, ligand_forcefield="xtb", ligand_potentials={"ACM": potential})


@pytest.fixture
def watched(prepared):
    """Return the watch of two ligands, a Context, and positions in nm."""
    system = prepared.system(constraints=None, rigidWater=False)
    masses = np.array([system.getParticleMass(k)._value for k in range(system.getNumParticles())])
    context = context_of(system)
    positions = prepared.positions / 10
    context.setPositions(positions)
    return LigandWatch(prepared.potentials, masses), context, positions


def stretched(watch, positions):
    """Move the first atom of the first ligand, so that its potential does not know it."""
    moved = positions.copy()
    first, second = watch.placed[0].atoms[:2]
    moved[first] += 0.05 * (moved[first] - moved[second]) / np.linalg.norm(moved[first] - moved[second])
    return moved


def pull(watch, context):
    """Return the force with which a stretched bond of the first ligand is pulled back, in kJ/mol/nm."""
    found = context.getState(positions=True, forces=True)
    positions, forces = (
        np.asarray(each._value) for each in (found.getPositions(asNumpy=True), found.getForces(asNumpy=True))
    )
    first, second = watch.placed[0].atoms[:2]
    direction = (positions[second] - positions[first]) / np.linalg.norm(positions[second] - positions[first])
    return float(forces[first] @ direction)


def test_a_ligand_that_is_not_known_is_held_as_it_was(watched):
    watch, context, positions = watched
    states = watch.looked_at(context, watch.begun(positions), 0)
    assert [(state["unknown"], state["held_until"]) for state in states] == [(0, -1), (0, -1)]
    context.setPositions(stretched(watch, positions))
    assert abs(pull(watch, context)) < 100
    states = watch.looked_at(context, states, 200)
    first, second = states
    assert (first["unknown"], first["held_times"], first["first_unknown"]) == (1, 1, 200)
    assert first["held_until"] == 200 + HELD_STEPS and second["held_until"] == -1
    np.testing.assert_allclose(first["known"], positions[watch.placed[0].atoms])
    assert pull(watch, context) > 1000
    strengths = [context.getParameter(placed.parameter_name) for placed in watch.placed]
    assert strengths == [0.0, 1.0]


def test_a_held_ligand_is_released_once_it_is_known_and_was_held_long_enough(watched):
    watch, context, positions = watched
    context.setPositions(stretched(watch, positions))
    states = watch.looked_at(context, watch.begun(positions), 200)
    context.setPositions(positions)
    states = watch.looked_at(context, states, 400)
    assert states[0]["held_until"] == 200 + HELD_STEPS
    states = watch.looked_at(context, states, 200 + HELD_STEPS)
    assert states[0]["held_until"] == -1 and states[0]["held_times"] == 1
    assert context.getParameter(watch.placed[0].parameter_name) == 1.0
    context.setPositions(stretched(watch, positions))
    assert abs(pull(watch, context)) < 100


def test_a_start_that_is_not_known_has_bonds_and_angles_held(watched):
    """As there is no shape to hold it in, those of the relaxed molecule; it is released at the next look if it is known then."""
    watch, context, positions = watched
    moved = stretched(watch, positions)
    states = watch.begun(moved)
    assert states[0]["known"] == [] and states[0]["held_until"] == 0 and states[1]["held_until"] == -1
    watch.apply(context, states)
    context.setPositions(moved)
    assert pull(watch, context) > 1000
    context.setPositions(positions)
    states = watch.looked_at(context, states, 0)
    assert states[0]["held_until"] == -1 and states[0]["held_times"] == 0 and states[0]["known"]


def test_the_last_look_holds_nothing(watched):
    watch, context, positions = watched
    context.setPositions(stretched(watch, positions))
    states = watch.looked_at(context, watch.begun(positions), 500, holds=False)
    assert states[0]["unknown"] == 1 and states[0]["held_times"] == 0 and states[0]["held_until"] == -1


def test_models_without_such_ligands_are_not_looked_at():
    watch = LigandWatch([], np.zeros(0))
    assert watch.begun(np.zeros((0, 3))) == [] and watch.looked_at(None, [], 0) == []


def test_a_fit_does_not_go_on_with_another_potential(watched, tmp_path):
    watch, _, positions = watched
    states = watch.begun(positions)
    check_same_potentials(states, watch.placed, tmp_path)
    others = [replace(each, potential=replace(each.potential, sha256="other")) for each in watch.placed]
    with pytest.raises(InputError, match="another potential of A ACM 501"):
        check_same_potentials(states, others, tmp_path)
    with pytest.raises(InputError, match="2 ligands that have a potential, not 1"):
        check_same_potentials(states, watch.placed[:1], tmp_path)
