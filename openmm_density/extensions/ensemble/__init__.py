"""Many models for one map: replicas whose mean density is compared with it, and whether the map gives a reason for them."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .search import EnsembleResult, EnsembleSearch
    from .verdict import Verdict

__all__ = ["EnsembleResult", "EnsembleSearch", "Verdict"]

__getattr__, __dir__ = lazy_names(__name__)
