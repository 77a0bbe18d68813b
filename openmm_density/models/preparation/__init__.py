"""Complete a model for a force field, and keep rigid what the force field does not know."""

from .prepared import PreparationReport, Prepared
from .steps import prepare, repeatable

__all__ = ["PreparationReport", "Prepared", "prepare", "repeatable"]
