"""Which particles OpenMM moves together when it wraps molecules into a periodic box."""

from __future__ import annotations

import numpy as np
import openmm
from openmm.app import Topology
from scipy import sparse

from ..models.merging import constraints_of, terms_of


def molecule_numbers(topology: Topology, system: openmm.System | None) -> np.ndarray:
    """Return the number of each particle's molecule, int64 (N,).

    OpenMM wraps molecules as the System's bonds and constraints define them; the topology may join what they do not, such as a
    metal and its ligands. A part of a molecule can be put back on its own, two molecules as one cannot: with a System none of
    the molecules given here is larger than OpenMM takes it to be.
    """
    if system is None:
        pairs = [(bond[0].index, bond[1].index) for bond in topology.bonds()]
    else:
        pairs = constraints_of(system)[0].tolist()
        for force in system.getForces():
            if isinstance(force, (openmm.HarmonicBondForce, openmm.CustomBondForce)):
                pairs += terms_of(force, "Bond", 2)[0].tolist()
    i, j = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    n_particles = topology.getNumAtoms()
    graph = sparse.coo_array((np.ones(len(i)), (i, j)), shape=(n_particles, n_particles))
    return sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def centroids(molecules: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the centroid of each molecule's atoms, numbered from 0 without gaps by `molecules` int (M,); `positions` (M, 3)."""
    counts = np.bincount(molecules)
    return np.stack([np.bincount(molecules, positions[:, axis]) / counts for axis in range(3)], axis=1)
