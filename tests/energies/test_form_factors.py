import math

import gemmi
import numpy as np
import pytest
import torch

from openmm_density.energies.form_factors import (
    SIGMA_PER_RESOLUTION,
    blurring_b_factor,
    form_factor_gaussians,
    resolution_gaussians,
)

ELEMENTS = [
    *("H", "C", "N", "O", "F", "Na", "Mg", "P", "S", "Cl", "K", "Ca", "Mn", "Fe", "Zn", "Se", "Br", "I", "U")
]
tables = pytest.mark.parametrize("table", ["electron", "xray"])


def coefficients(symbol, table):
    element = gemmi.Element(symbol)
    return element.c4322 if table == "electron" else element.it92


def gaussians(table, b=None, occupancy=None, resolution=3.0, elements=ELEMENTS):
    n = len(elements)
    b = torch.full((n,), 20.0, dtype=torch.float64) if b is None else b
    occupancy = torch.ones(n, dtype=torch.float64) if occupancy is None else occupancy
    return form_factor_gaussians(elements, table, b, occupancy, resolution)


def test_one_gaussian_has_the_weight_as_its_integral_and_the_resolution_as_its_width():
    weights = torch.tensor([1.0, 12.011, -0.5], dtype=torch.float64)
    amplitudes, exponents = resolution_gaussians(weights, 5.0)
    assert amplitudes.shape == exponents.shape == (3, 1)
    assert amplitudes.dtype == torch.float64
    sigma = SIGMA_PER_RESOLUTION * 5.0
    assert sigma == pytest.approx(1.125)
    torch.testing.assert_close(exponents, torch.full_like(exponents, 0.5 / sigma**2))
    torch.testing.assert_close((amplitudes * (math.pi / exponents) ** 1.5)[:, 0], weights)


def test_the_blurring_b_factor_widens_a_point_to_the_width_of_the_resolution():
    # exp(-B stol²) in Fourier space is a Gaussian of σ² = B / (8π²).
    for resolution in (1.0, 3.2, 12.0):
        sigma = math.sqrt(blurring_b_factor(resolution) / (8 * math.pi**2))
        assert sigma == pytest.approx(SIGMA_PER_RESOLUTION * resolution)
    assert blurring_b_factor(0.0) == 0


@tables
def test_the_fourier_transform_is_gemmis_form_factor_with_b_factor_and_blur(table):
    b = torch.linspace(0, 90, len(ELEMENTS), dtype=torch.float64)
    occupancy = torch.linspace(0.1, 1, len(ELEMENTS), dtype=torch.float64)
    resolution = 2.7
    amplitudes, exponents = gaussians(table, b, occupancy, resolution)
    assert amplitudes.shape == exponents.shape == (len(ELEMENTS), 5)
    for stol in (0.0, 0.05, 0.1, 0.2, 0.3):
        s = 2 * stol
        terms = amplitudes * (math.pi / exponents) ** 1.5 * torch.exp(-(math.pi**2) * s**2 / exponents)
        exact = [
            float(o)
            * coefficients(e, table).calculate_sf(stol**2)
            * math.exp(-(float(b_) + blurring_b_factor(resolution)) * stol**2)
            for e, b_, o in zip(ELEMENTS, b, occupancy)
        ]
        np.testing.assert_allclose(terms.sum(dim=1).numpy(), exact, rtol=2e-6)


@tables
def test_derivatives_with_respect_to_b_factors_and_occupancies(table):
    b = torch.linspace(3, 90, len(ELEMENTS), dtype=torch.float64).requires_grad_()
    occupancy = torch.linspace(0.1, 1, len(ELEMENTS), dtype=torch.float64).requires_grad_()

    def both(b, occupancy):
        return torch.cat(gaussians(table, b, occupancy), dim=1)

    assert torch.autograd.gradcheck(both, (b, occupancy), atol=1e-6, rtol=1e-5)


@tables
def test_occupancy_scales_the_density_and_nothing_else(table):
    whole, exponents = gaussians(table)
    half, same = gaussians(table, occupancy=torch.full((len(ELEMENTS),), 0.5, dtype=torch.float64))
    torch.testing.assert_close(half, 0.5 * whole)
    assert torch.equal(same, exponents)


@tables
def test_every_element_of_the_tables_and_deuterium(table):
    known = [gemmi.Element(z).name for z in range(1, 93)]
    amplitudes, exponents = gaussians(table, elements=[*known, "D"])
    assert amplitudes.isfinite().all()
    assert exponents.isfinite().all()
    torch.testing.assert_close(amplitudes[-1], amplitudes[0])
