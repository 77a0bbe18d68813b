"""What no dynamics of picoseconds finds: side chains in other rotamers, and stretches some residues farther on."""

from .changes import Changes
from .rebuilding import Rebuilding
from .search_plan import SearchPlan, Share
from .side_chain_evidence import SideChainEvidence
from .trial_workers import TrialWorkers

__all__ = ["Changes", "Rebuilding", "SearchPlan", "Share", "SideChainEvidence", "TrialWorkers"]


def __dir__() -> list[str]:
    return __all__
