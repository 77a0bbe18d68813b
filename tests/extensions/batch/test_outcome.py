"""The tables, the page and the consensus of a batch of real fits, and what its page does in a browser."""

import csv
import json
from dataclasses import replace

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.batch import Batch, jobs_of
from openmm_density.extensions.batch.job_results import JobResult
from openmm_density.maps import DensityMap

from ...report.browser import Opened, started
from .conftest import OPTIONS


@pytest.fixture(scope="module")
def batch(fragment, fits):
    """Return a batch of two fits that finished and one that failed, scored in another map."""
    fitted = DensityMap.from_file(fragment / "map.mrc")
    noise = np.random.default_rng(1).normal(0.0, 0.1 * fitted.data.std(), fitted.shape)
    replace(fitted, data=(fitted.data + noise).astype(np.float32)).write(fragment / "free.mrc")
    (fragment / "broken.pdb").write_text("no model\n")
    models = [fragment / name for name in ("a.pdb", "b.pdb", "broken.pdb")]
    free = fragment / "free.mrc"
    jobs = jobs_of(models, [fragment / "map.mrc"], 5.0, fits.output, free_map=free, **OPTIONS)
    batch = Batch(jobs, fits.output)
    for job in jobs[:2]:
        batch.results[job.name] = replace(fits.results[job.name], job=job, attempts=1)
    batch.results["broken"] = JobResult(jobs[2], "failed", error="broken.pdb: it holds no model.", attempts=3)
    batch.outcomes = batch.write_outcome("openmm-density batch <a>")
    return batch


def test_tables_have_a_row_for_each_fit(batch):
    rows = list(csv.DictReader((batch.output / "batch.csv").read_text().splitlines()))
    assert [(row["name"], row["state"], row["attempts"]) for row in rows] == [
        ("a", "finished", "1"),
        ("b", "finished", "1"),
        ("broken", "failed", "3"),
    ]
    assert "broken.pdb: " in rows[2]["error"]
    # The free map is nearly the same one, here.
    assert float(rows[0]["cc_free"]) == pytest.approx(float(rows[0]["cc"]), abs=0.01)
    assert rows[0]["cc_free"] != rows[0]["cc"]
    assert float(rows[0]["cc"]) > float(rows[0]["cc_before"])
    written = json.loads((batch.output / "batch.json").read_text())
    assert [row["folder"] for row in written["jobs"]] == ["a", "b", "broken"]
    assert written["consensus"][0]["models"] and written["consensus"][0]["file"] == "consensus.cif"


def test_the_consensus_has_the_atoms_of_the_best_fit(batch):
    (outcome,) = batch.outcomes
    best = outcome.results[0]
    found, fitted = (
        [
            (atom.pos.tolist(), atom.name)
            for chain in gemmi.read_structure(str(path))[0]
            for residue in chain
            for atom in residue
        ]
        for path in (batch.output / "consensus.cif", best.folder / "fitted.cif")
    )
    assert found == fitted
    assert "2 models of one map: 100% of 12 residues agree" in outcome.verdict
    assert "Both ended in one place. This rests on 2 fits: two have one difference" in outcome.verdict
    assert "does not depend" not in outcome.verdict


def test_the_page_sorts_links_and_draws(batch):
    with started() as launch:
        opened = Opened(
            launch("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
            batch.output / "batch.html",
        )
        page = opened.page
        page.wait_for_selector("html.drawn")

        def names():
            cells = "cells => cells.map((cell) => cell.textContent)"
            return page.eval_on_selector_all("table.sortable tbody th", cells)

        def sort_by(heading):
            click = "(all, heading) => all.find((each) => each.textContent === heading).click()"
            page.eval_on_selector_all("table.sortable thead button", click, heading)
            return names()

        assert names() == ["a", "b", "broken"]
        assert sort_by("fit") == ["a", "b", "broken"] and sort_by("fit") == ["broken", "b", "a"]
        # What is not known comes last in either order.
        assert sort_by("CC")[2] == "broken" and sort_by("CC")[2] == "broken"
        links = page.eval_on_selector_all(
            "table.sortable tbody a", "all => all.map((each) => each.getAttribute('href'))"
        )
        assert sorted(links) == ["a/report.html", "b/report.html"]
        assert page.locator("#spread .main-svg").count() > 0
        assert page.eval_on_selector_all("#controls fieldset:first-child input", "boxes => boxes.length") == 3
        assert opened.said == [] and [each for each in opened.asked if not each.startswith("file:")] == []
