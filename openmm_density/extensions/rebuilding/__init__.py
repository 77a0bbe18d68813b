"""What no dynamics of picoseconds finds: other rotamers, peptides turned over, and stretches some residues farther on."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .rebuilding import Rebuilding
    from .side_chain_evidence import ENERGY_PER_NAT, SideChainEvidence, evidence_of
    from .trial_workers import TrialWorkers

__all__ = ["ENERGY_PER_NAT", "Rebuilding", "SideChainEvidence", "TrialWorkers", "evidence_of"]

__getattr__, __dir__ = lazy_names(__name__)
