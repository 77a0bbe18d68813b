"""Residues without density where a model has them."""

from __future__ import annotations

import numpy as np
from openmm import app

from .rebuilding.register_search import RegisterSearch, runs_of, window_means

LEAST_PART = 0.5
"""Of the median of a model's residues: where neighbours correlate less with a map on average, it does not show them there."""
LONGEST_LOOP = 15
"""Residues. More in a row are a domain, which the map shows elsewhere: it is to go there, and of its chain nothing is held."""


def unseen_residues(topology: app.Topology, correlations: np.ndarray) -> np.ndarray:
    """Find the residues of proteins that a map does not show where a model has them.

    A loop that a map does not show, or shows far away, is pulled to what belongs to others, and falls onto its neighbours: where
    nothing holds it, it goes 10 Å astray. A domain that lies far from its density looks the same, but is longer than a loop.
    """
    known = np.nan_to_num(correlations)
    chains = RegisterSearch(topology).chains
    if not chains:
        return np.zeros(0, dtype=np.int64)
    least = LEAST_PART * np.median(known[np.concatenate(chains)])
    found = [np.zeros(0, dtype=np.int64)]
    for chain in chains:
        low = window_means(known[chain]) < least
        if all(last - first < LONGEST_LOOP for first, last in runs_of(low)):
            found.append(chain[low])
    return np.sort(np.concatenate(found))
