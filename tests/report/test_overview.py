"""The backbone over the map, drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from openmm_density import DensityMap
from openmm_density.models import read_model
from openmm_density.report import overview
from openmm_density.report.overview import View, plot_overview


@pytest.fixture(scope="module")
def kinesin(small_data):
    folder = small_data / "emd6187_kinesin"
    return read_model(folder / "1bg2_K_fitted.pdb"), DensityMap.from_file(folder / "chain_K_box.ccp4")


@pytest.fixture
def drawn(monkeypatch):
    """Return the figures that are drawn, which are not written then."""
    figures = []
    monkeypatch.setattr(overview.Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


def test_the_overview_has_the_reference_on_top_and_marks_what_is_apart(drawn, kinesin, tmp_path):
    model, density_map = kinesin
    trace = model.positions[
        [a.index for a in model.topology.atoms() if a.name == "CA" and a.residue.name != "CA"]
    ]
    marks = [("A 2", trace[0] + 1.0), ("A 90", trace[90]), ("A 1", trace[0])]
    views = [
        View(title, [trace + shift], marks) for title, shift in (("before: CC 0.1", 2.0), ("after", 0.0))
    ]
    plot_overview(tmp_path / "overview.png", density_map, *views, reference=[trace])
    for panel, view in zip(drawn[0].axes, views):
        assert panel.get_title() == view.title
        assert {text.get_text() for text in panel.texts} == {"A 1–2", "A 90"}
        rings = {tuple(np.ravel(line.get_data())) for line in panel.lines if len(line.get_xdata()) == 1}
        assert len(rings) == len(marks)
        model_line, reference_line = [line for line in panel.lines if len(line.get_xdata()) > 2]
        assert reference_line.get_linewidth() < model_line.get_linewidth()
        assert reference_line.get_color() != model_line.get_color()
    away = View("after", [trace + 1000.0], [])
    plot_overview(tmp_path / "overview.png", density_map, away, away)
    assert len(drawn) == 2


def test_of_a_crystal_only_what_is_near_the_models_is_shown(drawn, kinesin, tmp_path, monkeypatch):
    model, density_map = kinesin
    whole_cell = replace(density_map, periodic=True)
    shown = []
    monkeypatch.setattr(Axes, "contourf", lambda panel, x, y, projection, **_: shown.append(projection))
    views = [View("", [model.positions[:40]], [], model.positions[:40])] * 2
    for each in (density_map, whole_cell):
        plot_overview(tmp_path / "overview.png", each, *views)
    near = density_map.crop(model.positions[:40], overview.MARGIN)
    mask = near.mask_around(model.positions[:40], overview.MARGIN)
    along = int(np.argmin(near.size * near.voxel_size))
    away = ~mask.any(axis=2 - along)
    finite, crystal = shown[0], shown[2]
    assert crystal[away].std() < 1e-3 * crystal.std() and finite[away].std() > 0.1 * finite.std()
    assert 0.1 < mask.mean() < 0.9
