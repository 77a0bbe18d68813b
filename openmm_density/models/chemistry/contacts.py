"""How near atoms come that are not bonded: van der Waals radii, contacts and clashes."""

from __future__ import annotations

import gemmi
import numpy as np
from openmm import app
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from .elements import is_hydrogen, is_metal
from .topologies import bonded_pairs

CLASH_OVERLAP = 0.4
"""Å by which the van der Waals spheres of a clashing pair overlap (as MolProbity)."""
HYDROGEN_BOND_ALLOWANCE = 0.4
"""Å by which a pair of N, O, F or S may be nearer than that: they may form a hydrogen bond."""
BONDS_APART = 4
"""Pairs up to so many bonds apart are excluded: backbones and rings hold them close (O to the next C in a helix: 2.8 Å)."""

_POLAR = frozenset({"N", "O", "F", "S"})


class ContactAtoms:
    """What of the heavy atoms of a topology tells which of them clash, found once for many positions."""

    def __init__(self, topology: app.Topology) -> None:
        self._radii, self._polar = contact_radii(topology)
        counted = [a.element is not None and not is_hydrogen(a) and not is_metal(a) for a in topology.atoms()]
        self._chosen, self._bonds = np.flatnonzero(counted), bonded_pairs(topology)

    def near(self, positions: np.ndarray, reach: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return what `near_contacts` does."""
        radii, polar, chosen = self._radii, self._polar, self._chosen
        if len(chosen) < 2:
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
        farthest = 2 * radii[chosen].max() - CLASH_OVERLAP + reach
        pairs = chosen[cKDTree(positions[chosen]).query_pairs(farthest, output_type="ndarray")]
        i, j = pairs[:, 0], pairs[:, 1]
        clash = radii[i] + radii[j] - CLASH_OVERLAP - HYDROGEN_BOND_ALLOWANCE * (polar[i] & polar[j])
        near = np.linalg.norm(positions[i] - positions[j], axis=1) < clash + reach
        pairs, clash = pairs[near], clash[near]
        apart = ~within_bonds(self._bonds, pairs, len(radii))
        order = np.lexsort((pairs[apart, 1], pairs[apart, 0]))
        return pairs[apart][order], clash[apart][order]


def near_contacts(
    topology: app.Topology, positions: np.ndarray, reach: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of heavy atoms (P, 2) that clash, or are up to `reach` farther, and the distances of a clash (P,), Å."""
    return ContactAtoms(topology).near(positions, reach)


def contact_radii(topology: app.Topology) -> tuple[np.ndarray, np.ndarray]:
    """Return van der Waals radii in Å, 0 without an element, and which atoms are N, O, F or S, each of shape (N,)."""
    symbols = [None if atom.element is None else atom.element.symbol for atom in topology.atoms()]
    radii = {symbol: gemmi.Element(symbol).vdw_r for symbol in set(symbols) if symbol is not None}
    return (
        np.array([radii.get(symbol, 0.0) for symbol in symbols], dtype=np.float64),
        np.array([symbol in _POLAR for symbol in symbols], dtype=bool),
    )


def within_bonds(bonds: np.ndarray, pairs: np.ndarray, n_atoms: int, most: int = BONDS_APART) -> np.ndarray:
    """Return which pairs of atoms are at most so many bonds apart, shape (P,). `bonds`, `pairs` int (B, 2)."""
    if not len(pairs):
        return np.zeros(0, dtype=bool)
    both = np.concatenate([bonds, bonds[:, ::-1]])
    step = csr_array((np.ones(len(both), dtype=np.int32), (both[:, 0], both[:, 1])), shape=(n_atoms,) * 2)
    walks, near = step, step
    for _ in range(most - 1):
        walks = walks @ step
        near = near + walks
    return np.asarray(near[pairs[:, 0], pairs[:, 1]]).ravel() > 0
