"""Where along its chain each side chain fits: stretches off by a residue show here even where their backbone fits well."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.spatial import cKDTree

from ...restraints.backbone import atoms_by_name
from .register_search import RegisterSearch, Stretch
from .rotamer_search import RotamerSearch

# Each residue where the one before is, where it is, and where the one behind is.
_SHIFTS = (-1, 0, 1)
_STAYS = _SHIFTS.index(0)
# kJ/mol for each change of shift along a chain: side chains alone, in any rotamer, are often better off a residue further on.
_CHANGE = 150.0
_SHORTEST, _LONGEST = 4, 40
_BACKBONE = ("N", "CA", "C", "O")
# Å from Cα within which a side chain meets the backbone.
_REACH = 12.0


class SequenceMatch:
    """Assign the residues of a chain to the places along its backbone where their side chains fit best.

    Every side chain is put where its own residue and the two next to it are, in each of its rotamers; its energy there is that of
    a `RotamerSearch` with the backbone as the only surroundings. The assignment of lowest energy, in which each change of shift
    costs something, is found by dynamic programming (Viterbi 1967).

    Parameters
    ----------
    rotamers : RotamerSearch
        Which knows the density.
    registers : RegisterSearch
        Which knows the chains.
    """

    def __init__(self, rotamers: RotamerSearch, registers: RegisterSearch) -> None:
        self._rotamers, self._registers = rotamers, registers
        named = atoms_by_name(rotamers.topology)
        pairs = [(names[n], names.index) for names in named for n in _BACKBONE if n in names]
        self._backbone, self._backbone_residues = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._alpha = {names.index: names["CA"] for names in named if "CA" in names}

    def stretches(self, positions: np.ndarray) -> list[list[Stretch]]:
        """Give the stretches that fit better a residue further on, as `RegisterSearch.doubtful` does: each with ends nearby.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        """
        found = []
        for chain in self._registers.chains:
            last_place = len(chain) - 1
            for first, last, by in self._runs(self.energies(positions, chain)):
                ends = ((first + a, last + b) for a, b in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)))
                found.append([Stretch(chain, a, b, (by,)) for a, b in ends if a >= 0 and b <= last_place])
        return found

    def energies(self, positions: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Give the lowest energies of side chains a place before, in, and a place behind their own.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        chain : np.ndarray of int
            Indices of the residues of one of the chains.

        Returns
        -------
        np.ndarray, shape (number of residues, 3)
            kJ/mol; beyond the ends of the chain what the residue has in its own place.
        """
        slopes = self._rotamers.slopes(positions)
        backbone = positions[self._backbone]
        alphas = positions[[self._alpha[residue] for residue in chain.tolist()]]
        reached = cKDTree(backbone).query_ball_point(alphas, _REACH, return_sorted=True)
        result = np.empty((len(chain), len(_SHIFTS)))
        for place, residue in enumerate(chain.tolist()):
            atoms = self._rotamers.side_chain_atoms(residue)
            for column, by in enumerate(_SHIFTS):
                onto = place + by if 0 <= place + by < len(chain) else place
                other, near = int(chain[onto]), reached[onto]
                result[place, column] = self._rotamers.lowest_energy(
                    residue,
                    self._registers.moved_onto(positions, atoms, residue, other),
                    self._backbone[near],
                    backbone[near],
                    np.abs(self._backbone_residues[near] - other) > 1,
                    slopes,
                )
        return result

    def _runs(self, energies: np.ndarray) -> Iterator[tuple[int, int, int]]:
        shifts = lowest_path(energies, _CHANGE) - _STAYS
        edges = np.flatnonzero(np.diff(shifts, prepend=0, append=0))
        for first, behind in zip(edges[:-1].tolist(), edges[1:].tolist()):
            if shifts[first] and _SHORTEST <= behind - first <= _LONGEST:
                yield first, behind - 1, int(shifts[first])


def lowest_path(energies: np.ndarray, change: float) -> np.ndarray:
    """Choose a column for each row so that the sum of energies, and of `change` times the steps between columns, is lowest.

    Parameters
    ----------
    energies : np.ndarray, shape (N, K)
    change : float

    Returns
    -------
    np.ndarray of int, shape (N,)
    """
    columns = np.arange(energies.shape[1])
    steps = change * np.abs(columns[:, None] - columns)
    came_from = np.zeros(energies.shape, dtype=np.int64)
    total = np.zeros(len(columns))
    for row, own in enumerate(energies):
        ways = total[:, None] + steps
        came_from[row] = ways.argmin(axis=0)
        total = ways.min(axis=0) + own
    path = np.zeros(len(energies), dtype=np.int64)
    for row in range(len(energies) - 1, -1, -1):
        path[row] = total.argmin() if row == len(energies) - 1 else came_from[row + 1, path[row + 1]]
    return path
