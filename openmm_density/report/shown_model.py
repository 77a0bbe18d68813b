"""A model as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

COPIES = "copies"
"""The key of what follows from the first model by symmetry."""


@dataclass(frozen=True)
class ShownModel:
    """A model as the page shows it.

    Attributes
    ----------
    key : str
        "after", "before", "reference" or `COPIES`: by it the page knows its colour, and which figures of a residue are its own.
    label : str
        What the page calls it.
    topology : openmm.app.Topology
        With bonds.
    positions : np.ndarray, shape (N, 3)
        Å; nan for atoms that it does not have.
    b_factors : np.ndarray, shape (N,), optional
        Å².
    color : str, optional
        As ``#rrggbb``, where the page has none for the key.
    """

    key: str
    label: str
    topology: app.Topology
    positions: np.ndarray
    b_factors: np.ndarray | None = None
    color: str | None = None
