"""Fit atomic models into density maps inside OpenMM: one force, any integrator, exact gradients."""

from .plugins import load_torch_plugins

load_torch_plugins()

from .energies import DensityFit, PlanarityRestraint  # noqa: E402
from .errors import InputError  # noqa: E402
from .maps import DensityMap  # noqa: E402
from .reporters import DensityReporter  # noqa: E402

__all__ = ["DensityFit", "DensityMap", "DensityReporter", "InputError", "PlanarityRestraint"]
