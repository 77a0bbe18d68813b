"""Stretches of a chain that lie some residues off in their density, found and moved along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from openmm import app

from ...models.chemistry.backbone import peptide_chains
from ...validation.stretches import runs_of, window_means

FLANK = 4
"""Residues at either end of a shifted stretch over which the shift falls off to none."""
FEWEST_SHIFTED = 3
"""So many consecutive residues in the places of their neighbours make a shift; fewer are a loop with another path."""
LONGEST = 40
"""Residues of a stretch. Longer ones are not built: what is off over more has other faults within."""

# Where the residues of a window fit worse on average by so much than is usual there, they are doubtful. In the
# middle of a stretch that is off by one the backbone may fit well: the place of the fault shows at its ends.
_FALL = 0.05
# The worst of them has to be worse by so much, and torsions to be unusual within it or so many residues beside it.
_FALL_OF_WORST, _BESIDE = 0.1, 2
# Residues between two faults that belong together, and between the places in a fault where a stretch may end.
_JOINED, _STEP = 14, 4
# Of these places, for stretches within one fault and between two.
_MOST_ENDS, _MOST_ENDS_OF_TWO = 4, 3
# And of all places, for stretches of one and two residues.
_MOST_SHORT = 16
# Å: backbone atoms that are displaced by less count as unmoved.
_MOVED = 0.5


@dataclass(frozen=True)
class Stretch:
    """Consecutive residues of a chain."""

    chain: np.ndarray  # int, indices of all residues of the unbroken chain
    first: int  # `first`, `last`: places in it.
    last: int
    shifts: tuple[int, ...] = (1, -1)  # The shifts to be tried, in residues along the chain

    @property
    def region(self) -> np.ndarray:
        """Indices of its residues and of those of its flanks."""
        return self.chain[max(self.first - FLANK, 0) : self.last + FLANK + 1]


@dataclass(frozen=True)
class ChainShift:
    """Consecutive residues of a chain, each with the number of places by which it is to be moved along it."""

    chain: np.ndarray  # int, indices of all residues of the unbroken chain
    first: int  # Place of the first of these residues in it
    by: tuple[float, ...]  # Of each residue

    @classmethod
    def of_stretch(cls, stretch: Stretch, by: int) -> ChainShift:
        """Return the shift of all residues of a stretch by as many places."""
        return cls(stretch.chain, stretch.first, (by,) * (stretch.last - stretch.first + 1))

    @property
    def stretch(self) -> Stretch:
        """Where its residues are."""
        return Stretch(self.chain, self.first, self.first + len(self.by) - 1)

    @property
    def residues(self) -> np.ndarray:
        """Their indices."""
        return self.chain[self.first : self.first + len(self.by)]

    @property
    def usual(self) -> int:
        """The whole number of places by which most of them are moved."""
        values, counts = np.unique(np.round(self.by), return_counts=True)
        return int(values[counts.argmax()])

    def with_flanks(self) -> np.ndarray:
        """Return by how many places each residue of the chain is moved: in the flanks by parts of a place too."""
        fading = 1 - np.arange(1, FLANK + 1) / (FLANK + 1)
        padded = np.zeros(len(self.chain) + 2 * FLANK)
        at = FLANK + self.first
        padded[at : at + len(self.by)] = self.by
        padded[at - FLANK : at] = self.by[0] * fading[::-1]
        padded[at + len(self.by) : at + len(self.by) + FLANK] = self.by[-1] * fading
        return padded[FLANK:-FLANK]


class RegisterSearch:
    """Find the stretches of a model that may be out of register, and shift them.

    `topology` with bonds: residues are joined by those from C to N.
    """

    def __init__(self, topology: app.Topology) -> None:
        self._atoms = [np.array([a.index for a in residue.atoms()]) for residue in topology.residues()]
        self._frames, self.chains = peptide_chains(topology)

    def with_neighbours(self, residue: int) -> np.ndarray:
        """Return the indices of a residue and of those next to it in its chain."""
        for chain in self.chains:
            (places,) = np.nonzero(chain == residue)
            if len(places):
                return chain[max(places[0] - 1, 0) : places[0] + 2]
        return np.array([residue])

    def candidates(self, falls: np.ndarray, unusual: np.ndarray | None = None) -> list[list[Stretch]]:
        """Return stretches that may be off: for each place that fits badly, and each two that are near, those between them.

        `falls` (number of residues,): by how much each fits worse than is usual there, see
        `openmm_density.extensions.rebuilding.suspicions.falls`; `unusual`: which have unusual torsions: only about these.
        """
        found = []
        for chain in self.chains:
            fits = window_means(-falls[chain])
            runs = [
                (first, last)
                for first, last in runs_of(fits < -_FALL)
                if fits[first : last + 1].min() < -_FALL_OF_WORST
                and (unusual is None or unusual[chain[max(first - _BESIDE, 0) : last + 1 + _BESIDE]].any())
            ]
            near = [(a, b) for a, b in pairwise(runs) if b[0] - a[1] <= _JOINED]
            for begin, end in (*((run, run) for run in runs), *near):
                most = _MOST_ENDS if begin == end else _MOST_ENDS_OF_TWO
                ends = {
                    (first, last) for first in _ends(begin, most) for last in _ends(end, most) if first < last
                }
                if begin == end and begin[1] - begin[0] < LONGEST:
                    ends |= _short(begin)
                stretches = [
                    Stretch(chain, first, last) for first, last in sorted(ends) if last < first + LONGEST
                ]
                if stretches:
                    found.append(stretches)
        return found

    def shifted(self, positions: np.ndarray, stretches: Sequence[Stretch], by: int) -> np.ndarray:
        """Move stretches along their chains, each residue as a whole to where the one so many places further on is.

        The flanks are moved by a part of the shift that falls with the distance. The ends are strained and have to be minimised.

        `positions` (N, 3); `by`: 1 or -1.
        """
        result = positions.copy()
        for stretch in stretches:
            moved = self.displaced(positions, ChainShift.of_stretch(stretch, by))
            atoms = self.atoms_of(stretch.region)
            result[atoms] = moved[atoms]
        return result

    def displaced(self, positions: np.ndarray, shift: ChainShift) -> np.ndarray:
        """Move residues along their chain, each by its own number of places, with flanks as in `shifted`.

        `positions` (N, 3).
        """
        result = positions.copy()
        chain = shift.chain
        alphas = self.alphas(positions, chain)
        for place, by in enumerate(shift.with_flanks().tolist()):
            if not by:
                continue
            atoms = self._atoms[chain[place]]
            whole = place + int(np.trunc(by))
            if whole != place and 0 <= whole < len(chain):
                result[atoms] = self.superposed(positions, atoms, int(chain[place]), int(chain[whole]))
                rest = _along(alphas, place + by) - alphas[whole]
            else:
                rest = _along(alphas, place + by) - alphas[place]
            result[atoms] += rest
        return result

    def superposed(self, positions: np.ndarray, atoms: np.ndarray, residue: int, other: int) -> np.ndarray:
        """Return the positions (n, 3) of some atoms of a residue after N, CA and C came to lie on those of another."""
        return self.laid_on(positions, atoms, residue, positions[self._frames[other]])

    def laid_on(
        self, positions: np.ndarray, atoms: np.ndarray, residue: int, frame: np.ndarray
    ) -> np.ndarray:
        """Return the positions (n, 3) of some atoms of a residue after N, CA and C came to lie on others (3, 3), in Å."""
        own = positions[self._frames[residue]]
        both = np.concatenate([own, frame])
        nitrogen, alpha, carbon = np.array([[0, 3], [1, 4], [2, 5]])
        before, after = axes_of_planes(both, alpha, carbon, nitrogen)
        return (positions[atoms] - own[1]) @ (before.T @ after) + frame[1]

    def alphas(self, positions: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Return the positions (n, 3) of the Cα of a chain."""
        return positions[[self._frames[residue][1] for residue in chain.tolist()]]

    def displacement(self, before: np.ndarray, after: np.ndarray, stretch: Stretch) -> tuple[int, int, int]:
        """Return by how much a stretch and its flanks were displaced: not all of it ends where it was shifted to.

        `before`, `after` (N, 3) in Å.
        """
        begin, end = max(stretch.first - FLANK, 0), min(stretch.last + FLANK, len(stretch.chain) - 1)
        frames = np.array([self._frames[residue] for residue in stretch.chain.tolist()])
        old, new = before[frames[:, 1]], after[frames[:, 1]]
        places = np.arange(begin, end + 1)
        shifts = [0, 1, -1]
        apart = {by: np.full(len(places), np.inf) for by in shifts}
        for by, distances in apart.items():
            within = (places + by >= 0) & (places + by < len(old))
            distances[within] = np.linalg.norm(new[places[within]] - old[places[within] + by], axis=1)
        nearest = np.array(list(apart))[np.argmin(list(apart.values()), axis=0)]
        runs = [(first, last, by) for by in shifts[1:] for first, last in runs_of(nearest == by)]
        first, last, by = max(runs, key=lambda run: run[1] - run[0], default=(0, -1, 0))
        if last - first + 1 >= FEWEST_SHIFTED:
            return begin + first, begin + last, by
        moved = np.linalg.norm((after - before)[frames[places]], axis=-1).max(axis=1) > _MOVED
        own = places[moved] if moved.any() else places
        return int(own[0]), int(own[-1]), 0

    def atoms_of(self, residues: np.ndarray) -> np.ndarray:
        """Return the indices of all atoms of some residues."""
        return np.concatenate([self._atoms[residue] for residue in residues])


def _along(alphas: np.ndarray, place: float) -> np.ndarray:
    """Return the point at a place, in residues, along a chain: between Cα on a line, beyond an end as the chain went there."""
    before = int(np.clip(np.floor(place), 0, len(alphas) - 2))
    return alphas[before] + (place - before) * (alphas[before + 1] - alphas[before])


def axes_of_planes(
    positions: np.ndarray, at: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Return the axes, as rows of (P, 3, 3), of planes of three atoms each: the first runs from `at` to `first`."""
    x = positions[first] - positions[at]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    z = np.cross(x, positions[second] - positions[at])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=1)


def _ends(run: tuple[int, int], most: int) -> list[int]:
    """Return the places in a run where a stretch may end."""
    first, last = run
    count = min(2 + (last - first - 1) // _STEP, most)
    return np.unique(np.linspace(first, last, count).round().astype(int)).tolist()


def _short(run: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the ends of single residues and of neighbours in a run: where a loop took a wrong turn one is in its way."""
    count = min(run[1] - run[0] + 1, _MOST_SHORT)
    places = np.linspace(*run, count).round().astype(int).tolist()
    return {(place, min(place + more, run[1])) for place in places for more in (0, 1)}
