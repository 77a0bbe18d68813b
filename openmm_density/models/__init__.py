"""Atomic models: reading, repairing, matching and writing them."""

from .preparation import Prepared, prepare
from .structures import Model, read_model

__all__ = ["Model", "Prepared", "prepare", "read_model"]
