"""When a stage has converged."""

import copy
import json

import numpy as np

from openmm_density.fitting.convergence import Plateau
from openmm_density.fitting.run_state import RunState


def steps_until(plateau, similarity, drift, steps=40, most=20000):
    noise = np.random.default_rng(1)
    for step in range(steps, most, steps):
        positions = noise.normal(0, 0.2, (50, 3)) + drift(step)
        if plateau.update(similarity(step) + noise.normal(0, 1e-3), positions, steps):
            return step
    return None


def test_noise_about_a_mean_has_converged_after_three_blocks():
    assert steps_until(Plateau(block=400), lambda _: 0.8, lambda _: 0.0) == 1200


def test_a_rising_similarity_or_a_moving_model_has_not():
    assert steps_until(Plateau(block=400), lambda step: 0.5 + step * 1e-5, lambda _: 0.0) is None
    assert steps_until(Plateau(block=400), lambda _: 0.8, lambda step: step * 1e-3) is None


def plain(plateau):
    return json.dumps(vars(plateau), default=np.ndarray.tolist)


def test_samples_after_a_state_was_kept_do_not_change_it():
    """What a fit rolls back to."""
    rng = np.random.default_rng(3)
    state = RunState(*[np.zeros((4, 3))] * 3, plateau=Plateau(block=80))
    for _ in range(11):
        going_on = state.next_segment()
        kept = copy.deepcopy(state.plateau)
        going_on.plateau.update(rng.random(), rng.random((4, 3)), 40)
        assert plain(state.plateau) == plain(kept) != plain(going_on.plateau)
        state = going_on
