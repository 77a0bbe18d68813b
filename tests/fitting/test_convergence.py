"""When a stage has converged."""

import json
from dataclasses import asdict

import numpy as np

from openmm_density.fitting.convergence import Plateau


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


def test_it_goes_on_from_what_a_state_holds():
    whole, halves = Plateau(block=80), Plateau(block=80)
    rng = np.random.default_rng(3)
    for _ in range(11):
        similarity, positions = rng.random(), rng.random((4, 3))
        whole.update(similarity, positions, 40)
        halves.update(similarity, positions, 40)
        halves = Plateau(**json.loads(json.dumps(asdict(halves))))
        assert asdict(halves) == asdict(whole)
