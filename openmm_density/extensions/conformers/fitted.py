"""What comes out where alternate conformers are fitted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .copies import ConformerCopies


@dataclass(frozen=True)
class NotShown:
    """A conformer that was fitted, and that the map does not show."""

    group: int  # The number of its group where it was fitted
    residue: str
    label: str
    occupancy: float  # `occupancy`, `deviation` as refined.
    deviation: float
    # How far its atoms are from those of another conformer on average, in Å, where the map does not tell both apart
    near: float | None
    written: bool = False  # Whether it is written as it was fitted, and not as the input has it

    def __str__(self) -> str:
        """Return its name and why it is not seen, as in ``A GLU 75 B (occupancy 0.03 ± 0.02)``."""
        why = f"occupancy {self.occupancy:.2f} ± {self.deviation:.2f}"
        if self.near is not None:
            why = f"{self.near:.1f} Å from another one, which is too near for this map"
        return f"{self.residue} {self.label} ({why})"

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and strings."""
        names = ("residue", "label", "occupancy", "deviation", "near", "written")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class FittedConformers:
    """Alternate conformers of a model that were fitted with it: `copies` have the occupancies as they are now.

    `positions` (N + K, 3) in Å of the model, and of the copies of its atoms behind them; `deviations`: of each group the
    standard deviations of the occupancies by label; `notes`: what is to be known of them, one sentence each; `not_shown`:
    those that were fitted and that the map does not show, or, of a model that was kept, that it does not show where the input
    has them; `cc_both`, `cc_major`: CC around the conformers with them, and with those of the model alone, each with B factors
    refined for it.
    """

    copies: ConformerCopies
    positions: np.ndarray
    deviations: list[dict[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_shown: list[NotShown] = field(default_factory=list)
    cc_both: float | None = None
    cc_major: float | None = None

    def moved(self, positions: np.ndarray) -> FittedConformers:
        """Return the same with the model at other positions (N, 3) in Å."""
        further = self.positions[len(positions) :]
        return replace(self, positions=np.concatenate([positions, further]))

    def with_only(self, groups: list[int]) -> FittedConformers:
        """Return those of some groups."""
        kept, n = np.isin(self.copies.group_of_copy, groups), self.copies.n_atoms
        positions = np.concatenate([self.positions[:n], self.positions[n:][kept]])
        deviations = [self.deviations[k] for k in groups]
        copies = self.copies.with_only(groups)
        return replace(self, copies=copies, positions=positions, deviations=deviations)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, without positions."""
        return {
            "fitted": [
                {"residue": group.name, "occupancies": shares, "deviations": deviations}
                for group, shares, deviations in zip(self.copies.groups, self.copies.shares, self.deviations)
            ],
            "not_shown": [each.as_dict() for each in self.not_shown],
            "cc_both": self.cc_both,
            "cc_major": self.cc_major,
            "notes": list(self.notes),
        }
