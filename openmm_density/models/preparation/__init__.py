"""Complete a model for a force field, and keep rigid what the force field does not know."""

import torch  # noqa: F401  before openmm, or openmm-torch's platform plugins stay unloaded

from .prepared import PreparationReport, Prepared
from .steps import prepare, repeatable

__all__ = ["PreparationReport", "Prepared", "prepare", "repeatable"]
