"""σA and figures of merit of amplitudes whose σA is known."""

import numpy as np
import pytest

from openmm_density.extensions.crystals.sigma_a import estimate_sigma_a, figure_of_merit


def pairs(sigma_a, n, seed=0, centric=False):
    rng = np.random.default_rng(seed)

    def normal():
        return rng.normal(size=n) if centric else (rng.normal(size=n) + 1j * rng.normal(size=n)) / np.sqrt(2)

    model = normal()
    return sigma_a * model + np.sqrt(1 - sigma_a**2) * normal(), model


@pytest.mark.parametrize("centric", [False, True])
@pytest.mark.parametrize("true", [0.4, 0.8, 0.97])
def test_a_known_one_is_found(true, centric):
    data, model = pairs(true, 4000, centric=centric)
    s2, flags = np.linspace(0.01, 0.2, 4000), np.full(4000, centric)
    found = estimate_sigma_a(np.abs(data), np.abs(model), s2, flags, s2)
    assert np.abs(found.mean() - true) < 0.04 * (2 if true < 0.5 else 1)
    merit = figure_of_merit(np.abs(data), np.abs(model), np.full(4000, true), flags)
    assert merit.mean() == pytest.approx(np.cos(np.angle(data / model)).mean(), abs=0.03)


def test_one_that_falls_with_the_resolution_is_followed():
    s2 = np.linspace(0.01, 0.25, 3000)
    true = np.sqrt(0.95) * np.exp(-4 * s2)
    data, model = pairs(true, 3000, seed=2)
    found = estimate_sigma_a(np.abs(data), np.abs(model), s2, np.zeros(3000, bool), s2)
    assert np.abs(found - true).mean() < 0.07


def test_few_reflections_make_one_value():
    data, model = pairs(0.9, 50, seed=3)
    s2 = np.linspace(0.01, 0.1, 50)
    found = estimate_sigma_a(np.abs(data), np.abs(model), s2, np.zeros(50, bool), s2)
    assert np.ptp(found) == 0 and 0.7 < found[0] < 0.99
