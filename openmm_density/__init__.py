"""Fit atomic models into density maps inside OpenMM: one force, any integrator, exact gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .lazy_names import lazy_names
from .plugins import hook_imports

if TYPE_CHECKING:
    from .energies import DensityFit
    from .errors import InputError
    from .maps import DensityMap
    from .reporters import DensityReporter
    from .restraints import PlanarityRestraint

__all__ = ["DensityFit", "DensityMap", "DensityReporter", "InputError", "PlanarityRestraint"]

hook_imports()

_find, __dir__ = lazy_names(
    __name__,
    {
        "DensityFit": "energies",
        "DensityMap": "maps",
        "DensityReporter": "reporters",
        "InputError": "errors",
        "PlanarityRestraint": "restraints",
    },
    (
        *("analysis", "chemistry", "cuda_graph_force", "energies", "errors", "fitting", "kernels", "maps"),
        *("models", "reporters", "restraints", "units", "validation"),
    ),
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # What reads it takes an import that others do without.
        from importlib.metadata import version

        return version("openmm-density")
    return _find(name)
