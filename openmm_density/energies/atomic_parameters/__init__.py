"""What a map says of each atom beside its place: B factors and occupancies, refined with the density kernels' own gradients."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .b_factors import BFactorRefinement, BFactors
    from .occupancies import Occupancies, OccupancyRefinement

__all__ = ["BFactorRefinement", "BFactors", "Occupancies", "OccupancyRefinement"]

__getattr__, __dir__ = lazy_names(__name__)
