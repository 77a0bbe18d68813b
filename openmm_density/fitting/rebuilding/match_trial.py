"""The match of a chain's side chains with the places along it, shared out to the processes of trials."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from ..interrupts import Stop
from .stretch_trial import Task, TrialTools
from .trial_workers import TrialWorkers

# So few that many processes have something to do.
_RESIDUES_AT_ONCE = 8


class MatchTrial:
    """Match all residues of a chain.

    Parameters
    ----------
    chain : np.ndarray of int
        Their indices.

    Attributes
    ----------
    region : np.ndarray of int
        The chain.
    size : int
        Residues.
    energies : np.ndarray, shape (n, 3), or None
        As of `SequenceMatch.energies`, once the course has come to its end.
    """

    def __init__(self, chain: np.ndarray) -> None:
        self.region, self.size = chain, len(chain)
        self.energies: np.ndarray | None = None

    def course(self) -> Generator[list[Task], list[np.ndarray], None]:
        """Yield the tasks and take their results."""
        places = range(self.size)
        chunks = [places[begin : begin + _RESIDUES_AT_ONCE] for begin in places[::_RESIDUES_AT_ONCE]]
        self.energies = np.concatenate((yield [Task("match", matched=tuple(chunk)) for chunk in chunks]))


def matched(
    workers: TrialWorkers, tools: TrialTools, positions: np.ndarray, chain: np.ndarray, stop: Stop
) -> np.ndarray | None:
    """Return what `SequenceMatch.energies` does for a chain, bit for bit; None after a request to stop.

    Parameters
    ----------
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    trial = MatchTrial(chain)
    workers.run(tools, positions, [trial], stop, lambda _: None)
    return trial.energies
