"""The map of a fit: corrected, with the resolution that it has, and with the correlations of models with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError, as_argument
from ..energies.form_factors import SIGMA_PER_RESOLUTION
from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..maps.fourier import mirror_filtered
from ..maps.grids import index_reach
from ..maps.half_maps import check_half_maps, check_halves_of_map
from ..maps.map_agreement import check_free_map
from ..models.symmetry_operators import SymmetryOperators
from ..validation.correlation import MapCorrelation

SHARPENED_FROM, LEAST_BLUR = 4.0, 1.3
"""Resolution in Å and width of atoms, in those of the resolution, from which on a map is sharpened in the end: only then do its
details count. At 3.6 Å the correlation falls by as much as Q-scores rise. Widths told apart are 1.2, 1.35 and 1.5, but for
rounding."""
FADING = 0.9, 1.2
"""Frequencies, in those of the resolution, between which a sharpened map fades: beyond it noise is what would grow most."""


class FitMap:
    """A map that knows its resolution.

    `read` as it was read. It is not kept, only where its voxels were. `resolution` in Å. `corrections`: what it is
    corrected for; nothing by default. Attributes: `density_map`: the map, corrected. `resolution` in Å. `has_solvent`:
    whether atoms displace a solvent in it, as they do by default; set to False for a map from which the solvent's part
    was taken off.
    """

    def __init__(
        self, read: DensityMap, resolution: float, corrections: MapCorrections | None = None
    ) -> None:
        self.has_solvent = True
        self.resolution, self.corrections = resolution, corrections or MapCorrections()
        self.density_map = self.corrections.apply(read)
        self._matrix_as_read, self._origin_as_read = read.matrix, read.origin
        self._correlations: dict[tuple[app.Topology, float], MapCorrelation] = {}

    def carried_along(self, point: np.ndarray) -> np.ndarray:
        """Return where a point (3,) in Å of the map as it was read is in the corrected one, if it stays at its voxel."""
        index = (point - self._origin_as_read) @ np.linalg.inv(self._matrix_as_read).T
        return self.density_map.origin + self.density_map.matrix @ index

    def correlation(self, topology: app.Topology, resolution: float | None = None) -> MapCorrelation:
        """Return what correlates positions of a topology's atoms with the map.

        Each is built once and kept as long as the map: one for each topology that is scored and each width that is searched
        at. `resolution` of the model's density, in Å; that of the map by default. A model with wider Gaussians is correlated
        at a coarser one.
        """
        key = topology, self.resolution if resolution is None else resolution
        if key not in self._correlations:
            self._correlations[key] = MapCorrelation(self.density_map, *key)
        return self._correlations[key]

    def blurred_to(self, resolution: float) -> DensityMap:
        """Return the map at a coarser resolution, in Å."""
        return self.density_map.gaussian_filter(
            SIGMA_PER_RESOLUTION * np.sqrt(resolution**2 - self.resolution**2)
        )

    def sharpening(self, blur: float) -> float:
        """Return by which width of atoms the map is sharpened in the end, where it shows a blur; 1 where it is left as it is."""
        return blur if blur >= LEAST_BLUR and self.resolution >= SHARPENED_FROM else 1.0

    def sharpened(self, blur: float) -> DensityMap:
        """Return the map as one that shows atoms as wide as its resolution says, where it shows them wider by a factor."""
        resolution, read = self.resolution, self.density_map
        variance = (SIGMA_PER_RESOLUTION * resolution) ** 2 * (blur**2 - 1)
        reach = np.zeros(3, int) if read.periodic else index_reach(read.matrix, 3 * resolution)[::-1]

        def transfer(s2: np.ndarray) -> np.ndarray:
            frequency = resolution * np.sqrt(np.maximum(s2, 0))
            faded = np.clip((frequency - FADING[0]) / (FADING[1] - FADING[0]), 0, 1)
            growth = np.exp(2 * np.pi**2 * variance * np.minimum(s2, resolution**-2))
            return 0.5 * (1 + np.cos(np.pi * faded)) * growth

        return replace(read, data=mirror_filtered(read.data, read.matrix, transfer, reach))

    def shows(self, operators: SymmetryOperators | None) -> dict[str, Any]:
        """Return whose form factors it shows, and whether solvent, as refinements of B factors and occupancies take it."""
        return {"scattering": scattering_of(operators), "solvent": self.has_solvent}


def scattering_of(operators: SymmetryOperators | None) -> str:
    """Return whose form factors a map shows: the map of a whole cell, fitted with its space group, is one of X-rays."""
    return "electron" if operators is None or operators.cell is None else "xray"


@dataclass(frozen=True)
class OtherMaps:
    """Maps of the same molecule beside that which is fitted into, corrected as that is."""

    free: FitMap | None = None  # With which the correlation is reported
    halves: tuple[DensityMap, ...] = ()  # Two by which B factors are checked, or none
    doubts: tuple[str, ...] = ()  # Sentences on what speaks against them

    @classmethod
    def of(
        cls, fit_map: FitMap, free_map: DensityMap | None, half_maps: Sequence[DensityMap] | None
    ) -> OtherMaps:
        """Return those that a user gave, as they were read."""
        corrections, resolution = fit_map.corrections, fit_map.resolution
        free, doubt = None, None
        if free_map is not None:
            free = FitMap(free_map, resolution, corrections)
            doubt = check_free_map(free.density_map, fit_map.density_map, resolution)
        halves = tuple(corrections.apply(each) for each in half_maps or ())
        if halves:
            if len(halves) != 2:
                raise InputError(
                    "must be two, the halves of one reconstruction",
                    argument="half_maps",
                    found=f"{len(halves)} of them",
                    remedy=f"give both, or one as {as_argument('free_map')}",
                )
            check_half_maps(*halves)
            check_halves_of_map(*halves, fit_map.density_map, resolution)
        return cls(free, halves, () if doubt is None else (doubt,))
