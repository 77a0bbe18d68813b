"""Density maps: their files, their grids, and the density that a model would have."""

from .density_map import DensityMap

__all__ = ["DensityMap"]
