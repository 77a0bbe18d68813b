"""What no dynamics of picoseconds finds: side chains in other rotamers, and stretches a residue farther on."""

from .changes import Changes
from .rebuilding import Rebuilding
from .search_plan import SearchPlan, Share

__all__ = ["Changes", "Rebuilding", "SearchPlan", "Share"]


def __dir__() -> list[str]:
    return __all__
