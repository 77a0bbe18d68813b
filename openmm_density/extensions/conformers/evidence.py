"""What conformers explain of the density around them: its correlation with all of them, and with one of each residue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from openmm import app

from ...energies.atomic_parameters import BFactorRefinement
from ...energies.atomic_parameters.masked_map import MaskedMap
from ...energies.atomic_parameters.scatterers import Mates, Scatterers
from ...fitting.fit_map import FitMap, scattering_of
from ...models.conformer_topology import PlacedConformers
from ...models.symmetry_operators import SymmetryOperators


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
