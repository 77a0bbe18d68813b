"""Alternate conformers that are fitted: copies of residues that do not see each other, each with its part of the density.

`copies` says which can be, `refinement` fits them, `last_stage` does so at the end of a fit where the map tells them apart.
"""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .copies import ConformerCopies, conformer_copies
    from .fitted import FittedConformers
    from .last_stage import fitted_conformers, kept_conformers

__all__ = ["ConformerCopies", "FittedConformers", "conformer_copies", "fitted_conformers", "kept_conformers"]

__getattr__, __dir__ = lazy_names(__name__)
