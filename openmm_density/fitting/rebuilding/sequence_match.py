"""Where along its chain each side chain fits: finds stretches out of register even where their backbone fits the map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...models.chemistry.backbone import BACKBONE, atoms_by_name
from ..interrupts import StopRequest
from .density_model import DensityModel
from .register_search import LONGEST, RegisterSearch, Stretch
from .rotamer_search import RotamerSearch

SHIFTS = np.array([0, -1, 1])
"""Each residue in its own place, in that of the one before, and in that of the one behind; the first of equals is taken."""

# kJ/mol for each change of shift along a chain: side chains alone, in any rotamer, are often better off a residue further on.
# They gain less there where the strength (kJ/mol per atom) is below the second figure, and a change costs less in proportion.
# Fits to maps of 3 Å have 170 to 180.
_CHANGE, _STRONG = 150.0, 150.0
# Contacts do not become less with the strength: below this they would make shifts by themselves.
_LEAST_CHANGE = 10.0
# Residues.
_SHORTEST = 4
# Å from Cα within which a side chain meets the backbone.
_REACH = 12.0


class SequenceMatch:
    """Assign the residues of a chain to the places along its backbone where their side chains fit best.

    Every side chain is put where its own residue and the two next to it are, in each of its rotamers; its energy there is that of
    a `RotamerSearch` with the backbone of the chains as the only surroundings. The assignment of lowest energy, in which each
    change of shift costs something, is found by dynamic programming (Viterbi 1967). It costs less where the density is weak: the
    same stretches show.

    `density` of its atoms; `rotamers` in that density; `registers`: which knows the chains.
    """

    def __init__(
        self,
        topology: app.Topology,
        density: DensityModel,
        rotamers: RotamerSearch,
        registers: RegisterSearch,
    ) -> None:
        self._density, self._rotamers, self._registers = density, rotamers, registers
        everywhere = atoms_by_name(topology)
        named = [names for names in everywhere if registers.is_in_chain(names.index)]
        # Nothing fits where the backbone of a mate is.
        named += [names for names in everywhere if names.get("CA", -1) >= density.n_own]
        pairs = [(names[n], names.index) for names in named for n in BACKBONE if n in names]
        self._backbone, self._backbone_residues = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self._alpha = {names.index: names["CA"] for names in named}

    def stretches(
        self,
        positions: np.ndarray,
        stop: StopRequest,
        changed: np.ndarray | None = None,
        energies: Callable[[np.ndarray], np.ndarray | None] | None = None,
    ) -> list[list[Stretch]]:
        """Return the stretches that fit better a residue on or back, as `RegisterSearch.candidates` does: each with ends nearby.

        `positions` (N, 3) in Å. `energies`: returns what `energies` does for a chain, as
        `openmm_density.fitting.rebuilding.rebuilding.matched` does beside; None after a request to stop.
        """
        found: list[list[Stretch]] = []
        for chain in self._registers.chains:
            if stop.requested:
                break
            if changed is not None and not np.isin(chain, changed).any():
                continue
            of_chain = self.energies(positions, chain) if energies is None else energies(chain)
            if of_chain is None:
                break
            last_place = len(chain) - 1
            for first, last, by in self._runs(of_chain):
                ends = ((first + a, last + b) for a, b in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)))
                found.append([Stretch(chain, a, b, (by,)) for a, b in ends if a >= 0 and b <= last_place])
        return found

    def energies(
        self, positions: np.ndarray, chain: np.ndarray, places: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return the lowest energies of side chains in their own place, and in those one back and one on.

        `positions` (N, 3) in Å. Returns (number of places, 3), kJ/mol, in the order of `SHIFTS`; beyond the ends of the
        chain what the residue has in its own place.
        """
        places = range(len(chain)) if places is None else places
        slopes, backbone = self._density.slopes(positions), positions[self._backbone]
        alphas = positions[[self._alpha[residue] for residue in chain.tolist()]]
        reached = cKDTree(backbone).query_ball_point(alphas, _REACH, return_sorted=True)
        result = np.empty((len(places), len(SHIFTS)))
        for row, place in enumerate(places):
            residue = int(chain[place])
            atoms = self._rotamers.side_chain(residue).atoms
            for column, by in enumerate(SHIFTS.tolist()):
                onto = place + by if 0 <= place + by < len(chain) else place
                near = reached[onto]
                # Its neighbours there come to lie elsewhere too.
                bonded = chain[max(onto - 1, 0) : onto + 2]
                result[row, column] = self._rotamers.lowest_energy(
                    residue,
                    self._registers.superposed(positions, atoms, residue, int(chain[onto])),
                    self._backbone[near],
                    backbone[near],
                    ~np.isin(self._backbone_residues[near], bonded),
                    slopes,
                )
        return result

    def _runs(self, energies: np.ndarray) -> Iterator[tuple[int, int, int]]:
        change = _CHANGE * min(self._density.strength_per_atom / _STRONG, 1.0)
        change = max(change, _LEAST_CHANGE)
        shifts = SHIFTS[lowest_path(energies, SHIFTS, change)]
        edges = np.flatnonzero(np.diff(shifts, prepend=0, append=0))
        for first, behind in pairwise(edges.tolist()):
            if shifts[first] and _SHORTEST <= behind - first <= LONGEST:
                yield first, behind - 1, int(shifts[first])


def lowest_path(energies: np.ndarray, shifts: np.ndarray, change: float) -> np.ndarray:
    """Choose a column for each row so that the sum of energies, and of `change` times what the shift changes by, is lowest.

    Half of it counts where a path begins or ends shifted: one that is shifted all along changes once in all.

    `energies` (N, K); `shifts` int (K,) of each column. Returns int (N,), of equal paths that with the first columns.
    """
    if not len(energies):
        return np.zeros(0, dtype=np.int64)
    steps = change * np.abs(shifts[:, None] - shifts)
    at_ends = 0.5 * change * np.abs(shifts)
    came_from = []
    total = at_ends + energies[0]
    for own in energies[1:]:
        paths = total[:, None] + steps
        came_from.append(paths.argmin(axis=0))
        total = paths.min(axis=0) + own
    path = [int((total + at_ends).argmin())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])
