"""How well a model agrees with a map, and with chemistry."""

from .report import report

__all__ = ["report"]
