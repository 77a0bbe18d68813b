"""What was found in an environment becomes a row, and counts as working only where all of it works."""

from __future__ import annotations

import pytest

from .__main__ import COLUMNS, agree, row, works

FOUND = {
    **{"python": "3.12", "torch": "2.8", "openmm": "8.2"},
    "import": {"openmm-density": "0.1.0", "torch": "2.8.0+cu128", "openmm": "8.2.0"},
    "force": {"backend": "NativeForce", "error": 2e-5, "similarity": 0.9, "warnings": []},
    "fit": {"cc": 0.97702, "backend": "NativeForce"},
    "doctor": {"ok": True, "working": ["NativeForce (CPU)"], "not loaded": [], "remedies": []},
}


def test_a_combination_that_works():
    assert works(FOUND)
    assert (
        row(FOUND) == "| 3.12 | 2.8.0+cu128 | 8.2.0 | yes | NativeForce | 2e-05 | 0.900000 | 0.9770 | works |"
    )


@pytest.mark.parametrize("what", ["import", "force", "fit", "doctor"])
def test_what_fails_is_told_in_its_column(what):
    found = FOUND | {what: {"problem": "no such symbol"}}
    if what != "import":
        assert not works(found)
    assert "no such symbol" in row(found) and row(found).count("|") == len(COLUMNS) + 1


def test_versions_that_cannot_be_installed_together_are_told():
    found = {"python": "3.14", "torch": "2.8", "openmm": "8.2", "install": {"problem": "no wheel"}}
    assert not works(found)
    assert row(found) == "| 3.14 | 2.8 | 8.2 | no wheel |  |  |  |  |  |"


def test_results_that_differ_by_more_than_rounding_are_told(capsys):
    assert agree([FOUND, FOUND, {"python": "3.14"}])
    assert not agree([FOUND, FOUND | {"force": FOUND["force"] | {"similarity": 0.90001}}])
    assert "S: 0.900000 to 0.900010" in capsys.readouterr().out
