"""B factors and occupancies at the end of a fit, as the map shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...base.errors import InputError
from ...energies.atomic_parameters import BFactorRefinement, BFactors, OccupancyRefinement
from ...fitting.fit_map import FitMap
from ...fitting.fit_result import FitResult
from ...fitting.protocols import Protocol
from ...fitting.written_atoms import given_occupancies, placed_alternates
from ...maps.density_map import DensityMap
from ...models.preparation import Prepared
from ...models.symmetry_operators import SymmetryOperators


def with_refined_atoms(
    result: FitResult,
    solute: Prepared,
    fit_map: FitMap,
    protocol: Protocol,
    half_maps: Sequence[DensityMap] = (),
    operators: SymmetryOperators | None = None,
) -> FitResult:
    """Return a result with B factors and occupancies refined, or a note why not; kept and interrupted models stay as they are."""
    wants_b, wants_occupancies = protocol.b_factors != "off", protocol.occupancies != "off"
    if not (wants_b or wants_occupancies) or result.interrupted or result.simulated is not None:
        return result
    n = solute.topology.getNumAtoms()
    positions, given = result.final[:n], given_occupancies(result)[:n]
    where = solute.topology, fit_map.density_map, fit_map.resolution
    beside = placed_alternates(result, solute)
    placed = {"positions": positions, "conformers": beside} | fit_map.shows(operators)
    # Those that no atom can have are written as they are.
    occupancies, problems = np.clip(given, 0, 1), []
    if wants_occupancies:
        try:
            refinement = OccupancyRefinement(*where, protocol.occupancies, occupancies=occupancies, **placed)
            found = refinement.with_copies(operators).refine()
            kept = _with_odd_ones(found.occupancies, given, [*refinement.groups.values()])
            occupancies = found.occupancies
            result = result.with_found(occupancies=replace(found, occupancies=kept))
        except InputError as error:
            problems.append(f"Occupancies are not refined: {error}")
    if wants_b:
        try:
            options = {"level": protocol.b_factors, "half_maps": half_maps or None, **placed}
            refinement = BFactorRefinement(*where, occupancies=occupancies, **options)
            result = _with_b_factors(result, refinement.with_copies(operators).refine())
        except InputError as error:
            problems.append(f"B factors are not refined: {error}")
    return result.with_found(not_refined=" ".join(problems) or None)


def _with_b_factors(result: FitResult, refined: BFactors) -> FitResult:
    """Return the result with refined B factors; water around the model keeps its own."""
    n, prepared = len(refined.b_factors), result.prepared
    of_all = np.concatenate([refined.b_factors, prepared.b_factors[n:]])
    with_own = replace(result, prepared=replace(prepared, b_factors=of_all))
    return with_own.with_found(b_factors=refined)


def _with_odd_ones(refined: np.ndarray, given: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return occupancies with those that no atom can have as they were given, of atoms that are in no group."""
    odd = (given < 0) | (given > 1)
    odd[np.concatenate(groups)] = False
    return np.where(odd, given, refined)
