"""``score --report`` writes the page of a model alone, and of a trajectory's last frame."""

import html
import json
import re
import shlex
from dataclasses import replace

import mdtraj
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models import read_model

from .commands import run


def page_data(path):
    text = path.read_text(encoding="utf-8")
    return text, json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    )


@pytest.fixture
def scored(folder, tmp_path, capsys):
    def score(*arguments):
        page = ("--report", tmp_path / "page.html")
        status = run("score", *arguments, folder / "target.mrc", "--resolution", 5, *page)
        return status, capsys.readouterr()

    return score


def test_a_model_has_a_page_with_its_figures(folder, tmp_path, scored):
    status, said = scored(folder / "model.pdb")
    assert status == 0
    text, data = page_data(tmp_path / "page.html")
    cc = re.match(r"CC (\d\.\d{3})", said.out)[1]
    assert cc[:-1] in text and "model.pdb in target.mrc" in text
    assert "Q-score of all atoms" in text and "0.19 is usual" in text
    assert data["figures"].keys() == {"agreement", "fsc", "geometry", "ramachandran"}
    assert [each["label"] for each in data["structures"]["models"]] == ["model"]
    assert data["surfaces"]["difference"] is not None and data["structures"]["film"] is None
    assert set(data["residues"]["shift"]) == {None}
    # What score warns of is on the page.
    warnings = re.findall(r"^Warning: (.*)", said.out.replace("\n ", " "), flags=re.M)
    assert (len(warnings) > 0) == ("below say" in text or "below says" in text)


def test_of_a_trajectory_the_last_frame_is_shown(folder, tmp_path, scored):
    model = read_model(folder / "target.pdb")
    frames = np.array([model.positions + shift for shift in (4.0, 0.0)]) / 10
    mdtraj.Trajectory(frames, mdtraj.Topology.from_openmm(model.topology)).save_dcd(str(tmp_path / "two.dcd"))
    status, said = scored(tmp_path / "two.dcd", "--topology", folder / "target.pdb")
    assert status == 0
    text, _ = page_data(tmp_path / "page.html")
    last = float(re.search(r"frame +1  CC (\d\.\d+)", said.out)[1])
    assert f"<strong>{last:.3f}</strong>" in text and last > 0.9


def test_a_selection_is_refused_before_anything_is_read(folder, tmp_path, scored):
    status, said = scored(folder / "model.pdb", "--atoms", "name CA")
    assert status == 2 and "--report shows all atoms" in said.err and "leave --atoms out" in said.err
    assert not (tmp_path / "page.html").exists()


@pytest.fixture
def halves(folder, tmp_path):
    """Return the files of two half maps of the target, each with noise of its own."""
    target = DensityMap.from_file(folder / "target.mrc")
    paths = [tmp_path / f"half {number}.mrc" for number in (1, 2)]
    for number, path in enumerate(paths):
        noise = np.random.default_rng(number).normal(scale=2 * target.data.std(), size=target.shape)
        replace(target, data=target.data + noise).write(path)
    return paths


def test_half_maps_are_drawn_and_the_command_repeats_the_page(folder, tmp_path, scored, halves):
    pair = [word for path in halves for word in ("--half-map", path)]
    status, said = scored(folder / "target.pdb", *pair, "--voxel-size", 1.25)
    assert status == 0
    text, data = page_data(tmp_path / "page.html")
    figure = data["figures"]["fsc"]
    model, drawn = figure["data"]
    assert (model["name"], drawn["name"]) == ("model", "half maps")
    assert min(drawn["y"][:2]) > 0.9 and len(drawn["x"]) == len(drawn["y"])
    assert [line["y0"] for line in figure["layout"]["shapes"]] == [0.5, 0.143]
    at = re.search(r"half maps: FSC 0.143 at (\d+\.\d\d) Å", said.out)[1]
    assert "FSC of the half maps 0.143 at" in text and f"<strong>{at}\N{NO-BREAK SPACE}Å</strong>" in text
    words = re.search(r'<div class="command">(.*?)</div>', text, re.S)[1]
    command = html.unescape(re.sub("<[^>]*>", "", words))
    target = [str(folder / "target.pdb"), str(folder / "target.mrc"), "--resolution", "5"]
    page = ["--voxel-size", "1.25", *map(str, pair), "--report", str(tmp_path / "page.html")]
    assert shlex.split(command) == ["openmm-density", "score", *target, *page]


def test_what_are_no_half_maps_writes_no_page(folder, tmp_path, scored, halves):
    first, second = halves
    other = DensityMap.from_file(second)
    replace(other, origin=other.origin + 0.5).write(tmp_path / "moved.mrc")
    for given, sentence in (
        ([first], "--half-map must be given twice, found 1 of them"),
        ([first, first], "are the same map"),
        ([first, tmp_path / "moved.mrc"], "halves of one reconstruction"),
        ([first, tmp_path / "none.mrc"], "there is no such file"),
    ):
        status, said = scored(
            folder / "target.pdb", *(word for path in given for word in ("--half-map", path))
        )
        assert status == 2 and sentence in " ".join(said.err.split()), said.err
        assert not (tmp_path / "page.html").exists()


def test_half_maps_of_another_map_are_refused_and_filtered_ones_doubted(folder, tmp_path, scored, halves):
    given = [DensityMap.from_file(path) for path in halves]
    filtered = [each.gaussian_filter(3.0) for each in given]
    for path, each in zip(halves, filtered):
        each.write(path)
    pair = [word for path in halves for word in ("--half-map", path)]
    status, said = scored(folder / "target.pdb", *pair)
    assert status == 0 and "Warning: the half maps agree up to the finest shell" in " ".join(said.out.split())
    assert f"{tmp_path / 'page.html'}: open it in a browser" in said.out
    for path, each in zip(halves, filtered):
        each.inverted().write(path)
    status, said = scored(folder / "target.pdb", *pair)
    assert status == 2 and "error: the half maps do not belong to the map" in said.err
