"""What no dynamics of picoseconds finds: other rotamers, peptides turned over, and stretches some residues farther on."""

from .changes import Changes
from .peptide_search import PEPTIDES_SEEN
from .rebuilding import Rebuilding
from .search_plan import SearchPlan, Share
from .side_chain_evidence import SideChainEvidence
from .trial_workers import TrialWorkers

__all__ = [
    "PEPTIDES_SEEN",
    "Changes",
    "Rebuilding",
    "SearchPlan",
    "Share",
    "SideChainEvidence",
    "TrialWorkers",
]
