"""What the pictures of a fit show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba

from openmm_density import DensityMap
from openmm_density.fitting.fit_result import Row
from openmm_density.fitting.output import plots
from openmm_density.fitting.output.plots import View, plot_overview, plot_progress, plot_residues
from openmm_density.models import read_model
from openmm_density.validation.model_report import map_report, residue_changes
from openmm_density.validation.stretches import Stretch, doubtful_stretches


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
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    return figures


def curves(panel):
    return [line for line in panel.lines if len(line.get_xdata()) > 2]


def test_residues_stand_at_their_numbers(drawn, residues, tmp_path):
    stretches = doubtful_stretches(residues)
    plot_residues(tmp_path / "residues.png", residues, stretches)
    correlation, q_score, ligands = drawn[0].axes
    assert [panel.get_ylabel() for panel in drawn[0].axes] == ["correlation", "Q-score", "correlation"]
    assert "chain A" in correlation.get_title(loc="left")
    labels = dict(zip((label.get_text() for label in q_score.get_xticklabels()), q_score.get_xticks()))
    assert {"20", "60", "100"} <= labels.keys()
    by_number = {row["number"]: row for row in residues if row["kind"] == "polymer"}
    before, reference, after = curves(q_score)
    for number in ("20", "60", "100"):
        for line, stage in ((before, "initial"), (reference, "reference"), (after, "final")):
            x, y = line.get_data()
            assert y[x == labels[number]] == by_number[int(number)][f"q_score_{stage}"]
    names = {text.get_text() for text in correlation.texts}
    assert names == {f"{each.first}–{each.last}" for each in stretches if each.first != each.last} | {
        each.first for each in stretches if each.first == each.last
    }
    assert [label.get_text() for label in ligands.get_xticklabels()] == [
        row["residue"] for row in residues if row["kind"] == "other"
    ]


def test_lines_break_at_gaps_and_insertions_stand_beside_each_other(drawn, residues, tmp_path):
    chain = [dict(row) for row in residues if row["kind"] == "polymer"][:40]
    del chain[10:14]
    for row in chain[20:]:
        row["number"] += 500
    chain[5].update(number=chain[4]["number"], insertion_code="A")
    plot_residues(tmp_path / "residues.png", chain)
    x = curves(drawn[0].axes[0])[-1].get_xdata()
    known = x[np.isfinite(x)]
    assert np.isnan(x).sum() == 2 + (np.diff([row["number"] for row in chain][:10]) > 1).sum()
    assert (np.diff(known) >= 1).all() and np.diff(known).max() == plots.WIDEST_GAP


def test_a_residue_by_itself_is_a_dot_and_a_ligand_of_the_reference_is_on_top(drawn, residues, tmp_path):
    chain = [dict(row) for row in residues if row["kind"] == "polymer"][:20]
    chain[0]["number"] = -3
    plot_residues(tmp_path / "residues.png", [*chain, *(row for row in residues if row["kind"] == "other")])
    correlation, _, ligands = drawn[0].axes
    dots = [line for line in correlation.lines if line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in dots] == [[-3.0]] * 3
    assert dots[-1].get_ydata() == chain[0]["correlation_final"]
    before, after, reference = (line.get_markersize() for line in ligands.lines)
    assert before > after > reference


def test_what_was_rebuilt_has_a_bar_above_it(drawn, residues, tmp_path):
    marked = [dict(row, rebuilt=row["number"] in (50, 51, 52)) for row in residues]
    for rows, expected in ((marked, [50, 51, 52]), (residues, [])):
        plot_residues(tmp_path / "residues.png", rows)
        figure = drawn[-1]
        bars = [each for each in figure.axes[0].patches if each.get_facecolor() == to_rgba(plots.REBUILT)]
        ticks = dict(
            zip((t.get_text() for t in figure.axes[1].get_xticklabels()), figure.axes[1].get_xticks())
        )
        centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        assert [round(ticks["60"] - centre) for centre in centres] == [60 - number for number in expected]
        (legend,) = figure.legends
        labels = [text.get_text() for text in legend.get_texts()]
        assert ("shifted or built anew" in labels) == bool(expected)


def test_many_chains_are_strips_and_none_is_left_out(drawn, residues, tmp_path):
    chain = [row for row in residues if row["kind"] == "polymer"][:50]
    names = [f"{letter}{number}" for letter in "AB" for number in range(31)]
    plot_residues(tmp_path / "residues.png", [dict(row, chain=name) for name in names for row in chain])
    panels = [panel for panel in drawn[0].axes if panel.images]
    assert len(panels) == 2
    assert [label.get_text() for label in panels[0].get_yticklabels()] == names
    image = panels[1].images[0].get_array().filled(np.nan)
    first = chain[0]["number"]
    for offset, stage in enumerate(("initial", "final", "reference")):
        assert image[4 * 3 + offset, chain[7]["number"] - first] == chain[7][f"q_score_{stage}"]
    assert np.isnan(image[3::4]).all()


def test_strips_are_marked_too(drawn, residues, tmp_path):
    chain = [row for row in residues if row["kind"] == "polymer"][:50]
    rows = [dict(row, chain=name, rebuilt=False) for name in "ABCDEFGH" for row in chain]
    rows[2 * 50 + 7]["rebuilt"] = True
    stretch = Stretch("D", "", "", tuple(range(3 * 50 + 10, 3 * 50 + 15)), "correlation", True, 0.2, 0.5)
    plot_residues(tmp_path / "residues.png", rows, [stretch])
    plot_residues(tmp_path / "residues.png", [dict(row, rebuilt=False) for row in rows])
    assert not drawn[1].legends
    for color, places, strip in ((plots.REBUILT, [7], 2), (plots.DOUBTFUL, [10, 11, 12, 13, 14], 3)):
        for panel in (panel for panel in drawn[0].axes if panel.images):
            (bars,) = (
                bars
                for bars in panel.collections
                if len(bars.get_paths()) and (bars.get_facecolor() == to_rgba(color)).all()
            )
            centres = [path.vertices[:4].mean(axis=0) for path in bars.get_paths()]
            assert [x for x, _ in centres] == [chain[place]["number"] for place in places]
            ticks = panel.get_yticks()
            assert all(abs(y - ticks[strip]) < abs(y - ticks[other]) for _, y in centres for other in (1, 4))
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == ["doubtful", "shifted or built anew"]


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
        model_line, reference_line = curves(panel)
        assert reference_line.get_linewidth() < model_line.get_linewidth()
        assert reference_line.get_color() != model_line.get_color()
    away = View("after", [trace + 1000.0], [])
    plot_overview(tmp_path / "overview.png", density_map, away, away)
    assert len(drawn) == 2


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["A 19", "A 17", "B 4", "A 18", "A 22"], "A 17–19, 22, B 4"),
        (["-3", "5", "-2"], "-3–-2, 5"),
        (["A 52A", "A 52"], "A 52–52A"),
        (["AA 7"], "AA 7"),
    ],
)
def test_names_beside_one_another_are_joined(labels, expected):
    assert plots._joined(labels) == expected


def test_of_a_crystal_only_what_is_near_the_models_is_shown(drawn, kinesin, tmp_path, monkeypatch):
    model, density_map = kinesin
    whole_cell = replace(density_map, periodic=True)
    shown = []
    monkeypatch.setattr(Axes, "contourf", lambda panel, x, y, projection, **_: shown.append(projection))
    views = [View("", [model.positions[:40]], [], model.positions[:40])] * 2
    for each in (density_map, whole_cell):
        plot_overview(tmp_path / "overview.png", each, *views)
    near = density_map.crop(model.positions[:40], plots.MARGIN)
    mask = near.mask_around(model.positions[:40], plots.MARGIN)
    along = int(np.argmin(near.size * near.voxel_size))
    away = ~mask.any(axis=2 - along)
    finite, crystal = shown[0], shown[2]
    assert crystal[away].std() < 1e-3 * crystal.std() and finite[away].std() > 0.1 * finite.std()
    assert 0.1 < mask.mean() < 0.9


def test_progress_names_the_stages(drawn, tmp_path):
    rows = [
        Row(step, stage, 1e4, -1e3, strength, 0.5, 0.4 + step / 1000, temperature, 0.01, 3.0)
        for step, stage, strength, temperature in (
            (0, "minimize", 0.0, 0.0),
            (100, "warm up", 0.0, 290.0),
            (200, "draw", 10.0, 300.0),
            (300, "draw", 20.0, 300.0),
            (300, "minimize", 20.0, 0.0),
        )
    ]
    stages = [
        {"name": "warm up", "steps": 100},
        {"name": "never", "steps": 0},
        {"name": "draw", "steps": 200},
    ]
    plot_progress(tmp_path / "progress.png", rows, stages, 4.0, 0.65, 0.8, "backbone (P) RMSD")
    panels = drawn[0].axes
    assert [text.get_text() for text in panels[0].texts] == ["warm up", "draw"]
    assert [text.xy[0] for text in panels[0].texts] == [50.0, 200.0]
    labels = " ".join(panel.get_ylabel() for panel in panels)
    levels = {line.get_label(): line.get_ydata()[0] for line in panels[0].lines}
    assert (levels["CC before"], levels["CC of the reference"]) == (0.65, 0.8)
    for word in ("correlation", "backbone (P) RMSD", "strength", "temperature", "planarity", "energy"):
        assert word in labels
    drive = next(panel for panel in panels if "strength" in panel.get_ylabel())
    assert drive.lines[0].get_ydata().tolist() == [0.0, 0.0, 10.0, 20.0, 20.0]
    assert panels[-2].get_xlabel() == "step of 4 fs" or panels[-1].get_xlabel() == "step of 4 fs"


def test_few_rows_are_dots_and_legends_are_beside(drawn, tmp_path):
    def rows(every):
        steps = [(0, "minimize"), *((step, "hold") for step in range(every, 3001, every)), (3000, "minimize")]
        return [Row(step, name, 1e4, -1e3, 10.0, 0.5, 0.4, 300.0, 0.01, 3.0) for step, name in steps]

    stages = [{"name": "hold", "steps": 3000}]
    for every, marked in ((1000, [[0, 1000, 2000, 3000]] * 2), (5000, [[0]] * 2), (20, [])):
        plot_progress(tmp_path / "progress.png", rows(every), stages, 4.0, 0.65, 0.8)
        figure = drawn[-1]
        dots = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
        assert [line.get_xdata().tolist() for line in dots] == marked  # CC and similarity
        FigureCanvasAgg(figure).draw()
        legends = [panel.get_legend() for panel in figure.axes if panel.get_legend() is not None]
        assert len(legends) == 2
        for legend in legends:
            assert legend.get_window_extent().x0 > legend.axes.get_window_extent().x1
            assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_ligands_alone_and_nothing_but_water_are_drawn_too(drawn, residues, tmp_path):
    some = residues[:40]
    plot_residues(tmp_path / "residues.png", [dict(row, kind="other") for row in some])
    plot_residues(tmp_path / "residues.png", [dict(row, kind="water") for row in some])
    assert [len(figure.axes) for figure in drawn] == [1, 1]
    assert "the poorest 30 of 40" in drawn[0].axes[0].get_title(loc="left")
