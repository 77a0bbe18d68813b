"""``openmm-density planes``."""

import json

from .commands import run


def test_planes_lists_what_is_flat_worst_first(folder, capsys):
    assert run("planes", folder / "target.pdb", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["n_planes"] == sum(row["n_planes"] for row in report["rows"])
    worst = [row["worst"] for row in report["rows"]]
    assert worst == sorted(worst, reverse=True) and report["worst"] == worst[0]
    assert {row["kind"] for row in report["rows"]} >= {"peptide", "carboxylate", "guanidinium"}
    assert run("planes", folder / "target.pdb") == 0
    assert f"{report['n_planes']} planes" in capsys.readouterr().out
