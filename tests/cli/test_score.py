"""``openmm-density score``."""

import json

import pytest

from .commands import run


def test_score_agrees_with_the_summary(fitted, folder, capsys):
    assert run("score", fitted / "fitted.pdb", folder / "target.mrc", "--resolution", 5, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    summary = json.loads((fitted / "summary.json").read_text())
    assert scores["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-3)
    without_hydrogens = ("score", fitted / "fitted.cif", folder / "target.mrc", "--resolution", 5, "--atoms")
    assert run(*without_hydrogens, "element != H", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cc_mask"][0] == pytest.approx(summary["cc_final"], abs=2e-2)
    trajectory = ("score", fitted / "trajectory.dcd", folder / "target.mrc", "--resolution", 5)
    assert run(*trajectory, "--topology", fitted / "fitted.cif") == 0
    # Frames are counted from 0, as in JSON.
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("frame")]
    assert [int(row.split()[1]) for row in rows] == list(range(6))
    assert run(*trajectory, "--topology", fitted / "fitted.cif", "--json") == 0
    assert json.loads(capsys.readouterr().out)["frames"] == list(range(6))
