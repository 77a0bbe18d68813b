"""The density of a model by sums over atoms and pairs of atoms."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density import DensityFit, DensityMap
from openmm_density.extensions.rebuilding.density_model import DensityModel
from openmm_density.extensions.rebuilding.molecule import Molecule
from openmm_density.models import Model

RESOLUTION, STRENGTH = 3.0, 60.0


@pytest.fixture(scope="module")
def density_map(native: Model) -> DensityMap:
    return DensityMap.simulate(native.topology, native.positions, RESOLUTION, 1.0, noise=0.1, seed=1)


@pytest.mark.parametrize("weights", ["number", "mass", "unity", "array", "signs", "electron", "xray"])
def test_its_similarity_is_that_of_the_fit(native: Model, density_map: DensityMap, weights: str) -> None:
    given: str | np.ndarray = weights
    if weights in ("array", "signs"):
        given = np.cos(np.arange(native.topology.getNumAtoms())) + (1.5 if weights == "array" else 0.3)
    fit = DensityFit(density_map, native.topology, RESOLUTION, weights=given, positions=native.positions)
    density = DensityModel.of_fit(fit, Molecule(native.topology), STRENGTH * fit.n_fitted_atoms)
    assert density.strength_per_atom == pytest.approx(STRENGTH)
    # The kernel's Gaussians end at 4 σ, and form factors widen them.
    allowed = 5e-2 if weights in ("electron", "xray") else 4e-3
    shaken = native.positions + np.random.default_rng(0).normal(scale=0.7, size=native.positions.shape)
    for positions in (native.positions, shaken):
        assert density.similarity(positions) == pytest.approx(fit.similarity(positions), abs=allowed)


def test_atomic_numbers_are_exact_and_hydrogens_left_out(native: Model, density_map: DensityMap) -> None:
    fit = DensityFit(density_map, native.topology, RESOLUTION, weights="number", positions=native.positions)
    molecule = Molecule(native.topology)
    expected = [a.element.atomic_number if h else 0 for a, h in zip(molecule.atoms, molecule.is_heavy)]
    assert DensityModel.of_fit(fit, molecule, 1.0).weights.tolist() == expected


def test_slopes_are_those_of_the_similarity(native: Model, density_map: DensityMap) -> None:
    fit = DensityFit(density_map, native.topology, RESOLUTION, weights="number", positions=native.positions)
    density = DensityModel.of_fit(fit, Molecule(native.topology), STRENGTH * fit.n_fitted_atoms)
    slopes, integrals = density.slopes(native.positions), density.integrals(native.positions)
    step = 1e-4 * integrals

    def energy(change: np.ndarray) -> float:
        return -density.strength * float(density.similarity_of(integrals + change))

    with_map, square = (
        (energy(step * axis) - energy(-step * axis)) / (2 * step @ axis) for axis in np.eye(2)
    )
    assert slopes.per_map == pytest.approx(-with_map, rel=1e-6)
    # Each pair is twice in the square.
    assert slopes.per_pair == pytest.approx(2 * square * density.pair_integral(np.zeros(1))[0], rel=1e-6)
