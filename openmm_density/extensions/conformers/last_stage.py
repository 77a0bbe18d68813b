"""Whether alternate conformers are fitted at the end of a fit, and what they then have of the density."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...base.errors import InputError, SimulationError
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import listing
from ...energies.atomic_parameters import BFactorRefinement
from ...energies.atomic_parameters.masked_map import MaskedMap
from ...energies.atomic_parameters.scatterers import Mates, Scatterers
from ...fitting.engine import FitParts
from ...fitting.fit_map import FitMap, scattering_of
from ...fitting.fit_result import FitResult
from ...fitting.interrupts import Stop
from ...fitting.run_state import RunState
from ...fitting.stage_context import StageContext
from ...fitting.written_atoms import placed_alternates, prepared_occupancies
from ...models.chemistry.topologies import hydrogen_mask
from ...models.conformer_topology import PlacedConformers
from ...models.preparation import Prepared
from ...models.symmetry_operators import SymmetryOperators
from .copies import ConformerCopies, conformer_copies, heavy_atoms, where_given
from .fitted import FittedConformers, NotShown
from .refinement import ConformerFit, of_conformers

if TYPE_CHECKING:
    from ...energies.atomic_parameters import Occupancies


class LocalCorrelations(NamedTuple):
    """Correlations of a map and models around some atoms, as those of `BFactors`: up to the resolution, with solvent contrast."""

    both: float
    major: float


def local_correlations(
    topology: app.Topology,
    fit_map: FitMap,
    positions: np.ndarray,
    occupancies: np.ndarray,
    conformers: PlacedConformers,
    around: np.ndarray,
    level: str,
    operators: SymmetryOperators | None = None,
) -> LocalCorrelations:
    """Return the correlations around conformers, with B factors refined for each of both models.

    `positions` (N, 3) in Å. `occupancies` (N,) with further conformers beside; alone, those of the atoms that these are
    copies of count as 1. `around` (M, 3) in Å; voxels within 3 Å of these count.
    """
    alone = occupancies.copy()
    alone[conformers.others.originals[conformers.others.originals >= 0]] = 1.0
    values = []
    for beside, occupied in ((conformers, occupancies), (None, alone)):
        refinement = BFactorRefinement(
            topology,
            fit_map.density_map,
            fit_map.resolution,
            positions=positions,
            occupancies=occupied,
            level=level,
            conformers=beside,
            **fit_map.shows(operators),
        )
        refined = refinement.with_copies(operators).refine()
        elements, places, shares = [], np.empty((0, 3)), np.empty(0)
        if beside is not None:
            elements, places, shares = beside.others.elements, beside.positions, beside.occupancies
        own = [atom.element.symbol if atom.element is not None else "H" for atom in topology.atoms()]
        values.append(
            _correlation(
                [*own, *elements],
                np.concatenate([positions, places]),
                np.concatenate([refined.b_factors, refined.of_conformers]),
                np.concatenate([occupied, shares]),
                fit_map,
                around,
                operators,
            )
        )
    return LocalCorrelations(*values)


def _correlation(
    elements: Sequence[str],
    positions: np.ndarray,
    b_factors: np.ndarray,
    occupancies: np.ndarray,
    fit_map: FitMap,
    around: np.ndarray,
    operators: SymmetryOperators | None,
) -> float:
    heavy = np.array([symbol not in ("H", "D") for symbol in elements])
    masked = MaskedMap(fit_map.density_map, around, fit_map.resolution)
    symbols = [symbol for symbol, is_heavy in zip(elements, heavy) if is_heavy]
    mates = None
    if operators is not None:
        mates = Mates.of(operators, positions[heavy], masked.margin, occupancies[heavy])
    largest, scattering = float(b_factors.max()), scattering_of(operators)
    scatterers = Scatterers(symbols, positions[heavy], masked, largest, scattering, mates)
    if fit_map.has_solvent:
        masked.displace(scatterers.displaced(occupancies[heavy]))
    return masked.compare(scatterers.density(b_factors[heavy], occupancies[heavy]), False).cc


FINEST = 2.5
"""Å: coarser maps do not tell conformers apart."""


def fitted_conformers(
    parts: FitParts, running: StageContext, state: RunState, stop: Stop
) -> FittedConformers | None:
    """Return the alternate conformers of a model fitted with it, from where a Context has it; None where there are none to
    fit.

    The protocol says whether they are to be fitted; the Context of `running` is minimised; `state` tells the noise of the
    dynamics.
    """
    engine, protocol, _, fit_map, solute, _ = parts
    prepared = engine.systems.prepared
    if protocol.conformers == "major" or not running.strength or stop.requested:
        return None
    hopeless = fit_map.resolution > FINEST or not len(prepared.model.alternates)
    if protocol.conformers == "auto" and hopeless:
        return None
    copies = conformer_copies(prepared)
    none = FittedConformers(copies.with_only([]), running.positions(), notes=copies.left)
    if not len(prepared.model.alternates):
        return replace(none, notes=["The model has no alternate conformers that could be fitted."])
    if not len(copies):
        return none
    fit = ConformerFit(engine, protocol, prepared, copies)
    how = running.density, running.stage, running.strength
    of = {"solute": solute, "fit_map": fit_map, "operators": engine.systems.operators}
    occupancies = partial(refined_occupancies, **of)
    try:
        integrator = engine.dynamics.integrator(state, running.stage)
        found = fit.fitted(running.positions(), *how, integrator, stop, occupancies)
        if stop.requested:
            return None
        found = fit.with_occupancies(found, occupancies(found), *how, stop)
        missing = not_shown(found, fit_map.resolution)
        everything = list(range(len(copies.groups)))
        shown = everything if protocol.conformers == "both" else groups_shown(found, missing)
        missing = [replace(each, written=each.group in shown) for each in missing]
        if not shown:
            return replace(none, not_shown=missing)
        found = fit.at_rest(found, shown, *how, stop)
    except (InputError, SimulationError) as error:
        problem = f"Alternate conformers follow the fitted ones rigidly, as they cannot be fitted: {error}"
        return replace(none, notes=[*copies.left, problem])
    return replace(found, notes=copies.left, not_shown=missing)


def fit_conformers(
    parts: FitParts, running: StageContext, state: RunState, stop: Stop
) -> FittedConformers | None:
    """Return the same of a fit at its end, and put its model where it is best with them."""
    found = fitted_conformers(parts, running, state, stop)
    if found is not None:
        n = len(parts.engine.systems.prepared.positions)
        running.context.setPositions(found.positions[:n] / ANGSTROM_PER_NANOMETER)
    return found


def with_evidence(
    result: FitResult, solute: Prepared, fit_map: FitMap, operators: SymmetryOperators | None = None
) -> FitResult:
    """Return the result of a fit with what fitted conformers explain of the density around them."""
    found, refined, beside = result.conformers, result.b_factors, placed_alternates(result, solute)
    if beside is None or not len(found.copies):
        return result
    n, copies = solute.topology.getNumAtoms(), found.copies
    occupancies = np.clip(prepared_occupancies(result)[:n], 0, 1)
    alternating = np.concatenate([copies.others.originals, copies.n_atoms + np.arange(len(copies))])
    around = found.positions[heavy_atoms(copies.others.joined, np.unique(alternating))]
    level = "residue" if refined is None else refined.level
    try:
        correlations = local_correlations(
            solute.topology, fit_map, result.final[:n], occupancies, beside, around, level, operators
        )
    except InputError as error:
        problem = f"How much of the density conformers explain is not known: {error}"
        return result.with_found(conformers=replace(found, notes=[*found.notes, problem]))
    explained = {"cc_both": correlations.both, "cc_major": correlations.major}
    return result.with_found(conformers=replace(found, **explained))


def kept_conformers(
    found: FittedConformers | None,
    prepared: Prepared,
    solute: Prepared,
    fit_map: FitMap,
    operators: SymmetryOperators | None = None,
) -> FittedConformers | None:
    """Return what is known of the alternate conformers of a model that is kept as it was: which the map does not show there.

    `found`: what the simulation made of the model: where the map told nothing of them, the kept ones are not judged;
    `prepared`: the model, where it is kept, and `solute` the same without solvent; `operators` of its copies.
    """
    if found is None:
        return None
    notes, missing = list(found.notes), []
    if len(found.copies):
        names = listing([group.name for group in found.copies.groups])
        notes.append(
            f"All conformers of {names} were fitted with what the simulation made of the model (after.*); as that was not "
            "better, every alternate conformer is written as the input has it."
        )
    copies = conformer_copies(prepared)
    given = FittedConformers(copies, where_given(prepared, copies, prepared.positions))
    if len(found.copies) or found.not_shown:
        try:
            judged = of_conformers(copies, refined_occupancies(given, solute, fit_map, operators))
            shares, deviations = ([*each] for each in zip(*judged))
            judgeable = replace(given, copies=copies.with_shares(shares), deviations=deviations)
            missing = not_shown(judgeable, fit_map.resolution)
        except InputError as error:
            notes.append(
                f"Whether the map shows the conformers where the input has them is not known: {error}"
            )
    return FittedConformers(copies.with_only([]), prepared.positions, notes=notes, not_shown=missing)


def refined_occupancies(
    found: FittedConformers,
    solute: Prepared,
    fit_map: FitMap,
    operators: SymmetryOperators | None = None,
) -> Occupancies:
    """Return the occupancies of conformers that the map shows, by names as in ``A LYS 45 B``; each group's have the sum 1."""
    from ...energies.atomic_parameters import OccupancyRefinement

    copies = of_solute(found.copies, solute)
    n = copies.n_atoms
    positions = np.concatenate([found.positions[:n], found.positions[found.copies.n_atoms :]])
    is_light = hydrogen_mask(copies.others.joined)
    groups, alternatives = {}, []
    for number, group in enumerate(copies.groups):
        labels = (group.chosen, *group.labels)
        names = [f"{group.name} {label}" for label in labels]
        for name, label in zip(names, labels):
            members = copies.members(number, label)
            groups[name] = members[~is_light[members]]
        alternatives.append(names)
    occupancies = copies.occupancies()
    refinement = OccupancyRefinement(
        solute.topology,
        fit_map.density_map,
        fit_map.resolution,
        groups,
        positions=positions[:n],
        occupancies=occupancies[:n],
        alternatives=alternatives,
        conformers=PlacedConformers(copies.others, positions[n:], occupancies[n:]),
        scattering=scattering_of(operators),
    )
    return refinement.with_copies(operators).refine()


