"""Fits of crystals to measured amplitudes, by cycles of phases and fits: `CrystalFit`."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .crystal_fit import CrystalFit
    from .cycles import Cycle
    from .fit_command import check_new_crystal as check_new_crystal
    from .protocol import check_cycles as check_cycles
    from .result import CrystalResult

# What users import; the others are read from here by this project.
__all__ = ["CrystalFit", "CrystalResult", "Cycle"]

__getattr__, __dir__ = lazy_names(__name__)
