"""What comes out where alternate conformers are fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .copies import ConformerCopies


@dataclass(frozen=True)
class FittedConformers:
    """Alternate conformers of a model that were fitted with it.

    Attributes
    ----------
    copies : ConformerCopies
        With the occupancies as they are now.
    positions : np.ndarray, shape (N + K, 3)
        Å: of the model, and of the copies of its atoms behind them.
    deviations : list of dict of str to float
        Of each group the standard deviations of the occupancies of its conformers, by label.
    notes : list of str
        What is to be known of them, one sentence each.
    cc_both, cc_major : float, optional
        Of the density around the conformers with them, and with those of the model alone, each with B factors refined for it.
    """

    copies: ConformerCopies
    positions: np.ndarray
    deviations: list[dict[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cc_both: float | None = None
    cc_major: float | None = None

    def with_only(self, groups: list[int], notes: list[str]) -> FittedConformers:
        """Return those of some groups."""
        kept, n = np.isin(self.copies.group_of_copy, groups), self.copies.n_atoms
        positions = np.concatenate([self.positions[:n], self.positions[n:][kept]])
        deviations = [self.deviations[k] for k in groups]
        copies = self.copies.with_only(groups)
        return replace(
            self, copies=copies, positions=positions, deviations=deviations, notes=[*self.notes, *notes]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, without positions."""
        return {
            "fitted": [
                {"residue": group.name, "occupancies": shares, "deviations": deviations}
                for group, shares, deviations in zip(self.copies.groups, self.copies.shares, self.deviations)
            ],
            "cc_both": self.cc_both,
            "cc_major": self.cc_major,
            "notes": list(self.notes),
        }