def of_solute(copies: ConformerCopies, solute: Prepared) -> ConformerCopies:
    """Return the copies behind the atoms of the model without its solvent."""
    return replace(copies, others=replace(copies.others, topology=solute.topology))


LEAST, SURE = 0.15, 4.5
"""What the occupancy of a conformer has to be that is seen: this, and so many standard deviations. Errors of the
model are no part of these: conformers that are not in simulated maps are found with up to four of them."""
RESOLVED = 0.45
"""In resolutions: what the atoms of a conformer have to be away on average from the nearest ones of another. Nearer ones share
the density of one, whatever it is, and their occupancies tell nothing."""


def not_shown(found: FittedConformers, resolution: float) -> list[NotShown]:
    """Return the conformers that a map does not show, with their occupancies refined. `resolution` of the map, in Å."""
    result = []
    for number, group in enumerate(found.copies.groups):
        shares, deviations = found.copies.shares[number], found.deviations[number]
        for label, share in shares.items():
            distance = min(
                (_apart(found, number, label, other) for other in shares if _is_more(shares, other, label)),
                default=np.inf,
            )
            is_near = distance < RESOLVED * resolution
            if is_near or share < max(LEAST, SURE * deviations[label]):
                near = float(distance) if is_near else None
                result.append(NotShown(number, group.name, label, share, deviations[label], near))
    return result


def groups_shown(found: FittedConformers, missing: list[NotShown]) -> list[int]:
    """Return the numbers of the groups of which a map shows two conformers or more."""
    return [
        number
        for number, shares in enumerate(found.copies.shares)
        if len(shares) - sum(each.group == number for each in missing) > 1
    ]


def _is_more(shares: dict[str, float], other: str, label: str) -> bool:
    """Return whether the other of two conformers is the one that is taken for theirs where they are in one place."""
    names = list(shares)
    return (shares[other], -names.index(other)) > (shares[label], -names.index(label))


def _apart(found: FittedConformers, number: int, label: str, other: str) -> float:
    """Return the mean distance of a conformer's heavy atoms from the nearest ones of another, in Å."""
    topology = found.copies.others.joined
    mine, others = (heavy_atoms(topology, found.copies.members(number, each)) for each in (label, other))
    distances, _ = cKDTree(found.positions[others]).query(found.positions[mine])
    return float(distances.mean())
