"""Atoms that are nearly in one place, where forces overflow."""

from __future__ import annotations

import numpy as np
import openmm
from scipy.spatial import cKDTree

TOO_CLOSE = 0.08
"""nm; nearer than this no two atoms are bonded, and Lennard-Jones forces overflow."""


def clashing_pairs(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Return the pairs of atoms nearer than `TOO_CLOSE` that no bonded term joins, shape (n, 2).

    `positions` (N, 3) in nm.
    """
    pairs = cKDTree(positions).query_pairs(TOO_CLOSE, output_type="ndarray")
    # To list what is bonded takes far longer, and most models have no such pairs.
    bonded = nonbonded_exceptions(system) if len(pairs) else set()
    apart = [pair for pair in pairs.tolist() if frozenset(pair) not in bonded]
    return np.array(apart, dtype=np.int64).reshape(-1, 2)


def nonbonded_exceptions(system: openmm.System) -> set[frozenset[int]]:
    """Return the pairs of atoms up to three bonds apart: those between which a System's `NonbondedForce` does not act in full."""
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    return {
        frozenset(nonbonded.getExceptionParameters(index)[:2])
        for index in range(nonbonded.getNumExceptions())
    }
