"""Fit atomic models into density maps inside OpenMM: one force, any integrator, exact gradients."""

from __future__ import annotations

from os import path as _path
from typing import TYPE_CHECKING, Any

from .base.lazy_names import lazy_names
from .base.plugins import hook_imports

if TYPE_CHECKING:
    from .base.errors import InputError, SimulationError
    from .energies import DensityFit, EnsembleFit
    from .fitting import FlexibleFit
    from .maps import DensityMap
    from .models import SymmetryOperators, read_model
    from .reporters import DensityReporter
    from .restraints import PlanarityRestraint

# In a clone the kernels lie beside this folder. Who has installed the package and works in the clone imports this one.
__path__ += [] if _path.isdir(_path.join(__path__[0], "kernels")) else [_path.dirname(__path__[0])]

__all__ = [
    "DensityFit",
    "DensityMap",
    "DensityReporter",
    "EnsembleFit",
    "FlexibleFit",
    "InputError",
    "PlanarityRestraint",
    "SimulationError",
    "SymmetryOperators",
    "read_model",
]


def _load_forces() -> None:
    """Load the library of our forces, and the classes of the energies that they may be."""
    from .energies import (  # noqa: F401
        copies,
        ensemble_density,
        mate_contacts,
        modules,
        native_force,
        symmetry_mates,
        torsion_maps,
    )

    native_force.load_force()


def _register_operators() -> None:
    from .kernels.library import register_operators

    register_operators()


hook_imports(_load_forces, _register_operators)

_find, __dir__ = lazy_names(
    __name__,
    (
        "analysis",
        "energies",
        "extensions",
        "fitting",
        "kernels",
        "maps",
        "models",
        "reporters",
        "restraints",
        "validation",
    ),
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # What reads it takes an import that others do without.
        from importlib.metadata import version

        return version("openmm-density")
    return _find(name)
