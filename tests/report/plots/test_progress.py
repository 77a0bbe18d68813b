"""The course of a fit, drawn."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg

from openmm_density.fitting.fit_result import Row
from openmm_density.report.plots import plot_progress


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
