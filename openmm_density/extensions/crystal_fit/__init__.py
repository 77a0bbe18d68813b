"""Fits of crystals to measured amplitudes, by cycles of phases and fits: `CrystalFit`."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .crystal_fit import CrystalFit
    from .cycles import Cycle
    from .result import CrystalResult

__all__ = ["CrystalFit", "CrystalResult", "Cycle"]

__getattr__, __dir__ = lazy_names(__name__)
