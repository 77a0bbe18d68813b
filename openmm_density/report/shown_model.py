"""A model as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

COPIES = "copies"
"""The key of what follows from the first model by symmetry."""


@dataclass(frozen=True)
class ShownModel:
    """A model as the page shows it, under its `label`.

    `key`: "after", "before", "reference" or `COPIES`: by it the page knows its colour, unless `color` is one as ``#rrggbb``,
    and which figures of a residue are its own; `topology` with bonds; `positions` (N, 3) in Å, nan for atoms that it does not
    have; `b_factors` (N,) in Å².
    """

    key: str
    label: str
    topology: app.Topology
    positions: np.ndarray
    b_factors: np.ndarray | None = None
    color: str | None = None
