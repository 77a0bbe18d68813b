"""What ``fit`` and ``score`` say of maps that are wrong, and the options that put them right."""

import json
from dataclasses import replace

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.fitting import half_maps

from .commands import run

ASKED = ("--resolution", 5, "--platform", "CPU", "--steps", 40)
QUICK = (*ASKED, "--strength", 30, "--report-interval", 20, "--threads", 1)


def quick_fit(folder, output, *extra):
    return run("fit", folder / "model.pdb", folder / "wrong.mrc", *QUICK, "--output", output, *extra)


@pytest.fixture
def inverted(small, tmp_path):
    for name in ("model.pdb", "target.pdb"):
        (tmp_path / name).symlink_to(small / name)
    DensityMap.from_file(small / "target.mrc").inverted().write(tmp_path / "wrong.mrc")
    return tmp_path


def test_score_doubts_an_inverted_map_and_reads_it_right(inverted, capsys):
    command = ("score", inverted / "target.pdb", inverted / "wrong.mrc", "--resolution", 5)
    assert run(*command) == 0
    said = capsys.readouterr().out
    assert "Warning: the map's contrast is inverted" in said and "pass --invert, or" in " ".join(said.split())
    assert run(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cc_mask"][0] < -0.9 and told["map_checks"]["findings"][0]["check"] == "contrast"
    assert told["warnings"][0] == told["map_checks"]["findings"][0]["sentence"]
    assert "pass --invert, or" in told["warnings"][0]
    assert run(*command, "--json", "--invert") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cc_mask"][0] > 0.9 and told["map_checks"]["findings"] == []


def test_fit_refuses_an_inverted_map(inverted, tmp_path, capsys):
    assert quick_fit(inverted, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "contrast is inverted" in said and "pass --invert, or" in said and not (tmp_path / "run").exists()


def test_a_map_in_nm_is_named_and_corrected(small, tmp_path, capsys):
    right = DensityMap.from_file(small / "target.mrc")
    right.with_voxel_size(0.12).write(tmp_path / "wrong.mrc")
    (tmp_path / "model.pdb").symlink_to(small / "model.pdb")
    for command in ("fit", "score"):
        extra = ("--output", tmp_path / "run") if command == "fit" else ()
        assert run(command, tmp_path / "model.pdb", tmp_path / "wrong.mrc", "--resolution", 5, *extra) == 2
        assert "voxel size of 0.12 Å looks like nm" in capsys.readouterr().err
    score = ("score", small / "target.pdb", tmp_path / "wrong.mrc", "--resolution", 5, "--json")
    assert run(*score, "--voxel-size", 1.2) == 0
    assert json.loads(capsys.readouterr().out)["cc_mask"][0] > 0.9


def test_corrections_survive_an_interruption(small, tmp_path, monkeypatch):
    right = DensityMap.from_file(small / "target.mrc")
    right.mirrored().inverted().with_voxel_size(1.17).write(tmp_path / "wrong.mrc")
    (tmp_path / "model.pdb").symlink_to(small / "model.pdb")
    from openmm_density.report.folder import OutputFolder

    corrected = ("--voxel-size", 1.2, "--mirror", "--invert", "--save-interval", 20)
    with monkeypatch.context() as broken:
        broken.setattr(OutputFolder, "write", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            quick_fit(tmp_path, tmp_path / "run", *corrected)
    assert run("fit", "--resume", tmp_path / "run") == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["map_corrections"] == {"voxel_size": 1.2, "mirror": True, "invert": True}
    assert np.allclose(summary["map_voxel_size"], 1.2, atol=1e-5)
    assert summary["map_checks"]["final"]["findings"] == []
    assert any("sign was changed" in note for note in summary["notes"])
    assert summary["cc_final"] > 0.5 and summary["map_checks"]["initial"]["contrast"]["coverage"] > 0.25


def test_options_that_are_no_voxel_size_are_refused(small, capsys):
    with pytest.raises(SystemExit):
        run("score", small / "target.pdb", small / "target.mrc", "--resolution", 5, "--voxel-size", "0,1,1")
    assert "--voxel-size must be a positive number of Å" in capsys.readouterr().err


def test_half_maps_are_corrected_with_the_map(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(half_maps, "STEPS_AT_EACH", 5)
    monkeypatch.setattr(half_maps, "COOLING_STEPS", 5)
    right = DensityMap.from_file(small / "target.mrc")
    noise = np.random.default_rng(0).normal(0.0, 0.3 * right.data.std(), (2, *right.data.shape))
    halves = [replace(right, data=(right.data + each).astype(np.float32)) for each in noise]
    for name, each in zip(("wrong", "half_1", "half_2"), (right, *halves)):
        each.mirrored().inverted().with_voxel_size(1.17).write(tmp_path / f"{name}.mrc")
        each.write(tmp_path / f"right_{name}.mrc")
    (tmp_path / "model.pdb").symlink_to(small / "model.pdb")
    corrected = ("--voxel-size", 1.2, "--mirror", "--invert")
    given = [word for n in (1, 2) for word in ("--half-map", tmp_path / f"half_{n}.mrc")]
    command = ("fit", tmp_path / "model.pdb", tmp_path / "wrong.mrc", *ASKED, "--threads", 1, *given)
    assert run(*command, "--output", tmp_path / "run", *corrected) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    scan = summary["half_maps"]
    # Inverted they correlate by the negative of this, mirrored by less than a half.
    assert min(*scan["work"], *scan["free"]) > 0.6 and scan["work"] != scan["free"]
    assert summary["cc_final"] > 0.6

    capsys.readouterr()
    found = []
    for prefix, extra in (("", corrected), ("right_", ())):
        pair = [word for n in (1, 2) for word in ("--half-map", tmp_path / f"{prefix}half_{n}.mrc")]
        score = ("score", small / "target.pdb", tmp_path / f"{prefix}wrong.mrc", "--resolution", 5, "--json")
        assert run(*score, *pair, *extra) == 0
        found.append(json.loads(capsys.readouterr().out))
    curves = [each["half_map_fsc"]["correlation"] for each in found]
    assert np.allclose(*(np.array(curve, dtype=float) for curve in curves), atol=0.02)
    assert found[0]["cc_mask"] == pytest.approx(found[1]["cc_mask"], abs=1e-3)
