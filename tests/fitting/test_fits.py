"""The benchmark that fits known cases."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from ..conftest import PROJECT
from ..fragments import RESOLUTION, map_of, write_fragment

RESIDUES = 16


@pytest.fixture
def fits(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "examples" / "benchmarks"))
    return importlib.import_module("fits")


def test_a_case_is_fitted_and_shown(fits, tmp_path, monkeypatch, capsys):
    write_fragment(tmp_path / "there.pdb", residues=RESIDUES)
    write_fragment(tmp_path / "start.pdb", (1.0, -0.8, 0.6), RESIDUES)
    map_of(RESIDUES, 0.1, 0, tmp_path).write(tmp_path / "map.mrc")
    case = fits.Case(RESOLUTION, "start.pdb", "there.pdb", "map.mrc")
    monkeypatch.setitem(fits.CASES, "fragment", case)
    written = tmp_path / "fits.json"
    command = ["fits.py", "fragment", "--data", str(tmp_path), "--steps", "40", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(written)])
    fits.main()
    (row,) = json.loads(written.read_text())["fits"]
    assert row["ca_rmsd"][0] == pytest.approx(2**0.5, abs=0.01) and row["ca_rmsd"][1] < 1.0
    assert row["within_reach"] == RESIDUES and row["ca_rmsd_within_reach"] == row["ca_rmsd"]
    assert row["cc"][0] < row["cc"][1] < 1.0 and row["cc_deposited"] > 0.95
    assert row["steps"] == 40 and row["peptide_flips"] == row["inverted_centres"] == []
    printed = capsys.readouterr().out
    assert f"{row['cc'][1]:.3f}" in printed and f"{row['ca_rmsd'][1]:.2f}" in printed


def test_cases_are_chosen_by_name_or_entry(fits, monkeypatch):
    assert fits.chosen_cases(["5925", "adk", "5925-2"]) == [*(f"5925-{i}" for i in range(1, 6)), "adk"]
    assert len(fits.chosen_cases([])) == len(fits.CASES) - 1
    monkeypatch.setattr(sys, "argv", ["fits.py", "kinase"])
    with pytest.raises(SystemExit, match='found "kinase": use adk, adk3, kinesin'):
        fits.main()
