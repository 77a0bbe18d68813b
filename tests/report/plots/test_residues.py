"""Correlation and Q-score of each residue, drawn."""

from __future__ import annotations

import numpy as np

from openmm_density.report.plots import plot_residues
from openmm_density.report.plots.residues import WIDEST_GAP
from openmm_density.validation.stretches import doubtful_stretches

from .curves import curves


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
    assert (np.diff(known) >= 1).all() and np.diff(known).max() == WIDEST_GAP


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


def test_ligands_alone_and_nothing_but_water_are_drawn_too(drawn, residues, tmp_path):
    some = residues[:40]
    plot_residues(tmp_path / "residues.png", [dict(row, kind="other") for row in some])
    plot_residues(tmp_path / "residues.png", [dict(row, kind="water") for row in some])
    assert [len(figure.axes) for figure in drawn] == [1, 1]
    assert "the poorest 30 of 40" in drawn[0].axes[0].get_title(loc="left")
