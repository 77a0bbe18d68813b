"""The energies that our kernels compute, as TorchScript modules and as OpenMM forces."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .density_fit import DensityFit
    from .planarity import PlanarityRestraint

__all__ = ["DensityFit", "PlanarityRestraint"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {"DensityFit": "density_fit", "PlanarityRestraint": "planarity"},
    deprecated=("cuda_graph_force", "planes"),
)
