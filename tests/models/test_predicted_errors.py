"""Expected errors are read from each format, belong to the model, and tell domains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
import pytest

from openmm_density import InputError
from openmm_density.cli.fit_options import Prediction
from openmm_density.models import Model, read_model
from openmm_density.models.predicted_errors import (
    LOOSE,
    expected_errors,
    predicted_domains,
    read_unit,
    with_predicted_errors,
)
from openmm_density.models.structure_files import write_model_cif

from ..predicted_models import write_prediction
from ..small_models import ADK_OPEN

N = 214
"""Residues of adenylate kinase."""


def _matrix() -> np.ndarray:
    """Return errors of two domains, that are sure of themselves alone."""
    side = np.arange(N) < 120
    errors = np.where(side[:, None] == side[None, :], 1.0, 12.0)
    return errors + np.random.default_rng(1).uniform(0, 0.5, (N, N))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return read_model(write_prediction(tmp_path_factory.mktemp("model") / "model.pdb"))


def _written(folder: Path, kind: str, matrix: np.ndarray) -> Path:
    path = folder / f"pae{'.npz' if kind == 'boltz' else '.json'}"
    rows = matrix.tolist()
    residues = np.indices(matrix.shape).reshape(2, -1) + 1
    contents: dict[str, Any] = {
        "alphafold-2": [{"predicted_aligned_error": rows, "max_predicted_aligned_error": 31.75}],
        "alphafold-2-first": [
            {
                "residue1": residues[0].tolist(),
                "residue2": residues[1].tolist(),
                "distance": matrix.ravel().tolist(),
            }
        ],
        "colabfold": {"pae": rows, "plddt": [90.0] * len(rows), "max_pae": 31.0},
        "alphafold-3": {
            "pae": rows,
            "token_chain_ids": ["A"] * len(rows),
            "token_res_ids": list(range(1, len(rows) + 1)),
        },
    }
    if kind == "boltz":
        np.savez_compressed(path, pae=matrix.astype(np.float32))
    else:
        path.write_text(json.dumps(contents[kind]))
    return path


@pytest.mark.parametrize("kind", ["alphafold-2", "alphafold-2-first", "colabfold", "alphafold-3", "boltz"])
def test_each_format_is_read(tmp_path: Path, model: Model, kind: str) -> None:
    found = with_predicted_errors(model, _written(tmp_path, kind, _matrix()))
    assert found.confidence is not None and model.confidence is not None
    assert found.confidence.errors == pytest.approx(_matrix().astype(np.float32))
    assert model.confidence.errors is None


@pytest.mark.parametrize("kind", ["alphafold-2", "alphafold-3"])
def test_trimmed_models_have_their_own_rows(tmp_path: Path, kind: str) -> None:
    path = write_prediction(tmp_path / "model.pdb")
    trimmed = read_model(path, trim=60.0)
    kept = [int(residue.id) - 1 for residue in trimmed.topology.residues()]
    found = with_predicted_errors(trimmed, _written(tmp_path, kind, _matrix()))
    assert found.confidence is not None
    assert found.confidence.errors == pytest.approx(_matrix().astype(np.float32)[np.ix_(kept, kept)])

    # Domains are placed with all residues, and the fit reads what was placed.
    asked = Prediction(predicted="yes", trim=60.0, pae=str(_written(tmp_path, kind, _matrix())))
    whole = asked.to_be_placed().read_model(str(path))
    write_model_cif(tmp_path / "placed.cif", whole, whole.positions)
    placed = asked.read_model(str(tmp_path / "placed.cif"))
    assert [int(residue.id) - 1 for residue in placed.topology.residues()] == kept
    assert placed.confidence.errors == pytest.approx(found.confidence.errors)


def _nan(matrix: np.ndarray) -> np.ndarray:
    matrix[3, 4] = np.nan
    return matrix


@pytest.mark.parametrize(
    ("kind", "matrix", "said"),
    [
        ("alphafold-2", _matrix()[1:, 1:], "not of the residues"),
        ("boltz", _matrix()[1:, 1:], "not of the residues"),
        ("alphafold-3", _matrix()[1:, 1:], "not of the residues.* of chain A for .* of chain A"),
        ("colabfold", _nan(_matrix()), "not numbers from 0 on"),
        ("boltz", -_matrix(), "not numbers from 0 on"),
        ("boltz", _matrix()[1:], "square"),
    ],
)
def test_other_errors_are_refused(
    tmp_path: Path, model: Model, kind: str, matrix: np.ndarray, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        with_predicted_errors(model, _written(tmp_path, kind, matrix))


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"", "neither JSON"),
        (b"[[[[", "neither JSON"),
        (b"[1, 2]", "no predicted_aligned_error"),
        (b'{"pae": "many"}', "not a matrix"),
        (b'{"pae": [[1, 2], [3]]}', "not a matrix"),
        (b"PK\x03\x04 cut", "not a complete .npz"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, model: Model, contents: bytes, said: str) -> None:
    path = tmp_path / "pae.json"
    path.write_bytes(contents)
    with pytest.raises(InputError, match=said):
        with_predicted_errors(model, path)


def test_pickles_are_not_read(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "pae.npz"
    np.savez(path, pae=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"not a complete \.npz"):
        with_predicted_errors(model, path)
    np.savez(path, plddt=_matrix())
    with pytest.raises(InputError, match="has no array pae"):
        with_predicted_errors(model, path)


def test_a_file_of_a_gigabyte_is_refused_unread(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "pae.json"
    with open(path, "wb") as file:
        file.truncate(10**9)
    with pytest.raises(InputError, match=r"at most 0\.3 are read"):
        with_predicted_errors(model, path)


def test_errors_are_of_predictions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is only for predictions"):
        with_predicted_errors(read_model(ADK_OPEN), _written(tmp_path, "boltz", _matrix()))


def test_domains_are_what_is_sure_of_itself() -> None:
    matrix = _matrix()
    matrix[:5] = matrix[:, :5] = 25.0
    found = predicted_domains(matrix)
    assert (found[:5] == -1).all()
    assert len(set(found[5:120])) == len(set(found[120:])) == 1
    assert found[5] != found[-1]


def test_residues_beside_a_hinge_go_to_the_domain_that_is_surest_of_them(
    model: Model, tmp_path: Path
) -> None:
    matrix = _matrix()
    # Nearer to the other domain than others, as what lies at a hinge is, and still surer of its own.
    matrix[110:120, 120:] = matrix[120:, 110:120] = 3.0
    found = predicted_domains(matrix)
    assert (found[:120] == found[0]).all() and (found[120:] == found[-1]).all() and found[0] != found[-1]
    for errors, several, trim in (
        (matrix, True, None),
        (np.minimum(matrix, 2.0), False, None),
        (matrix, True, 60.0),
    ):
        prediction = Prediction(predicted="yes", trim=trim, pae=str(_written(tmp_path, "colabfold", errors)))
        assert prediction.has_domains(str(model.path)) is several


def test_distances_may_be_off_by_the_larger_of_both() -> None:
    plddt = np.array([95.0, 70.0, 20.0, np.nan])
    own = expected_errors(plddt, None)
    assert own(np.array([0, 0, 0, 0]), np.array([0, 1, 2, 3])) == pytest.approx(
        [1.5 * np.exp(-1.0), 1.5, LOOSE, 1.5 * np.exp(-1.0)]
    )
    errors = np.array([[0.5, 2.0, 9.0, np.nan]] * 4)
    errors = (errors + errors.T) / 2
    both = expected_errors(plddt, errors)
    assert both(np.array([0, 0, 0]), np.array([1, 2, 3])) == pytest.approx([1.5, np.inf, 1.5 * np.exp(-1.0)])


@pytest.mark.parametrize("trim", [None, 60.0])
def test_a_unit_is_taken_for_what_the_model_is(tmp_path: Path, trim: float | None) -> None:
    path = write_prediction(tmp_path / "model.pdb")
    whole = with_predicted_errors(read_model(path, trim=trim), _written(tmp_path, "colabfold", _matrix()))
    gemmi.read_structure(str(path)).make_mmcif_document().write_file(str(tmp_path / "unit.cif"))
    unit = read_unit(whole, tmp_path / "unit.cif")
    assert unit.confidence is not None and whole.confidence is not None
    assert unit.b_factors == pytest.approx(whole.b_factors)
    assert unit.confidence.errors == pytest.approx(whole.confidence.errors)
    plain = read_model(path, predicted=False)
    assert read_unit(plain, tmp_path / "unit.cif").confidence is None
