"""Models for a series of volumes, each fitted from its neighbour's, so that they form a path: `Series`."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .internal_coordinates import InternalCoordinate
    from .result import SeriesResult
    from .series import Series

__all__ = ["InternalCoordinate", "Series", "SeriesResult"]

__getattr__, __dir__ = lazy_names(__name__)
