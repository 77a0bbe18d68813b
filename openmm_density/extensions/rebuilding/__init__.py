"""What no dynamics of picoseconds finds: other rotamers, peptides turned over, and stretches some residues farther on."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .rebuilding import Rebuilding
    from .side_chain_evidence import SideChainEvidence, best_of_models
    from .trial_workers import TrialWorkers

__all__ = ["Rebuilding", "SideChainEvidence", "TrialWorkers", "best_of_models"]

__getattr__, __dir__ = lazy_names(__name__)
