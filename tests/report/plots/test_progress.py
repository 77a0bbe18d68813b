"""The course of a fit, drawn."""

from __future__ import annotations

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
