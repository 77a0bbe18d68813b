"""How what is tried in a `LocalSystem` is annealed, whatever computes it."""

from __future__ import annotations

import numpy as np

TIMESTEP = 0.003
"""ps: a seventh of the shortest period, as nothing is bound to hydrogens here."""
QUENCH = 60
"""Iterations after which annealed atoms are cold."""
SOFT = 0.05
"""Factor of the repulsion where atoms may pass through each other."""


def hardness_at(number: int, count: int) -> float:
    """Return the factor of the repulsion at one of so many temperatures: it rises to 1, by as much at each."""
    return SOFT ** (1 - (number + 1) / count)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of the velocities at one temperature."""
    return 1 + int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) % (2**31 - 2)
