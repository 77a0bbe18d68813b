"""Maps that are not fitted into: one that is free, and half maps, compared with the fitted one before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import InputError, as_argument
from ..maps.density_map import DensityMap
from ..maps.free_maps import check_free_map
from ..maps.half_maps import check_half_maps, check_halves_of_map
from .fit_map import FitMap


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
