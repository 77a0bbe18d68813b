"""The last of a fit: B factors and occupancies as the map shows them, where its protocol asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..maps.density_map import DensityMap
from ..models.alternates import moved_with_residues
from ..models.conformer_topology import FurtherConformers, PlacedConformers
from ..models.model import Alternates
from ..models.preparation import Prepared
from ..models.symmetry_operators import SymmetryOperators
from .conformers.copies import labels_of
from .fit_map import FitMap
from .fit_result import FitResult
from .protocols import Protocol

if TYPE_CHECKING:
    from ..atomic_parameters import BFactors


def with_refined_atoms(
    result: FitResult,
    solute: Prepared,
    fit_map: FitMap,
    protocol: Protocol,
    half_maps: Sequence[DensityMap] = (),
    operators: SymmetryOperators | None = None,
) -> FitResult:
    """Return the result of a fit with B factors and occupancies refined where its model is.

    A model that was kept as it was keeps these too, as does one on its way, of a fit that was interrupted; and where they cannot
    be refined, a note says why.
    """
    wants_b, wants_occupancies = protocol.b_factors != "off", protocol.occupancies != "off"
    is_wanted = wants_b or wants_occupancies or _has_conformers(result)
    if not is_wanted or result.interrupted or result.simulated is not None:
        return result
    # SciPy's optimisers are loaded by fits that need them only.
    from ..atomic_parameters import BFactorRefinement, OccupancyRefinement

    n = solute.topology.getNumAtoms()
    positions, given = result.final[:n], _occupancies(result)[:n]
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
            result = replace(result, occupancies=replace(found, occupancies=kept))
        except InputError as error:
            problems.append(f"Occupancies are not refined: {error}")
    if wants_b:
        try:
            options = {"level": protocol.b_factors, "half_maps": half_maps or None, **placed}
            refinement = BFactorRefinement(*where, occupancies=occupancies, **options)
            result = _with_b_factors(result, refinement.with_copies(operators).refine())
        except InputError as error:
            problems.append(f"B factors are not refined: {error}")
    try:
        result = _with_evidence(result, fit_map, solute, occupancies, beside, operators)
    except InputError as error:
        problems.append(f"What conformers explain of the density is not known: {error}")
    return replace(result, not_refined=" ".join(problems) or None)


def _has_conformers(result: FitResult) -> bool:
    return result.conformers is not None and len(result.conformers.copies) > 0


def _with_b_factors(result: FitResult, refined: BFactors) -> FitResult:
    """Return the result with refined B factors; water around the model keeps its own."""
    n, prepared = len(refined.b_factors), result.prepared
    of_all = np.concatenate([refined.b_factors, prepared.b_factors[n:]])
    return replace(result, prepared=replace(prepared, b_factors=of_all), b_factors=refined)


def _with_evidence(
    result: FitResult,
    fit_map: FitMap,
    solute: Prepared,
    occupancies: np.ndarray,
    beside: PlacedConformers | None,
    operators: SymmetryOperators | None,
) -> FitResult:
    """Return the result with what fitted conformers explain of the density around them."""
    found, refined = result.conformers, result.b_factors
    if found is None or beside is None or not _has_conformers(result):
        return result
    from .conformers.copies import heavy_atoms
    from .conformers.evidence import local_correlations

    n = solute.topology.getNumAtoms()
    copies = found.copies
    alternating = np.concatenate([copies.others.originals, copies.n_atoms + np.arange(len(copies))])
    around = found.positions[heavy_atoms(copies.others.joined, np.unique(alternating))]
    level = "residue" if refined is None else refined.level
    correlations = local_correlations(
        solute.topology, fit_map, result.final[:n], occupancies, beside, around, level, operators
    )
    return replace(result, conformers=replace(found, cc_both=correlations.both, cc_major=correlations.major))


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


def _with_odd_ones(refined: np.ndarray, given: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return occupancies with those that no atom can have as they were given, of atoms that are in no group."""
    odd = (given < 0) | (given > 1)
    odd[np.concatenate(groups)] = False
    return np.where(odd, given, refined)


def prepared_occupancies(result: FitResult) -> np.ndarray:
    """Return the occupancy of each prepared atom: refined, else of one that was built that of the nearest of its residue."""
    values = _occupancies(result)
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


def _occupancies(result: FitResult) -> np.ndarray:
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
