"""Residues to draw, and figures caught before they are written."""

from __future__ import annotations

import pytest

from openmm_density import DensityMap
from openmm_density.models import read_model
from openmm_density.report.plots import overview, progress
from openmm_density.report.plots import residues as residues_plot
from openmm_density.validation.model_report import map_report, residue_changes


@pytest.fixture(scope="module")
def kinesin(small_data):
    folder = small_data / "emd6187_kinesin"
    return read_model(folder / "1bg2_K_fitted.pdb"), DensityMap.from_file(folder / "chain_K_box.ccp4")


@pytest.fixture(scope="module")
def residues(kinesin):
    model, density_map = kinesin
    before = map_report(model.topology, model.positions, density_map, 5.0)
    after = map_report(model.topology, model.positions + 0.5, density_map, 5.0)
    return residue_changes(before, after, before["residues"])


@pytest.fixture
def drawn(monkeypatch):
    """Return the figures that are drawn, which are not written then."""
    figures = []
    for module in (overview, progress, residues_plot):
        monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    return figures
