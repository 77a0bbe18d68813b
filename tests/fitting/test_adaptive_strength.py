"""The strength that follows the similarity."""

import math

import pytest

from openmm_density.fitting.adaptive_strength import AdaptiveStrength


def test_it_grows_while_the_similarity_falls_and_shrinks_while_it_rises():
    adaptive = AdaptiveStrength(time_constant=2.0)
    assert adaptive.update(0.5, 0.1) == 1.0
    assert adaptive.update(0.4, 0.1) == pytest.approx(math.exp(0.05))
    assert adaptive.update(0.4, 0.2) == pytest.approx(math.exp(0.15))
    assert adaptive.update(0.9, 0.3) == pytest.approx(1.0)


def test_it_stays_within_bounds():
    adaptive = AdaptiveStrength(time_constant=1.0, bounds=(0.5, 3.0))
    for step in range(100):
        adaptive.update(-0.01 * step, 0.5)
    assert adaptive.factor == 3.0
    for step in range(100):
        adaptive.update(0.01 * step, 0.5)
    assert adaptive.factor == 0.5


def test_the_average_follows_with_its_time_constant():
    adaptive = AdaptiveStrength(time_constant=4.0, average=0.0)
    for _ in range(40):
        adaptive.update(1.0, 0.1)
    assert adaptive.average == pytest.approx(1 - math.exp(-1))
