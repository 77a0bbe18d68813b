"""Exchanges by Metropolis' criterion, and what is reported of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

GOOD_ACCEPTANCE = 0.2
"""Of neighbours' attempts: with much less a model hardly climbs the ladder, with much more rungs are wasted."""
# Of Gaussian energies the mean of Δ at which so many attempts are accepted: erfc(√Δ / 2).
_GOOD_RISE = 3.29


class Attempt(NamedTuple):
    """What became of an attempt to exchange."""

    order: np.ndarray  # int (R,), the rung from which each rung takes its model
    # int (R − 1,), for each pair of neighbours 1 if it exchanged, 0 if it did not, −1 if it was not tried
    accepted: np.ndarray
    rises: np.ndarray  # (R − 1,), Δ of each pair that was tried, else 0


def exchange_neighbours(reduced: np.ndarray, odd: bool, random: np.random.Generator) -> Attempt:
    """Draw which neighbours on a ladder exchange their models, with the probability min(1, exp(−Δ)).

    Δ = u_i(x_j) + u_j(x_i) − u_i(x_i) − u_j(x_j) (Sugita & Okamoto 1999, Fukunishi et al. 2002): no rung's ensemble is
    changed. `reduced` (R, R): u_i(x_j): the energy in kT that the model on rung j has on rung i. Only neighbours count.
    """
    rungs = len(reduced)
    order, accepted, rises = np.arange(rungs), np.full(rungs - 1, -1), np.zeros(rungs - 1)
    for i in range(int(odd), rungs - 1, 2):
        j = i + 1
        rise = rises[i] = reduced[i, j] + reduced[j, i] - reduced[i, i] - reduced[j, j]
        # Drawn in any case, so that the numbers of later pairs do not depend on this one.
        drawn = random.random()
        accepted[i] = bool(rise <= 0 or drawn < np.exp(-rise))
        if accepted[i]:
            order[[i, j]] = order[[j, i]]
    return Attempt(order, accepted, rises)


@dataclass
class ExchangeRecord:
    """What became of exchanges so far.

    Attributes
    ----------
    walkers : list of int
        Which walker is on each rung; a walker is a model that goes on from where it started, whatever rung it is on.
    tried, accepted : list of int
        For each pair of neighbours on the ladder.
    rises : list of float
        For each pair the sum of Δ over its attempts.
    heading : list of int
        For each walker 1 if it was last at the high end of the ladder, 2 if it has been at the low end since, 0 if never there.
    round_trips : list of int
        For each walker how often it has been from the high end to the low and back.
    """

    walkers: list[int]
    tried: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    rises: list[float] = field(default_factory=list)
    heading: list[int] = field(default_factory=list)
    round_trips: list[int] = field(default_factory=list)

    @classmethod
    def begin(cls, rungs: int) -> ExchangeRecord:
        """Return the record of replicas before they first exchange."""
        pairs = rungs - 1
        record = cls(list(range(rungs)), [0] * pairs, [0] * pairs, [0.0] * pairs, [0] * rungs, [0] * rungs)
        record._note_ends()
        return record

    def note(self, attempt: Attempt) -> None:
        """Note an attempt of `exchange_neighbours`."""
        self.walkers = [self.walkers[i] for i in attempt.order]
        for pair, (outcome, rise) in enumerate(zip(attempt.accepted, attempt.rises)):
            self.tried[pair] += int(outcome >= 0)
            self.accepted[pair] += int(outcome > 0)
            self.rises[pair] += float(rise)
        self._note_ends()

    def _note_ends(self) -> None:
        low, high = self.walkers[0], self.walkers[-1]
        if self.heading[low] == 1:
            self.heading[low] = 2
        if self.heading[high] == 2:
            self.round_trips[high] += 1
        self.heading[high] = 1

    @property
    def acceptance(self) -> list[float | None]:
        """For each pair of neighbours the part of its attempts that exchanged; None where there was none."""
        return [accepted / tried if tried else None for accepted, tried in zip(self.accepted, self.tried)]

    @property
    def rungs_needed(self) -> int | None:
        """About how many rungs between the same ends would accept `GOOD_ACCEPTANCE` of attempts; None before each was tried.

        Δ grows with the square of the step between rungs (its logarithm, of strengths): a pair with a mean of Δ gives way to
        √(Δ / Δ_good) pairs.
        """
        if not all(self.tried):
            return None
        means = [max(rise / tried, 0.0) for rise, tried in zip(self.rises, self.tried)]
        return max(2, 1 + math.ceil(sum(math.sqrt(mean / _GOOD_RISE) for mean in means)))
