"""Many models for one map: replicas whose mean density is compared with it, and whether the map gives a reason for them."""

from .search import EnsembleResult, EnsembleSearch
from .verdict import Verdict

__all__ = ["EnsembleResult", "EnsembleSearch", "Verdict"]
