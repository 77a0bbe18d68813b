"""Fit atomic models into density maps inside OpenMM: one force, any integrator, exact gradients."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .plugins import attend_to_imports

if TYPE_CHECKING:
    from .energies import DensityFit, PlanarityRestraint
    from .errors import InputError
    from .maps import DensityMap
    from .reporters import DensityReporter

__all__ = ["DensityFit", "DensityMap", "DensityReporter", "InputError", "PlanarityRestraint"]

_WHERE = {
    "DensityFit": "energies",
    "DensityMap": "maps",
    "DensityReporter": "reporters",
    "InputError": "errors",
    "PlanarityRestraint": "energies",
}
_MODULES = (
    *("analysis", "energies", "errors", "fitting", "kernels", "maps", "models", "reporters"),
    *("restraints", "units", "validation"),
)

attend_to_imports()


def __getattr__(name: str) -> Any:
    """Import what is asked for: all of it takes seconds, of which ``openmm-density --help`` needs none."""
    if name in _WHERE:
        found = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        found = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
