"""Density maps: their files, their grids, and the density that a model would have."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .density_map import DensityMap

__all__ = ["DensityMap"]

__getattr__, __dir__ = lazy_names(__name__, ("corrections",))
