"""Atomic models: reading, repairing, matching and writing them."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .model import Model
    from .preparation import Prepared, prepare
    from .structures import read_model
    from .symmetry_operators import SymmetryOperators

__all__ = ["Model", "Prepared", "SymmetryOperators", "prepare", "read_model"]

__getattr__, __dir__ = lazy_names(__name__, ("structure_files",))
