"""The energies that our kernels compute, as TorchScript modules and as OpenMM forces."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .density_fit import DensityFit
    from .ensemble_fit import EnsembleFit
    from .painn import PaiNN

__all__ = ["DensityFit", "EnsembleFit", "PaiNN"]

__getattr__, __dir__ = lazy_names(__name__)
