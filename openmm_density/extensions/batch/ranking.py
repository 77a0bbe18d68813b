"""By what the fits into one map, or to the amplitudes of one crystal, are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

CC, R_FREE = "CC", "R-free"
NOT_FITTED, FITTED_INTO, ALL_COPIES, AMPLITUDES = (
    "with a map that it was not fitted into",
    "with the map that it was fitted into",
    "of all copies with the map that they were fitted into",
    "against amplitudes that it was not fitted to",
)


@dataclass(frozen=True)
class Ranking:
    """A figure of each of several models, by which one is better than another."""

    values: tuple[float, ...]  # NaN of a model that has none
    of: str = FITTED_INTO  # What the figure is of, in words that follow it
    # {"CC", "R-free"}, what it is called: of correlations the highest is the best, of R-free the lowest
    figure: str = CC

    @property
    def order(self) -> list[int]:
        """The places of the models, the best first; those without a figure last."""
        merits = np.array(self.values, dtype=float) * (-1.0 if self.figure == CC else 1.0)
        return [int(each) for each in np.argsort(np.where(np.isnan(merits), np.inf, merits), kind="stable")]

    @property
    def data(self) -> str:
        """What the models are of: a map, or a crystal."""
        return "map" if self.figure == CC else "crystal"

    def taken(self, places: Sequence[int]) -> Ranking:
        """Return that of some of the models, in another order."""
        return replace(self, values=tuple(self.values[place] for place in places))

    def in_words(self, place: int) -> str:
        """Return the figure of a model, as in ``CC of 0.912 with the map that it was fitted into``."""
        return f"{self.figure} of {self.values[place]:.3f} {self.of}"
