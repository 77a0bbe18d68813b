"""How well a model agrees with a map, and with chemistry."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .model_report import report

__all__ = ["report"]

__getattr__, __dir__ = lazy_names(__name__, ("correlation", "map_checks"))
