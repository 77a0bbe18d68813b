"""The report of a fit says what the fit found, whether it has just ended or its folder is read again."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace

import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.base.page_blocks import Items, Plot
from openmm_density.cli import main
from openmm_density.report import OutputFolder
from openmm_density.report.fit_page import contents_of, fit_page, read_contents


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    """Return the results of a fit whose model, map and reference lie beside them."""
    fit, result = fitted
    path = tmp_path_factory.mktemp("report") / "out"
    output = OutputFolder(path)
    shutil.copy(fit.prepared.model.path, path.parent / "model.pdb")
    fit.density_map.write(path.parent / "target.mrc")
    output.write(
        fit,
        result,
        str(path.parent / "model.pdb"),
        str(path.parent / "target.mrc"),
        command="openmm-density fit …",
    )
    output.discard()
    return path


@pytest.fixture(scope="module")
def page(folder):
    return fit_page(read_contents(folder))


def blocks(page, key):
    [section] = [each for each in page.sections if each.key == key]
    return section.blocks


def unpacked(text, kind):
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_a_folder_read_again_gives_the_page_of_its_fit(fitted, folder, page):
    fit, result = fitted
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    of_fit = fit_page(contents_of(folder, fit, result, summary))
    assert [each.key for each in of_fit.sections] == ["did-it-fit", "trust", "done", "cite"]
    assert [each.key for each in page.sections] == [each.key for each in of_fit.sections]
    assert (page.title, page.verdict, page.cards) == (of_fit.title, of_fit.verdict, of_fit.cards)
    assert [row["correlation_final"] for row in page.data["residues"]] == [
        row["correlation_final"] for row in of_fit.data["residues"]
    ]
    one, other = (each.data["structures"]["models"] for each in (page, of_fit))
    assert (
        [each["key"] for each in one] == [each["key"] for each in other] == ["after", "before", "reference"]
    )
    for read, own in zip(one, other):
        found, expected = (unpacked(each["positions"], "<f4") for each in (read, own))
        # A file has three decimals, and of the model before no atom that was built.
        is_known = found < 1e8
        assert (~is_known).sum() == (3 if read["key"] == "before" else 0)
        assert found[is_known] == pytest.approx(expected[is_known], abs=1e-3)
    shifts = [[row["shift"] for row in each.data["residues"]] for each in (page, of_fit)]
    assert shifts[0] == pytest.approx(shifts[1], abs=0.011) and min(shifts[0]) >= 0 < max(shifts[0])
    surfaces = [each.data["surfaces"]["map"] for each in (page, of_fit)]
    assert surfaces[0]["values"] == surfaces[1]["values"]
    assert surfaces[0]["level"] == pytest.approx(surfaces[1]["level"], rel=1e-3)


def test_it_has_every_figure_of_the_fit(folder, page):
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert f"{summary['cc_initial']:.3f}" in page.verdict and f"{summary['cc_final']:.3f}" in page.verdict
    assert page.cards[0].value == f"{summary['cc_final']:.3f}"
    doubts = [
        item
        for block in blocks(page, "trust")
        if isinstance(block, Items) and block.are_doubts
        for item in block.items
    ]
    assert [item.text[1:] for item in doubts] == [doubt[1:] for doubt in summary["doubts"]]
    assert all(item.spots for item in doubts)
    assert blocks(page, "cite")[0].text == "openmm-density fit …"
    plots = {
        block.key: block.figure
        for section in page.sections
        for block in section.blocks
        if isinstance(block, Plot)
    }
    drawn = {key for key, figure in plots.items() if figure is not None}
    assert drawn == {"agreement", "fsc", "geometry", "ramachandran", "progress"}
    trace = next(each for each in plots["agreement"]["data"] if each["name"] == "after")
    assert trace["y"] == pytest.approx([row["correlation_final"] for row in summary["residues"]], abs=1e-4)
    assert trace["customdata"] == list(range(len(summary["residues"])))
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert summary["residues"][3]["residue"] in text and len(text) < 4_000_000


def test_the_film_is_that_of_the_trajectory(fitted, folder, tmp_path):
    _, result = fitted
    copied = shutil.copytree(folder, tmp_path / "copied")
    frames = [result.initial + part * (result.final - result.initial) for part in np.linspace(0, 1, 11)]
    with mdtraj.formats.DCDTrajectoryFile(str(copied / "trajectory.dcd"), "w") as file:
        file.write(np.array(frames, dtype=np.float32))
    structures = fit_page(read_contents(copied)).data["structures"]
    film = structures["film"]
    values = unpacked(film["values"], "<i2").reshape(film["frames"], -1, 3) * film["step"] + film["centre"]
    assert (film["frames"], film["every"], film["atoms"]) == (11, 1, None)
    after = unpacked(structures["models"][0]["positions"], "<f4").reshape(-1, 3)
    assert values[-1] == pytest.approx(after, abs=film["step"])
    assert values[5] == pytest.approx((values[0] + values[-1]) / 2, abs=2 * film["step"])
    (copied / "trajectory.dcd").write_bytes(b"no trajectory")
    assert fit_page(read_contents(copied)).data["structures"]["film"] is None


def test_where_files_have_moved_it_says_so_and_takes_others(folder, tmp_path, capsys):
    moved = shutil.copytree(folder, tmp_path / "moved")
    summary = json.loads((moved / "summary.json").read_text(encoding="utf-8"))
    summary |= {
        "model": "/nowhere/model.pdb",
        "map": "/nowhere/target.mrc",
        "reference": "/nowhere/reference.pdb",
    }
    (moved / "summary.json").write_text(json.dumps(summary))
    for name in ("fitted_before.pdb", "fitted_map.mrc", "fitted_reference.pdb"):
        (moved / name).unlink(missing_ok=True)
    contents = read_contents(moved)
    assert [each.key for each in contents.models] == ["after"] and contents.density_map is None
    assert [sentence.split()[1] for sentence in contents.missing] == ["model", "reference", "map"]
    assert fit_page(contents).data["surfaces"] is None
    output = tmp_path / "page.html"
    given = [
        f"--model={folder.parent / 'model.pdb'}",
        f"--map={folder.parent / 'target.mrc'}",
        f"--output={output}",
    ]
    assert main(["report", str(moved), *given]) == 0
    said = capsys.readouterr().out
    assert "The reference /nowhere/reference.pdb is no longer where it was" in said and "The map" not in said
    assert "The reference /nowhere/reference.pdb is no longer" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "holds no results of a fit"),
        ("{", "cannot be read"),
        ("[1]", "is not the summary of a fit"),
        ('{"residues": []}', "it lacks cc_initial, q_score_initial"),
    ],
)
def test_a_folder_without_a_fit_is_refused(tmp_path, text, problem, capsys):
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(InputError, match=problem):
        read_contents(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert problem in capsys.readouterr().err


def test_a_fit_whose_report_fails_keeps_its_other_results(fitted, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no room\nfor it")

    monkeypatch.setattr("openmm_density.report.page.write_page", fail)
    path = tmp_path / "out"
    found = OutputFolder(path).write(*fitted, "model", "map")
    written = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    [note] = [note for note in written["notes"] if "report.html was not written (no room for it)" in note]
    assert note in found["notes"] and not (path / "report.html").exists()
    assert (path / "fitted.cif").exists() and "report" in written["seconds_by_part"]


def test_an_interrupted_fit_and_one_that_kept_the_model_say_so_first(fitted, tmp_path):
    fit, result = fitted
    folder = OutputFolder(tmp_path / "interrupted")
    found = folder.write(fit, replace(result, interrupted=True), "model", "map")
    text = (folder.path / "report.html").read_text(encoding="utf-8")
    assert f"Interrupted at step {found['steps']} of" in text and "so far" in text
    assert "none was drawn with these results" in text
    kept = result.keeping_before("it is worse")
    folder = OutputFolder(tmp_path / "kept")
    folder.write(fit, kept, "model", "map")
    page = fit_page(read_contents(folder.path))
    assert page.verdict.startswith("The fit did not improve the model")
    assert page.data["structures"]["models"][0]["label"] == "after (not kept)"
    [card] = [card for card in page.cards if card.name == "Correlation (CC mask)"]
    assert card.value == f"{result.cc_initial:.3f}"
    assert card.detail.startswith(f"kept as it was; after {result.cc_final:.3f}, reference")


def test_the_map_of_the_page_is_that_of_the_fit(fitted, page):
    fit, _ = fitted
    packed = page.data["surfaces"]["map"]
    values = packed["lowest"] + packed["step"] * unpacked(packed["values"], "u1").astype(float)
    grid = values.reshape(packed["size"])
    indices = np.stack(np.meshgrid(*map(np.arange, packed["size"]), indexing="ij"), axis=-1).reshape(-1, 3)
    places = indices @ np.array(packed["matrix"]).T + packed["origin"]
    expected = fit.density_map.value_at(places)
    assert np.abs(grid.reshape(-1) - expected).max() <= packed["step"]
