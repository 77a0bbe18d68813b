"""Gradients of what is minimised, through scale, solvent contrast, filter and kernels, by finite differences."""

import numpy as np
import pytest

from openmm_density.energies.atomic_parameters.levels import b_level
from openmm_density.energies.atomic_parameters.model_atoms import ModelAtoms, prepared_refinement
from openmm_density.energies.atomic_parameters.refinement import OccupancyGroups
from openmm_density.maps.model_density import ModelDensity


@pytest.fixture(scope="module")
def atoms(known):
    return ModelAtoms.of(known.model, None, None)


@pytest.mark.parametrize("solvent", [False, True])
@pytest.mark.parametrize("name", ["atom", "residue"])
def test_gradients_are_those_of_the_cost(known, atoms, solvent, name):
    masked = atoms.masked(known.map(4.0), 4.0)
    level = b_level(name, atoms.topology, atoms.positions, atoms.scattering)
    groups = OccupancyGroups([np.arange(40, 60), np.arange(80, 90), np.arange(90, 95)], [np.array([1, 2])])
    refinement = prepared_refinement(atoms, masked, level, (1.0, 500.0), "electron", solvent, groups=groups)
    random = np.random.default_rng(0)
    n = level.n_groups
    mean = np.log(60 + refinement.shift)
    x = np.concatenate([mean + 0.3 * random.standard_normal(n), [0.7, 0.5, 0.4]])
    _, gradient = refinement._cost(x, mean)
    for direction in (random.standard_normal(len(x)), np.eye(len(x))[n], np.eye(len(x))[n + 1]):
        step = 3e-3 * direction / np.linalg.norm(direction)
        ahead, behind = (refinement._cost(x + sign * step, mean)[0] for sign in (1, -1))
        assert (ahead - behind) / 2 == pytest.approx(gradient @ step, rel=5e-3, abs=2e-4)


def test_density_is_that_of_the_reported_model(known, atoms):
    """After the low-pass filter, gemmi's density of the same atoms, which the map was simulated with, is the kernels'."""
    masked = atoms.masked(known.map(4.0, margin=20.0), 4.0)
    level = b_level("atom", atoms.topology, atoms.positions, atoms.scattering)
    refinement = prepared_refinement(atoms, masked, level, (1.0, 500.0), "electron", False)
    agreement = refinement.compare(known.b_factors[atoms.scattering], atoms.occupancies[atoms.scattering])
    assert agreement.cc > 0.9995
    assert agreement.scale == pytest.approx(1, abs=0.01)
    assert ModelDensity(atoms.topology, 4.0).n_atoms == len(known.b_factors)


def test_alternatives_have_the_sum_1():
    groups = OccupancyGroups([np.array([0]), np.array([1]), np.array([2])], [np.array([0, 2])])
    values = groups.values(np.array([0.6, 0.9, 0.2]))
    np.testing.assert_allclose(values, [0.75, 0.9, 0.25])
    gradient, step = np.array([1.0, 2.0, 3.0]), 1e-6
    by_variables = groups.by_variables(np.array([0.6, 0.9, 0.2]), gradient)
    for k in range(3):
        moved = np.array([0.6, 0.9, 0.2])
        moved[k] += step
        assert (groups.values(moved) - values) @ gradient / step == pytest.approx(by_variables[k], rel=1e-4)
