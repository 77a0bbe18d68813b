"""Amplitudes from intensities."""

import numpy as np
import pytest
from scipy import integrate

from openmm_density.extensions.crystals.french_wilson import amplitudes


@pytest.mark.parametrize("is_centric", [False, True])
@pytest.mark.parametrize("measured", [-30.0, 0.0, 25.0, 900.0])
def test_they_are_the_means_of_wilsons_distribution(measured, is_centric):
    sigma, n = 20.0, 400
    rng = np.random.default_rng(1)
    others = rng.exponential(100.0, n)
    values = np.append(others, measured)
    mean = values.mean()
    found, deviations = amplitudes(
        values, np.full(n + 1, sigma), np.full(n + 1, 0.1), np.full(n + 1, is_centric), np.ones(n + 1)
    )

    def density(f: float) -> float:
        prior = np.exp(-(f**2) / (2 * mean)) if is_centric else f * np.exp(-(f**2) / mean)
        return prior * np.exp(-0.5 * ((f**2 - measured) / sigma) ** 2)

    top = np.sqrt(max(measured, 0) + 12 * sigma)
    at = [np.sqrt(max(measured, 0.0))]
    # Both are shells of their own, whose means differ a little from that of all.
    total, first, second = (
        integrate.quad(lambda f, k=k: f**k * density(f), 0, top, points=at, limit=200)[0] for k in range(3)
    )
    assert found[-1] == pytest.approx(first / total, rel=0.01)
    assert deviations[-1] == pytest.approx(np.sqrt(second / total - (first / total) ** 2), rel=0.02)


def test_a_strong_intensity_is_its_square():
    found, deviations = amplitudes(
        np.full(300, 1e4), np.full(300, 10.0), np.linspace(0.01, 0.1, 300), np.zeros(300, bool), np.ones(300)
    )
    assert np.allclose(found, 100, rtol=1e-4) and np.allclose(deviations, 0.05, rtol=0.02)
