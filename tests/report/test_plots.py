"""Figures for plotly: every point knows its residue, and texts are shown as they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from openmm_density.models import read_model
from openmm_density.models.chemistry.ramachandran_tables import ALLOWED, FAVOURED, ramachandran_tables
from openmm_density.report.pucker_plot import pucker_figure, pucker_plot, pyranose_figure
from openmm_density.report.ramachandran_plot import ramachandran_figure
from openmm_density.report.residue_plots import agreement_figure, b_factor_figure
from openmm_density.report.shown_model import ShownModel, rows_by_label
from openmm_density.validation.geometry import geometry_report, ramachandran

from ..fragments import fragment


def rows(count, chain="A"):
    return [
        {
            **{"residue": f"{chain} ALA {number}", "chain": chain, "number": number, "kind": "polymer"},
            **{"correlation_initial": None, "correlation_final": 0.5, "q_score_final": 0.1 * number},
        }
        for number in range(1, count + 1)
    ]


def test_each_point_knows_its_residue_and_waters_are_left_out():
    residues = [*rows(4), {**rows(1)[0], "kind": "water"}, *rows(3, "<B>")]
    figure = agreement_figure(residues, {"initial": "before", "final": "after"}, [(1, 2), (6,)])
    # Nothing is known before.
    assert [trace["name"] for trace in figure["data"]] == ["after", "after"]
    assert all(trace["customdata"] == [0, 1, 2, 3, 5, 6, 7] for trace in figure["data"])
    # The page names them by their rows.
    assert not any("text" in trace for trace in figure["data"])
    assert figure["data"][1]["y"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3])
    bands = [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert bands == [(0.5, 2.5), (4.5, 5.5)]
    assert (
        agreement_figure([{**residues[0], "correlation_final": None, "q_score_final": None}], {}, []) is None
    )


def test_b_factors_are_drawn_where_they_differ():
    residues = rows(3)
    assert (
        b_factor_figure(residues, [20.0, 20.0, 20.0]) is None
        and b_factor_figure(residues, [None] * 3) is None
    )
    assert b_factor_figure(residues, [20.0, None, 30.0])["data"][0]["customdata"] == [0, 2]


def test_the_ramachandran_plot_has_the_residues_in_their_regions(tmp_path):
    model = fragment(tmp_path / "model.pdb")
    labels = [f"A {residue.name} {residue.id}" for residue in model.topology.residues()]
    places = rows_by_label([{"residue": label} for label in labels])
    figure = ramachandran_figure([ShownModel("after", "after", model.topology, model.positions)], places)
    expected = ramachandran(model.topology, model.positions)
    found = sorted(
        (row, phi, psi)
        for trace in figure["data"]
        for row, phi, psi in zip(trace["customdata"], trace["x"], trace["y"])
    )
    assert [row for row, _, _ in found] == expected.residues.tolist()
    assert [phi for _, phi, _ in found] == pytest.approx(np.degrees(expected.phi), abs=0.06)
    assert [psi for _, _, psi in found] == pytest.approx(np.degrees(expected.psi), abs=0.06)


def test_the_plot_of_puckers_has_the_nucleotides_and_outliers_beside_its_regions(rna, dna, tmp_path):
    labels = [f"A {residue.name} {residue.id}" for residue in rna.topology.residues()]
    places = rows_by_label([{"residue": label} for label in labels])
    (trace,) = (figure := pucker_figure([ShownModel("after", "after", rna.topology, rna.positions)], places))[
        "data"
    ]
    assert figure["plots"] == {"rna": "RNA"} and trace["customdata"] == list(range(82))
    boxes = re.findall(r"M([^,]+),([^L]+)L[^L]+L([^,]+),([^L]+)L", figure["regions"]["rna"]["allowed"])
    inside = [
        any(float(a) <= x <= float(c) and float(b) <= y <= float(d) for a, b, c, d in boxes)
        for x, y in zip(trace["x"], trace["y"])
    ]
    # A 1 is an outlier by ε alone.
    outliers = geometry_report(rna.topology, rna.positions).nucleic_acids.pucker_outliers
    assert [labels[row] for row, usual in zip(trace["customdata"], inside) if not usual] == outliers[1:]
    protein = fragment(tmp_path / "model.pdb")
    assert pucker_figure([ShownModel("after", "after", protein.topology, protein.positions)], {}) is None
    reference = ShownModel("reference", "reference", dna.topology, dna.positions)
    assert (
        pucker_figure([ShownModel("after", "after", protein.topology, protein.positions), reference], {})
        is None
    )
    assert pucker_plot([ShownModel("after", "after", dna.topology, dna.positions)], {}).figure["plots"] == {
        "dna": "DNA"
    }


def test_the_plot_of_sugars_has_their_rings_beside_the_chairs(small_data, emd5925):
    model = read_model(small_data / "zoo/3zw1_anomers.pdb")
    shown = [ShownModel("after", "after", model.topology, model.positions)]
    (trace,) = pyranose_figure(shown, {})["data"]
    found = dict(zip(trace["text"], zip(trace["x"], trace["y"])))
    assert found["E FUC 3"] == pytest.approx((110, 174), abs=1) and found["B GLA 100"][1] < 20
    assert pyranose_figure([ShownModel("after", "after", emd5925.topology, emd5925.positions)], {}) is None


def test_regions_are_those_of_the_tables(tmp_path):
    model = fragment(tmp_path / "model.pdb")
    figure = ramachandran_figure([ShownModel("after", "after", model.topology, model.positions)], {})
    tables = ramachandran_tables()
    assert "general" in figure["regions"]
    for plot, paths in figure["regions"].items():
        for name, level in (("favoured", FAVOURED), ("allowed", ALLOWED[plot])):
            corners = re.findall(r"M([^,]+),([^L]+)L[^L]+L([^,]+),([^L]+)L", paths[name])
            area = sum((float(x1) - float(x0)) * (float(y1) - float(y0)) for x0, y0, x1, y1 in corners)
            assert area == pytest.approx(4.0 * (tables[plot] >= level).sum())
