"""Ligands with a potential of their own in a fit: where it comes from, and whether it knows where the ligand goes."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .potentials import FoundPotentials, LigandSources, find_potentials
    from .watch import LigandWatch, WatchedLigand

__all__ = ["FoundPotentials", "LigandSources", "LigandWatch", "WatchedLigand", "find_potentials"]

__getattr__, __dir__ = lazy_names(__name__)
