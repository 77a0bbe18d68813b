"""MolProbity's figures by cctbx: where it is not installed, where it fails, and, where it is there, what it says."""

import sys

import pytest

from openmm_density.extensions.deposition import cctbx_figures as module
from openmm_density.extensions.deposition import cctbx_program as program
from openmm_density.extensions.deposition.cctbx_figures import cctbx_figures, has_cctbx


def test_without_cctbx_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "has_cctbx", lambda: False)
    assert cctbx_figures(tmp_path / "model.pdb") is None


def test_a_process_that_fails_is_told_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "has_cctbx", lambda: True)
    # What is beside the program decides what it imports: here a cctbx that is broken.
    (tmp_path / "iotbx").mkdir()
    (tmp_path / "iotbx" / "__init__.py").write_text("raise ImportError('libfoo.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = cctbx_figures(tmp_path / "model.pdb")
    assert found["version"] is None and found["figures"] == {}
    assert found["missing"] == {"all": "cctbx could not be run: ImportError: libfoo.so is missing"}


@pytest.mark.skipif(not has_cctbx(), reason="cctbx-base (81 MB) is not installed")
def test_cctbx_says_its_version_figures_and_what_is_missing(small_data):
    found = cctbx_figures(small_data / "emd5925_frag" / "5925_native.pdb")
    assert found["version"] and not any(name.startswith("mmtbx") for name in sys.modules)
    figures = found["figures"]
    assert figures["ramachandran_count"] == 92
    assert figures["ramachandran_outlier_percent"] == pytest.approx(1.087, abs=1e-3)
    assert figures["c_beta_outlier_percent"] == 0
    # Tables and monomer library may be there or not: what is not known says what it needs.
    named = {"Rotamers": "rotamer_count", "CaBLAM": "cablam_outlier_percent", "Clashscore": "clashscore"}
    for name, key in named.items():
        assert (key in figures) != (name in found["missing"])


def test_what_is_missing_is_told_from_what_failed(monkeypatch):
    monkeypatch.setattr(program, "_has_tables", lambda folder: folder == "rama_z")
    for name in program._MONOMER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert "chem_data/cablam_data beside mmtbx" in program._lacking("cablam_data")
    assert "CLIBD_MON" in program._lacking("monomers")
    assert program._lacking("rama_z") is None and program._lacking("") is None
    monkeypatch.setenv("CLIBD_MON", "/somewhere")
    assert program._lacking("monomers") is None
    assert program._failure(ValueError("no\n atoms")) == "failed in cctbx: ValueError: no atoms"
    assert "out of date" in program._failure(SystemExit())
