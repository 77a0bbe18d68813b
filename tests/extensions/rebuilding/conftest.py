"""A fragment of as many residues as a module's RESIDUES, its simulated map, and the searches of its fit."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding
from openmm_density.models import Model
from openmm_density.models.preparation import prepare

from ...fragments import fragment
from .searched import rebuilding_of, simulated


@pytest.fixture(scope="module")
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return fragment(tmp_path_factory.mktemp("native") / "model.pdb", residues=request.module.RESIDUES)


@pytest.fixture(scope="module")
def density_map(native: Model) -> DensityMap:
    return simulated(native)


@pytest.fixture(scope="module")
def rebuilding(native: Model, density_map: DensityMap) -> Rebuilding:
    return rebuilding_of(native, density_map)


@pytest.fixture(scope="module")
def positions(native: Model) -> np.ndarray:
    return prepare(native).positions
