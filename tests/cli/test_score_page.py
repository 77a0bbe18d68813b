"""``score --report`` writes the page of a model alone, and of a trajectory's last frame."""

import json
import re

import mdtraj
import numpy as np
import pytest

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
        command = (
            "score",
            *arguments,
            folder / "target.mrc",
            "--resolution",
            5,
            "--report",
            tmp_path / "page.html",
        )
        status = run(*command)
        return status, capsys.readouterr()

    return score


def test_a_model_has_a_page_with_its_figures(folder, tmp_path, scored):
    status, said = scored(folder / "model.pdb")
    assert status == 0
    text, data = page_data(tmp_path / "page.html")
    cc = re.match(r"CC (\d\.\d{3})", said.out)[1]
    assert cc[:-1] in text and "model.pdb in target.mrc" in text
    assert data["figures"].keys() == {"agreement", "fsc", "geometry", "ramachandran"}
    assert [each["label"] for each in data["structures"]["models"]] == ["model"]
    assert data["surfaces"]["difference"] is not None and data["structures"]["film"] is None
    assert all(residue["shift"] is None for residue in data["residues"])
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
