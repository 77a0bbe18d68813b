"""Crystals from measured amplitudes: structure factors, bulk solvent, scales, σA-weighted maps and R factors."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .crystal_model import crystal_structure
    from .phasing import Phased, phased, phased_file
    from .r_factors import RFactors
    from .r_factors import cycles_table as cycles_table
    from .r_factors import error_of_r_free as error_of_r_free
    from .r_factors import r_free_in_words as r_free_in_words
    from .r_factors import shells_table as shells_table
    from .reflections import Reflections, read_reflections

# What users import; the others are read from here by this project.
__all__ = [
    "Phased",
    "RFactors",
    "Reflections",
    "crystal_structure",
    "phased",
    "phased_file",
    "read_reflections",
]

__getattr__, __dir__ = lazy_names(__name__)
