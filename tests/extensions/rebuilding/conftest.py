"""A fragment of as many residues as a module's RESIDUES, its simulated map, and the searches of its fit; or a deposited model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding
from openmm_density.extensions.rebuilding.side_chain_evidence import SideChainEvidence
from openmm_density.models import Model, read_model
from openmm_density.models.preparation import prepare

from ...fragments import fragment
from .searched import rebuilding_of, simulated


@pytest.fixture(scope="module")
def native(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, small_data: Path
) -> Model:
    residues = getattr(request.module, "RESIDUES", None)
    if residues is None:
        return read_model(small_data / "emd5925_frag/5925_native.pdb")
    return fragment(tmp_path_factory.mktemp("native") / "model.pdb", residues=residues)


@pytest.fixture(scope="module")
def evidence(native: Model, map5925: DensityMap) -> SideChainEvidence:
    return SideChainEvidence(native.topology, map5925, 3.64)


@pytest.fixture(scope="module")
def density_map(native: Model) -> DensityMap:
    return simulated(native)


@pytest.fixture(scope="module")
def rebuilding(native: Model, density_map: DensityMap) -> Rebuilding:
    return rebuilding_of(native, density_map)


@pytest.fixture(scope="module")
def positions(native: Model) -> np.ndarray:
    return prepare(native).positions
