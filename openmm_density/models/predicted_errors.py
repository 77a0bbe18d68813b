"""Expected errors between a prediction's residues (PAE), from files of AlphaFold, ColabFold and Boltz; and domains."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx
import numpy as np

from ..base.errors import InputError
from ..base.unpacking import read_unpacked
from .chemistry.elements import is_hydrogen
from .chemistry.residue_names import is_standard_polymer
from .confidence import plddt_error
from .model import Model
from .structures import read_model

LIMIT = 0.3
"""GB of a file: numbers in JSON take ten times as much memory; 5000 residues need 0.15."""
LOOSE = 4.0
"""Å; between residues with a larger expected error no distance is restrained, as in ISOLDE."""
NEAR = 5.0
"""Å of expected error up to which residues share an edge of the graph of domains (T. I. Croll's pae_to_domains)."""
SMALLEST_DOMAIN = 20
"""Residues."""
FAR = 15.0
"""Å of expected error beyond which residues' relative positions are unknown."""
MOST_NODES = 500
"""Residues of a graph: finding communities takes 2 s for this many, and grows with the square."""
_ROUNDS = 20

_REMEDY = "give the file that came with this model"


def with_predicted_errors(model: Model, path: str | os.PathLike[str]) -> Model:
    """Return a prediction with its expected errors between residues, from the file that came with it.

    Parameters
    ----------
    model : Model
        From `read_model`, with a confidence.
    path : path-like
        JSON of AlphaFold 2 (the database's, ColabFold's) or 3, or .npz of Boltz; .gz or not.

    Raises
    ------
    InputError
        The model is not a prediction; or the file is too large, has no such errors, some that are not numbers from 0 on, or
        errors of other residues than the model's.
    """
    if model.confidence is None:
        raise InputError(
            "is only for predictions, and this model is not one",
            argument="pae",
            source=model.path,
            remedy="leave it out, or declare the model a prediction",
        )
    path = Path(path)
    matrix, names = _read(path)
    places = _places(model, len(matrix), names)
    if places is None and model.confidence.trim is not None:
        whole = read_model(model.path, predicted=True)
        rows = _places(whole, len(matrix), None)
        of_whole = {} if rows is None else dict(zip(_residue_names(whole), rows.tolist()))
        places = np.array([of_whole[name] for name in _residue_names(model)]) if of_whole else None
    if places is None:
        residues = [each for each in model.topology.residues() if _is_token(each)]
        of, there = f"{len(matrix)} of them", f"{len(residues)} residues"
        if names is not None:
            of += f" of {_chains_of(chain for chain, _ in names)}"
            there += f" of {_chains_of(each.chain.id for each in residues)}"
        raise InputError(
            f"its errors are not of the residues of {model.path.name}",
            source=path,
            found=f"{of} for {there}",
            remedy=_REMEDY,
        )
    errors = np.full((len(places), len(places)), np.nan, dtype=np.float32)
    known = np.flatnonzero(places >= 0)
    errors[np.ix_(known, known)] = matrix[np.ix_(places[known], places[known])]
    return replace(model, confidence=replace(model.confidence, errors=errors))


def read_unit(model: Model, path: str | os.PathLike[str]) -> Model:
    """Return a part of a model that was written with its B column only, interpreted as the model's column is."""
    whole = model.confidence
    in_column = whole is not None and whole.column is not None
    unit = read_model(path, in_column, whole.trim if whole is not None and in_column else None)
    if whole is None or whole.errors is None or unit.confidence is None:
        return unit
    places = {name: row for row, name in enumerate(_residue_names(model))}
    rows = [places[name] for name in _residue_names(unit)]
    return replace(unit, confidence=replace(unit.confidence, errors=whole.errors[np.ix_(rows, rows)]))


def expected_errors(
    plddt: np.ndarray, errors: np.ndarray | None
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the expected errors of distances between residues, in Å, infinite where nothing is known.

    The largest of the errors implied by either residue's pLDDT (R,), up to `LOOSE`, and the mean of both errors (R, R) between
    them, which is infinite beyond `LOOSE`. 0 for residues without any information.
    """
    own = np.where(np.isfinite(plddt), np.minimum(plddt_error(plddt), LOOSE), 0.0)

    def of_pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        result = np.maximum(own[first], own[second])
        if errors is not None:
            between = np.nan_to_num((errors[first, second] + errors[second, first]) / 2)
            result = np.maximum(result, np.where(between > LOOSE, np.inf, between))
        return result

    return of_pairs


def predicted_domains(errors: np.ndarray) -> np.ndarray:
    """Return the domain of each residue from expected errors (R, R), int (R,), -1 for none.

    The communities of greatest modularity (A. Clauset et al., Phys. Rev. E 70, 066111 (2004)) in the graph whose edges join
    residues expected to be off by less than 5 Å, weighted by the inverse error; in large models every n-th residue represents its
    neighbours. Each residue then joins the domain with the least expected error to it, since communities are uncertain near
    hinges, and domains with mutual errors within 4 Å on average are merged. A residue with fewer than 20 such
    partners has no domain.
    """
    mean = np.minimum(np.nan_to_num((errors + errors.T) / 2, nan=FAR), FAR)
    owned = np.flatnonzero((mean < NEAR).sum(axis=1) >= SMALLEST_DOMAIN)
    near = mean[np.ix_(owned, owned)]
    domains = _surest(_communities(near), near)
    for one, other in combinations(range(int(domains.max(initial=0)) + 1), 2):
        between = near[np.ix_(domains == one, domains == other)]
        if between.size and between.mean() < LOOSE:
            domains[domains == other] = one
    result = np.full(len(errors), -1)
    result[owned] = np.unique(domains, return_inverse=True)[1]
    return result


def _communities(errors: np.ndarray) -> list[np.ndarray]:
    """Return the residues of each community by errors (K, K) between them; in large models only some of them."""
    step = -(-len(errors) // MOST_NODES) or 1
    near = np.triu(errors[::step, ::step] < NEAR, 1)
    graph = networkx.Graph()
    graph.add_weighted_edges_from(
        (step * int(i), step * int(j), 1.0 / max(float(errors[step * i, step * j]), 0.2))
        for i, j in np.argwhere(near)
    )
    found = networkx.community.greedy_modularity_communities(graph, weight="weight") if near.any() else []
    return [np.array(sorted(each)) for each in found if len(each) * step >= SMALLEST_DOMAIN]


def _surest(domains: list[np.ndarray], errors: np.ndarray) -> np.ndarray:
    """Return the domain (K,) with the least error to each residue, by errors (K, K) and initial members of each."""
    result = np.zeros(len(errors), dtype=np.int64)
    for _ in range(_ROUNDS):
        if len(domains) < 2:
            return np.zeros_like(result)
        before, result = result, np.array([errors[rows].mean(axis=0) for rows in domains]).argmin(axis=0)
        if np.array_equal(before, result):
            break
        members = (np.flatnonzero(result == number) for number in range(len(domains)))
        domains = [rows for rows in members if len(rows) >= SMALLEST_DOMAIN]
    return result


def _read(path: Path) -> tuple[np.ndarray, list[tuple[str, str]] | None]:
    """Return the matrix of a file, and the chain and number of each row where it has them."""
    if path.exists() and path.stat().st_size > LIMIT * 1e9:
        raise _refused(path, f"has {path.stat().st_size / 1e9:.1f} GB, and at most {LIMIT:g} are read")
    contents = bytes(read_unpacked(path, LIMIT))
    names = None
    if contents.startswith(b"PK"):
        found = _of_archive(path, contents)
    else:
        try:
            written = json.loads(contents)
        except (ValueError, RecursionError) as error:
            raise _refused(path, "is neither JSON nor .npz") from error
        found, names = _of_json(path, written)
    try:
        matrix = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise _refused(path, "its errors are not a matrix of numbers") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise _refused(path, f"its errors are not a square matrix, but have shape {matrix.shape}")
    if not np.isfinite(matrix).all() or matrix.min() < 0:
        raise _refused(path, "it has errors that are not numbers from 0 on")
    return matrix, names if names is not None and len(names) == len(matrix) else None


def _of_json(path: Path, written: Any) -> tuple[Any, list[tuple[str, str]] | None]:
    if isinstance(written, list) and len(written) == 1:
        written = written[0]
    if isinstance(written, dict):
        for name in ("predicted_aligned_error", "pae"):
            if name in written:
                chains, numbers = written.get("token_chain_ids"), written.get("token_res_ids")
                has_names = (
                    isinstance(chains, list) and isinstance(numbers, list) and len(chains) == len(numbers)
                )
                return written[name], [
                    (str(c), str(n)) for c, n in zip(chains, numbers)
                ] if has_names else None
        if {"residue1", "residue2", "distance"} <= written.keys():
            return _of_pairs(path, written), None
    raise _refused(path, "has no predicted_aligned_error, and no pae")


def _of_pairs(path: Path, written: dict[str, Any]) -> np.ndarray:
    """Return the matrix of the AlphaFold database's first format: residues from 1, and an error for each pair."""
    try:
        rows, columns = (np.asarray(written[name], dtype=np.int64) for name in ("residue1", "residue2"))
        values = np.asarray(written["distance"], dtype=np.float32)
        size = int(np.sqrt(len(values)))
        matrix = np.full((size, size), np.nan, dtype=np.float32)
        matrix[rows - 1, columns - 1] = values
    except (TypeError, ValueError, IndexError) as error:
        raise _refused(path, "its lists of residues and errors do not match") from error
    return matrix


def _of_archive(path: Path, contents: bytes) -> np.ndarray:
    """Return ``pae`` from a .npz file; arrays are read only if their declared size allows, and never as pickles."""
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            names = [
                each
                for each in archive.infolist()
                if each.filename in ("pae.npy", "predicted_aligned_error.npy")
            ]
            if not names:
                raise _refused(path, "has no array pae")
            if names[0].file_size > 1e9:
                raise _refused(
                    path, f"its errors unpack to {names[0].file_size / 1e9:.1f} GB, and at most 1 is read"
                )
            with archive.open(names[0]) as file:
                found = np.lib.format.read_array(file, allow_pickle=False)
    except InputError:
        raise
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise _refused(path, "is not a complete .npz file of numbers") from error
    return found[0] if found.ndim == 3 and len(found) == 1 else found


def _refused(path: Path, what: str) -> InputError:
    return InputError(what, source=path, remedy=_REMEDY)


def _is_token(residue: Any) -> bool:
    return is_standard_polymer(residue.name)


def _chains_of(names: Iterable[str]) -> str:
    own = list(dict.fromkeys(names))
    return f"chain{'s' if len(own) > 1 else ''} {', '.join(own)}"


def _residue_names(model: Model) -> list[tuple[str, int, str, str]]:
    return [model.records[next(residue.atoms()).index].residue for residue in model.topology.residues()]


def _places(model: Model, size: int, names: list[tuple[str, str]] | None) -> np.ndarray | None:
    """Return the row of each residue in a matrix (each atom of non-standard ones), -1 for none; None if they do not match."""
    residues = list(model.topology.residues())
    polymer = np.array([_is_token(each) for each in residues])
    if names is not None:
        rows: dict[tuple[str, str], int] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, row)
        found = np.array([rows.get((each.chain.id, each.id), -1) for each in residues])
        return found if (found[polymer] >= 0).all() else None
    counts = np.array(
        [1 if own else sum(not is_hydrogen(a) for a in each.atoms()) for each, own in zip(residues, polymer)]
    )
    whole = np.full(len(residues), -1)
    if size == polymer.sum():
        whole[polymer] = np.arange(size)
        return whole
    return np.cumsum(counts) - counts if size == counts.sum() else None
