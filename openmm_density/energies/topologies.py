"""Whether a topology is that of the System and of the positions that come with it."""

from __future__ import annotations

from itertools import islice

import numpy as np
import openmm
from openmm.app import Topology

from ..errors import InputError

# No two bonded atoms are nearer than the 0.74 Å of H–H; lengths in nm are all below 0.3.
_SHORTEST_BONDS = 0.5
# As many tell as well as all of a box of water.
_ENOUGH_BONDS = 1000


def check_system(topology: Topology, system: openmm.System | None) -> None:
    """Refuse a topology that has more or fewer atoms than a System has particles."""
    if system is None or system.getNumParticles() == topology.getNumAtoms():
        return
    raise InputError(
        f"topology has {topology.getNumAtoms()} atoms but system has {system.getNumParticles()} particles: "
        "give the topology of the Simulation, such as modeller.topology."
    )


def bonded_pairs(topology: Topology) -> np.ndarray:
    """List bonded atoms, those of the first bonds of a large topology, shape (B, 2)."""
    pairs = [(bond[0].index, bond[1].index) for bond in islice(topology.bonds(), _ENOUGH_BONDS)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def check_unit(bonds: np.ndarray, positions: np.ndarray) -> None:
    """Refuse positions that are in nm and were taken for Å.

    Parameters
    ----------
    bonds : np.ndarray, shape (B, 2)
        Pairs of bonded atoms; without any nothing is refused.
    positions : np.ndarray, shape (N, 3)
        Taken for Å.

    Raises
    ------
    InputError
        If the median of the bonds is shorter than any bond.
    """
    if not len(bonds):
        return
    median = float(np.median(np.linalg.norm(positions[bonds[:, 0]] - positions[bonds[:, 1]], axis=1)))
    # Atoms that are all in one place are in no unit.
    if 0 < median < _SHORTEST_BONDS:
        raise InputError(
            f"positions look like nm, as half of the bonds are shorter than {median:.2f} Å: give them in Å, or as a Quantity."
        )
