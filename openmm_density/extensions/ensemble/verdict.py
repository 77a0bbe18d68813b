"""Whether a map gives a reason for an ensemble: whether replicas explain data that they have not seen better than one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .free_data import HALF_MAPS
from .states import Conformation

LEAST_GAIN = 0.005
"""Of the free correlation: less is no reason, however sure it is."""
STANDARD_ERRORS = 2.5
"""That a gain must be beyond 0."""
LEAST_WEIGHT = 0.05
"""Of a conformation: one replica that strayed, which the map gives no weight, is none."""


def n_conformations(found: Sequence[Conformation]) -> int:
    """Return how many conformations have a weight that counts."""
    return sum(each.weight >= LEAST_WEIGHT for each in found)


def is_sure(gain: float, standard_error: float) -> bool:
    """Return whether a gain of the free correlation is a reason."""
    return gain > max(LEAST_GAIN, STANDARD_ERRORS * standard_error)


@dataclass(frozen=True)
class MainConformation:
    """The heaviest conformation of an ensemble without the others."""

    cc_free_b: float  # Its correlation with what was not fitted, with B factors of residues refined for it
    standard_error: float  # Of the difference from the ensemble's


@dataclass(frozen=True)
class Verdict:
    """What free data say of one model and of an ensemble, both refined against the same data with the same steps.

    `kind`: what is free: "half maps" or "shells"; `band`: Å from and to which it is tested, the first infinite where all is;
    `cc_free_single`, `cc_free_ensemble`: CC with what was not fitted, over the voxels within 3 Å of an atom of either, with
    uniform B = 8 d; `cc_free_single_b`, `cc_free_ensemble_b`: the same with a B factor for each residue, refined against what
    was fitted, and the `standard_error` of their difference: what the verdict goes by, as one model with B factors explains
    small motions as well; `cc_work_…`: CC with what was fitted; `n_conformations` of a weight of `LEAST_WEIGHT` or more;
    `main`: what the heaviest alone says, where there are others: one model may be worse than a replica that found its place,
    which is no reason for others.
    """

    kind: str
    band: tuple[float | None, float]
    cc_free_single: float
    cc_free_ensemble: float
    cc_free_single_b: float
    cc_free_ensemble_b: float
    standard_error: float
    cc_work_single: float
    cc_work_ensemble: float
    n_conformations: int
    main: MainConformation | None = None

    @property
    def gain(self) -> float:
        """Of the free correlation."""
        return self.cc_free_ensemble_b - self.cc_free_single_b

    @property
    def is_ensemble(self) -> bool:
        """Whether the map gives a reason for an ensemble."""
        sure = is_sure(self.gain, self.standard_error)
        return sure and self.n_conformations > 1 and self._others_tell

    @property
    def _others_tell(self) -> bool:
        if self.main is None:
            return True
        return is_sure(self.cc_free_ensemble_b - self.main.cc_free_b, self.main.standard_error)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        where = "the other half map" if self.kind == HALF_MAPS else self._shells()
        figures = (
            f"correlation with {where} {self.cc_free_ensemble_b:.3f} for the ensemble and {self.cc_free_single_b:.3f} for one "
            f"model, both with B factors of residues; the difference is {self.gain:+.3f} ± {self.standard_error:.3f}"
        )
        if self.is_ensemble:
            return f"The map gives a reason for an ensemble: {figures}."
        if is_sure(self.gain, self.standard_error):
            if self.n_conformations > 1 and self.main is not None:
                return (
                    f"The map gives no reason for an ensemble: its heaviest conformation alone has {self.main.cc_free_b:.3f} "
                    f"({figures}), so that one model fits as well, and better than the fitted one."
                )
            return (
                f"The map gives no reason for an ensemble: the replicas are one conformation ({figures}), and what they gain is "
                "the spread of atoms about it."
            )
        return f"The map gives no reason for an ensemble: {figures}."

    def _shells(self) -> str:
        return (
            f"the map's frequencies from {self.band[0]:.2f} to {self.band[1]:.2f} Å, which were not fitted,"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``summary.json``."""
        return {
            **asdict(self),
            "band": list(self.band),
            "cc_gain": self.gain,
            "is_ensemble": self.is_ensemble,
            "sentence": self.sentence,
        }
