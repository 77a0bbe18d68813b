"""Fit atomic models into density maps inside OpenMM: one force, any integrator, exact gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .lazy_names import lazy_names
from .plugins import hook_imports

if TYPE_CHECKING:
    from .energies import DensityFit, EnsembleFit
    from .errors import InputError
    from .maps import DensityMap
    from .models import SymmetryOperators
    from .reporters import DensityReporter
    from .restraints import PlanarityRestraint

__all__ = [
    "DensityFit",
    "DensityMap",
    "DensityReporter",
    "EnsembleFit",
    "InputError",
    "PlanarityRestraint",
    "SymmetryOperators",
]


def _load_forces() -> None:
    """Load the library of our forces, and the classes of the energies that they may be."""
    from . import native_force
    from .energies import copies, ensemble_density, mate_contacts, modules, symmetry_mates, torsion_maps  # noqa: F401

    native_force.load()


hook_imports(_load_forces)

_find, __dir__ = lazy_names(
    __name__,
    {
        "DensityFit": "energies",
        "DensityMap": "maps",
        "DensityReporter": "reporters",
        "EnsembleFit": "energies",
        "InputError": "errors",
        "PlanarityRestraint": "restraints",
        "SymmetryOperators": "models",
    },
    (
        *(
            "analysis",
            "batch",
            "chemistry",
            "cuda_graph_force",
            "energies",
            "errors",
            "fitting",
            "kernels",
            "maps",
        ),
        *("models", "native_force", "reporters", "restraints", "series", "units", "validation"),
    ),
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # What reads it takes an import that others do without.
        from importlib.metadata import version

        return version("openmm-density")
    return _find(name)
