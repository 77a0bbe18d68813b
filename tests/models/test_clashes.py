"""Atoms in one place are parted, and nothing else is touched."""

import numpy as np
import openmm
import pytest

from openmm_density.models import prepare
from openmm_density.models.clashes import TOO_CLOSE, clashing_pairs, parted

from ..fragments import fragment


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=12))


PLATFORM = openmm.Platform.getPlatformByName("Reference")


def test_a_model_without_clashes_is_left_alone(prepared):
    system, positions = prepared.system(constraints=None), prepared.positions / 10
    assert len(clashing_pairs(system, positions)) == 0
    assert parted(system, positions, PLATFORM, {}) is positions


def test_atoms_in_one_place_part(prepared):
    system, positions = prepared.system(constraints=None), prepared.positions / 10
    carbons = [atom.index for atom in prepared.topology.atoms() if atom.name == "CB"]
    spoilt = positions.copy()
    spoilt[carbons[5]] = spoilt[carbons[1]]
    spoilt[carbons[6]] = spoilt[carbons[2]] + 1e-6
    pairs = {tuple(sorted(pair)) for pair in clashing_pairs(system, spoilt).tolist()}
    assert {(carbons[1], carbons[5]), (carbons[2], carbons[6])} <= pairs
    before = spoilt.copy()
    free = parted(system, spoilt, PLATFORM, {})
    assert np.array_equal(spoilt, before)
    assert len(clashing_pairs(system, free)) == 0
    assert np.linalg.norm(free[carbons[5]] - free[carbons[1]]) > TOO_CLOSE
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), PLATFORM)
    context.setPositions(free)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=50)
    assert np.isfinite(context.getState(energy=True).getPotentialEnergy()._value)
