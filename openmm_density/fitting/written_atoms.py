"""What is written of atoms beside positions: alternate conformers, B factors and occupancies, as found or as they were given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..models.alternates import moved_with_residues
from ..models.conformer_topology import FurtherConformers, PlacedConformers
from ..models.model import Alternates
from ..models.preparation import Prepared
from .fit_result import FitResult


def placed_alternates(result: FitResult, solute: Prepared) -> PlacedConformers | None:
    """Return the alternate conformers of the input behind the atoms of the model without solvent; None where there are none."""
    alternates = written_alternates(result)
    if not len(alternates):
        return None
    others = FurtherConformers.not_chosen(solute.model, solute.topology, solute.prepared_index)
    occupancies = np.clip(alternates.occupancies[others.alternates], 0.0, 1.0)
    return PlacedConformers(others, alternates.positions[others.alternates], occupancies)


def written_alternates(result: FitResult) -> Alternates:
    """Return the alternate conformers of the input as they are in the end, fitted or moved rigidly, with what was refined."""
    model = result.prepared.model
    alternates, found = model.alternates, result.conformers
    if not len(alternates):
        return alternates
    positions = moved_with_residues(model, result.prepared.input_positions(result.final))
    occupancies = alternates.occupancies.copy()
    if found is not None:
        others, n = found.copies.others, found.copies.n_atoms
        shares = found.copies.occupancies()[n:]
        has = others.alternates >= 0
        positions[others.alternates[has]] = found.positions[n:][has]
        occupancies[others.alternates[has]] = shares[has]
    alternates = replace(alternates, positions=positions, occupancies=occupancies)
    if result.b_factors is None:
        return alternates
    return alternates.with_b_factors(result.b_factors.of_conformers)


def prepared_occupancies(result: FitResult) -> np.ndarray:
    """Return the occupancy of each prepared atom: refined, else of one that was built that of the nearest of its residue."""
    values = given_occupancies(result)
    if result.occupancies is not None:
        values[: len(result.occupancies.occupancies)] = result.occupancies.occupancies
    return values


def input_b_factors(result: FitResult) -> np.ndarray | None:
    """Return the refined B factors of the input's atoms in Å², shape (M,); None where they were not refined."""
    if result.b_factors is None:
        return None
    return _of_input(result.prepared, result.b_factors.b_factors, result.prepared.model.b_factors)


def input_occupancies(result: FitResult) -> np.ndarray | None:
    """Return the refined occupancies of the input's atoms, shape (M,); None where they were not refined."""
    if result.occupancies is None and (result.conformers is None or not len(result.conformers.copies)):
        return None
    values = prepared_occupancies(result)
    if result.occupancies is not None:
        values = values[: len(result.occupancies.occupancies)]
    return _of_input(result.prepared, values, result.prepared.model.occupancies)


def given_occupancies(result: FitResult) -> np.ndarray:
    """Return the occupancy of each prepared atom, as given, of fitted conformers as refined."""
    prepared, found = result.prepared, result.conformers
    values = np.append(prepared.model.occupancies, 1.0)[prepared.nearest_input()]
    if found is not None:
        atoms = np.unique(found.copies.others.originals)
        # A hydrogen without a label is written once: its copies are of the fit alone.
        atoms = atoms[np.array(labels_of(prepared))[atoms] != ""]
        values[atoms] = found.copies.occupancies()[atoms]
    return values


def _of_input(prepared: Prepared, values: np.ndarray, as_read: np.ndarray) -> np.ndarray:
    """Return values of the solute's atoms for those of the input, a hydrogen without a counterpart with its residue's others."""
    result = as_read.copy()
    has = (prepared.prepared_index >= 0) & (prepared.prepared_index < len(values))
    result[has] = values[prepared.prepared_index[has]]
    residue = np.array([atom.residue.index for atom in prepared.model.topology.atoms()])
    for lost in np.flatnonzero(~has):
        others = has & (residue == residue[lost])
        if others.any():
            result[lost] = result[others].mean()
    return result


def labels_of(prepared: Prepared) -> list[str]:
    """Return the label of the conformer that each atom of a prepared model is of, empty for none."""
    records = prepared.model.records
    return ["" if k < 0 else records[k].altloc for k in prepared.nearest_input()]
