"""Exchanges by Metropolis' criterion, and what is reported of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def exchange_neighbours(
    reduced: np.ndarray, odd: bool, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which neighbours on a ladder exchange their models, with the probability min(1, exp(−Δ)).

    Δ = u_i(x_j) + u_j(x_i) − u_i(x_i) − u_j(x_j) (Sugita & Okamoto 1999, Fukunishi et al. 2002): no rung's ensemble is changed.

    Parameters
    ----------
    reduced : np.ndarray, shape (R, R)
        u_i(x_j): the energy in kT that the model on rung j has on rung i. Only neighbours count.
    odd : bool
        Whether the pairs (1, 2), (3, 4) … are tried, or (0, 1), (2, 3) …
    random : Generator

    Returns
    -------
    order : np.ndarray of int, shape (R,)
        The rung from which each rung takes its model.
    accepted : np.ndarray of int, shape (R − 1,)
        For each pair of neighbours 1 if it exchanged, 0 if it did not, −1 if it was not tried.
    """
    rungs = len(reduced)
    order, accepted = np.arange(rungs), np.full(rungs - 1, -1)
    for i in range(int(odd), rungs - 1, 2):
        j = i + 1
        rise = reduced[i, j] + reduced[j, i] - reduced[i, i] - reduced[j, j]
        # Drawn in any case, so that the numbers of later pairs do not depend on this one.
        drawn = random.random()
        accepted[i] = bool(rise <= 0 or drawn < np.exp(-rise))
        if accepted[i]:
            order[[i, j]] = order[[j, i]]
    return order, accepted


@dataclass
class ExchangeRecord:
    """What became of exchanges so far.

    Attributes
    ----------
    walkers : list of int
        Which walker is on each rung; a walker is a model that goes on from where it started, whatever rung it is on.
    tried, accepted : list of int
        For each pair of neighbours on the ladder.
    heading : list of int
        For each walker 1 if it was last at the high end of the ladder, 2 if it has been at the low end since, 0 if never there.
    round_trips : list of int
        For each walker how often it has been from the high end to the low and back.
    """

    walkers: list[int]
    tried: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    heading: list[int] = field(default_factory=list)
    round_trips: list[int] = field(default_factory=list)

    @classmethod
    def begin(cls, rungs: int) -> ExchangeRecord:
        """Return the record of replicas before they first exchange."""
        record = cls(list(range(rungs)), [0] * (rungs - 1), [0] * (rungs - 1), [0] * rungs, [0] * rungs)
        record._note_ends()
        return record

    def note(self, order: np.ndarray, accepted: np.ndarray) -> None:
        """Note an attempt of `exchange_neighbours`."""
        self.walkers = [self.walkers[i] for i in order]
        for pair, outcome in enumerate(accepted):
            self.tried[pair] += int(outcome >= 0)
            self.accepted[pair] += int(outcome > 0)
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
