"""The energies that our kernels compute, as TorchScript modules and as OpenMM forces."""

from .density_fit import DensityFit
from .planarity import PlanarityRestraint

__all__ = ["DensityFit", "PlanarityRestraint"]
