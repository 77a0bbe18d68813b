"""Predictions are told from other models, and their confidence is never taken for B factors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest
from scipy.spatial import cKDTree

from openmm_density import InputError
from openmm_density.models import read_model
from openmm_density.models.confidence import b_factors_of_plddt
from openmm_density.models.predictions import (
    as_in_file,
    plddt_by_residue,
    residue_confidence,
)
from openmm_density.models.structure_files import write_model_cif, write_pdb

from ..predicted_models import plddt_of, write_prediction
from ..small_models import ADK_OPEN


def test_real_models_are_no_predictions(small_data: Path) -> None:
    found = [
        path.name
        for pattern in ("*/*.pdb", "*/*.cif", "zoo/*.gz")
        for path in small_data.glob(pattern)
        if read_model(path).confidence is not None
    ]
    assert not found


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_the_pattern_of_the_column_tells_a_prediction(tmp_path: Path, scale: float) -> None:
    model = read_model(write_prediction(tmp_path / "model.pdb", scale=scale))
    assert model.confidence is not None and "pattern" in model.confidence.told_by
    assert residue_confidence(model) == pytest.approx(plddt_of(ADK_OPEN), abs=0.01 / scale)
    assert any("B column is pLDDT" in note for note in model.notes)
    assert not model.known_b_factors.any()


def test_b_factors_turned_into_confidence_are_no_pattern(tmp_path: Path) -> None:
    path = write_prediction(tmp_path / "model.pdb", values=130.0 - plddt_of(ADK_OPEN))
    assert read_model(path).confidence is None
    assert read_model(path, predicted=True).confidence is not None


def test_the_user_decides(tmp_path: Path) -> None:
    path = write_prediction(tmp_path / "model.pdb")
    model = read_model(path, predicted=False)
    assert model.confidence is None
    assert model.b_factors.max() <= 100


def test_what_cannot_be_confidence_is_refused(tmp_path: Path) -> None:
    path = write_prediction(tmp_path / "model.pdb", values=3 * plddt_of(ADK_OPEN))
    with pytest.raises(InputError, match="cannot be a prediction"):
        read_model(path, predicted=True)


@pytest.mark.parametrize(
    ("header", "program"),
    [
        ("TITLE     ALPHAFOLD MONOMER V2.0 PREDICTION FOR ADENYLATE KINASE", "AlphaFold"),
        ("PARENT N/A", "ESMFold"),
        ("REMARK no_recycling=3, max_templates=4, config_preset=model_1_ptm\nPARENT N/A", "OpenFold"),
        ("REMARK   1 PREDICTED BY BOLTZ-2", "Boltz"),
    ],
)
def test_headers_name_the_program(tmp_path: Path, header: str, program: str) -> None:
    # A column of no pattern, as of a single helix.
    values = np.random.default_rng(0).permutation(plddt_of(ADK_OPEN))
    plain = read_model(write_prediction(tmp_path / "plain.pdb", values=values))
    assert plain.confidence is None
    values = np.sort(values)
    count = cKDTree(_traces()).query_ball_point(_traces(), 10.0, return_length=True)
    values = values[np.argsort(np.argsort(count, kind="stable"))]
    model = read_model(write_prediction(tmp_path / "model.pdb", header, values=values))
    assert model.confidence is not None
    assert model.confidence.program == program


def _traces() -> np.ndarray:
    model = read_model(ADK_OPEN)
    return model.positions[[atom.index for atom in model.topology.atoms() if atom.name == "CA"]]


def test_an_experiment_that_began_from_a_prediction_is_none(tmp_path: Path) -> None:
    header = "TITLE     SOLVED WITH AN ALPHAFOLD MODEL\nEXPDTA    ELECTRON MICROSCOPY"
    assert read_model(write_prediction(tmp_path / "model.pdb", header)).confidence is None


def test_b_factors_follow_the_published_formula() -> None:
    # At 70 the error is 1.5 Å: 8π²/3 · 1.5².
    found = b_factors_of_plddt(np.array([70.0, 95.0, 0.0, np.nan]))
    assert found[0] == pytest.approx(8 * np.pi**2 / 3 * 2.25)
    assert found[1] == pytest.approx(8 * np.pi**2 / 3 * (1.5 * np.exp(-1.0)) ** 2)
    assert found[2] == 999.99
    assert found[3] == b_factors_of_plddt(np.array([50.0]))[0]


def test_written_mmcif_has_the_confidence_beside_b_factors(tmp_path: Path) -> None:
    model = read_model(write_prediction(tmp_path / "model.pdb"))
    write_model_cif(tmp_path / "out.cif", model, model.positions)
    block = gemmi.cif.read(str(tmp_path / "out.cif")).sole_block()
    assert len(block.find_loop("_ma_qa_metric_local.metric_value")) == model.topology.getNumResidues()
    again = read_model(tmp_path / "out.cif")
    assert again.confidence is not None and again.confidence.column is None
    assert plddt_by_residue(again) == pytest.approx(plddt_by_residue(model), abs=0.006)
    assert again.known_b_factors == pytest.approx(model.b_factors, abs=0.006)
    # And once more, into the same document.
    write_model_cif(tmp_path / "more.cif", again, again.positions)
    assert plddt_by_residue(read_model(tmp_path / "more.cif")) == plddt_by_residue(again)


def test_mmcif_with_the_same_in_column_and_metric_is_confidence(tmp_path: Path) -> None:
    model = read_model(write_prediction(tmp_path / "model.pdb"))
    write_model_cif(
        tmp_path / "out.cif", replace(as_in_file(model)), model.positions, as_in_file(model).b_factors
    )
    again = read_model(tmp_path / "out.cif")
    assert again.confidence is not None and again.confidence.column is not None
    assert again.b_factors == pytest.approx(b_factors_of_plddt(again.confidence.plddt))


def test_no_written_b_column_is_confidence(tmp_path: Path) -> None:
    header = "TITLE     ALPHAFOLD MONOMER V2.0 PREDICTION"
    model = read_model(write_prediction(tmp_path / "model.pdb", header))
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    again = read_model(tmp_path / "out.pdb")
    assert again.confidence is None
    assert again.b_factors == pytest.approx(model.b_factors, abs=0.006)


def test_trimmed_residues_are_left_out_and_named(tmp_path: Path) -> None:
    plddt = plddt_of(ADK_OPEN)
    model = read_model(write_prediction(tmp_path / "model.pdb"), trim=60.0)
    assert model.topology.getNumResidues() == (plddt >= 60).sum()
    assert residue_confidence(model) == pytest.approx(plddt[plddt >= 60])
    (note,) = [note for note in model.notes if "Left out" in note]
    numbers = [
        number
        for run in note.rpartition(": A ")[2].rstrip(".").split(", A ")
        for number in range(int(run.split("-")[0]), int(run.split("-")[-1]) + 1)
    ]
    assert np.array_equal(numbers, np.flatnonzero(plddt < 60) + 1)


@pytest.mark.parametrize(
    ("predicted", "trim", "said"),
    [
        (False, 50.0, "is only for predictions"),
        (True, 99.0, "would remove the whole"),
        (True, np.nan, "from 0 to 100, found nan"),
    ],
)
def test_what_cannot_be_trimmed_is_refused(tmp_path: Path, predicted: bool, trim: float, said: str) -> None:
    path = write_prediction(tmp_path / "model.pdb")
    with pytest.raises(InputError, match=said):
        read_model(path, predicted, trim)
