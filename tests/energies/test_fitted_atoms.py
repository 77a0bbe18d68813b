import math

import numpy as np
import pytest
import torch

from openmm_density import InputError
from openmm_density.energies.fitted_atoms import AtomGaussians, FittedAtoms, check_weights
from openmm_density.energies.measures import MEASURES, measure_named
from openmm_density.models import read_model

from ..small_models import ADK_OPEN


@pytest.fixture(scope="module")
def topology():
    return read_model(ADK_OPEN).topology


def test_the_integral_of_an_atom_is_its_weight_at_every_resolution(topology):
    atoms = FittedAtoms(topology, "name CA", "number")
    for resolution in (3.0, 8.0):
        gaussians = atoms.gaussians(resolution)
        np.testing.assert_allclose(gaussians.integrals, np.full(len(atoms.indices), 6.0), rtol=1e-12)
        assert gaussians.largest_variance == pytest.approx((0.225 * resolution) ** 2)


def test_the_widest_atom_is_that_of_the_largest_b_factor(topology):
    b = np.linspace(10, 90, topology.getNumAtoms())
    narrow, wide = (
        FittedAtoms(topology, atoms, "xray", b_factors=b).gaussians(5.0).largest_variance
        for atoms in (range(10), "heavy")
    )
    assert wide > narrow + 70 / (8 * math.pi**2)


def test_what_the_measures_need_of_the_weights():
    def gaussians(*weights):
        return AtomGaussians(
            torch.tensor(weights, dtype=torch.float64)[:, None], torch.ones(len(weights), 1).double()
        )

    for measure in MEASURES:
        with pytest.raises(InputError, match="all fitted atoms are 0"):
            check_weights(gaussians(0.0, 0.0), measure)
        if measure.divides_by_weight:
            with pytest.raises(InputError, match="positive sum"):
                check_weights(gaussians(1.0, -1.0), measure)
        else:
            check_weights(gaussians(1.0, -1.0), measure)
    with pytest.raises(InputError, match="logarithm"):
        check_weights(gaussians(2.0, -1.0), measure_named("relative-entropy"))
