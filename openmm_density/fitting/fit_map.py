"""The map of a fit: corrected, with the resolution that it has, and with the correlations of models with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app

from ..base.errors import InputError, as_argument
from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..maps.half_maps import check_half_maps, check_halves_of_map
from ..maps.map_agreement import check_free_map
from ..models.symmetry_operators import SymmetryOperators
from ..validation.correlation import MapCorrelation


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
