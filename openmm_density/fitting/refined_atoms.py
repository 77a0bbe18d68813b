"""The last of a fit: B factors and occupancies as the map shows them, where its protocol asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.preparation import Prepared
from .fit_map import FitMap
from .fit_result import FitResult
from .protocols import Protocol


def with_refined_atoms(
    result: FitResult,
    solute: Prepared,
    fit_map: FitMap,
    protocol: Protocol,
    half_maps: Sequence[DensityMap] | None = None,
) -> FitResult:
    """Return the result of a fit with B factors and occupancies refined where its model is.

    A model that was kept as it was keeps these too, as does one on its way, of a fit that was interrupted; and where they cannot
    be refined, a note says why.

    Parameters
    ----------
    result : FitResult
    solute : Prepared
        The model without the water around it.
    fit_map : FitMap
    protocol : Protocol
    half_maps : two DensityMap, optional
        By which the level of the B factors is chosen.
    """
    wants_b, wants_occupancies = protocol.b_factors != "off", protocol.occupancies != "off"
    if result.interrupted or result.simulated is not None or not (wants_b or wants_occupancies):
        return result
    # SciPy's optimisers are loaded by fits that need them only.
    from ..atomic_parameters import BFactorRefinement, OccupancyRefinement

    positions = result.final[: solute.topology.getNumAtoms()]
    where = solute.topology, fit_map.density_map, fit_map.resolution
    given = _occupancies(result.prepared)[: len(positions)]
    # Those that no atom can have are written as they are.
    occupancies = np.clip(given, 0, 1)
    problems = []
    if wants_occupancies:
        try:
            refinement = OccupancyRefinement(
                *where, protocol.occupancies, positions=positions, occupancies=occupancies
            )
            found = refinement.refine()
            kept = _with_odd_ones(found.occupancies, given, [*refinement.groups.values()])
            occupancies = found.occupancies
            result = replace(result, occupancies=replace(found, occupancies=kept))
        except InputError as error:
            problems.append(f"Occupancies are not refined: {error}")
    if wants_b:
        try:
            refined = BFactorRefinement(
                *where,
                positions=positions,
                occupancies=occupancies,
                level=protocol.b_factors,
                half_maps=half_maps,
            ).refine()
            of_all = np.concatenate([refined.b_factors, result.prepared.b_factors[len(positions) :]])
            prepared = replace(result.prepared, b_factors=of_all)
            result = replace(result, prepared=prepared, b_factors=refined)
        except InputError as error:
            problems.append(f"B factors are not refined: {error}")
    return replace(result, not_refined=" ".join(problems) or None)


def _with_odd_ones(refined: np.ndarray, given: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return occupancies with those that no atom can have as they were given, of atoms that are in no group."""
    odd = (given < 0) | (given > 1)
    odd[np.concatenate(groups)] = False
    return np.where(odd, given, refined)


def prepared_occupancies(result: FitResult) -> np.ndarray:
    """Return the occupancy of each prepared atom: refined, else of one that was built that of the nearest of its residue."""
    values = _occupancies(result.prepared)
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
    if result.occupancies is None:
        return None
    return _of_input(result.prepared, result.occupancies.occupancies, result.prepared.model.occupancies)


def _occupancies(prepared: Prepared) -> np.ndarray:
    return np.append(prepared.model.occupancies, 1.0)[prepared.nearest_input()]


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
