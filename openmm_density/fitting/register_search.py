"""Stretches of a chain that lie one residue off in their density, found and moved along it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from openmm import app

from ..restraints.backbone import atoms_by_name, peptide_bonds

FLANK = 4
"""Residues at either end of a shifted stretch that take up what is left over there and make up what is missing."""
LEAST_RISE = 0.02
"""By which the mean correlation of a stretch and its flanks has to rise to stay shifted."""
LEAST_PROMISING = -0.02
"""A shift that is right can begin with so much less, while side chains and ends find their places; a wrong one falls by more."""

# Mean correlations of so many residues are compared with the median of all, and those lower by so much are doubtful. In the
# middle of a stretch that is off by one the backbone may fit well: the place of the fault shows at its ends.
_WINDOW = 7
_FALL = 0.05
_SHORTEST, _LONGEST = 4, 40
_JOINED = 12
_MOST_SETS = 3


@dataclass(frozen=True)
class Stretch:
    """Consecutive residues of a chain.

    Attributes
    ----------
    chain : np.ndarray of int
        Indices of all residues of the unbroken chain.
    first, last : int
        Places in it.
    """

    chain: np.ndarray
    first: int
    last: int

    @property
    def region(self) -> np.ndarray:
        """Indices of its residues and of those of its flanks."""
        return self.chain[max(self.first - FLANK, 0) : self.last + FLANK + 1]


class RegisterSearch:
    """Find the stretches of a model that may be out of register, and shift them.

    Parameters
    ----------
    topology : openmm.app.Topology
        With bonds: residues are joined by those from C to N.
    """

    def __init__(self, topology: app.Topology) -> None:
        self._atoms = [np.array([a.index for a in residue.atoms()]) for residue in topology.residues()]
        named = atoms_by_name(topology)
        whole = [{"N", "CA", "C"} <= names.keys() for names in named]
        self._frames = {
            names.index: [names[n] for n in ("N", "CA", "C")]
            for names, is_whole in zip(named, whole)
            if is_whole
        }
        following = {
            before.index: behind.index
            for before, behind in peptide_bonds(topology, named)
            if whole[before.index] and whole[behind.index]
        }
        self.chains = []
        for start in sorted(self._frames.keys() - set(following.values())):
            chain = [start]
            while chain[-1] in following and len(chain) <= len(named):
                chain.append(following[chain[-1]])
            self.chains.append(np.array(chain))

    def doubtful(self, correlations: np.ndarray) -> list[list[Stretch]]:
        """Give stretches that may be off, in sets whose regions do not overlap.

        Parameters
        ----------
        correlations : np.ndarray, shape (number of residues,)
            With the map, of each residue.
        """
        members = np.concatenate([np.zeros(0, dtype=np.int64), *self.chains])
        if not np.isfinite(correlations[members]).any():
            return []
        usual = float(np.nanmedian(correlations[members]))
        stretches: list[Stretch] = []
        for chain in self.chains:
            means = _window_means(correlations[chain])
            runs = list(_runs(means < usual - _FALL))
            joined = [(a[0], b[1]) for a, b in pairwise(runs) if b[0] - a[1] <= _JOINED]
            for first, last in (*runs, *joined):
                if _SHORTEST <= last - first + 1 <= _LONGEST:
                    stretches.append(Stretch(chain, first, last))
        sets: list[list[Stretch]] = []
        for stretch in stretches:
            free = next(
                (s for s in sets if not any(np.isin(stretch.region, other.region).any() for other in s)), None
            )
            if free is None:
                sets.append([stretch])
            else:
                free.append(stretch)
        return sets[:_MOST_SETS]

    def shifted(self, positions: np.ndarray, stretches: Sequence[Stretch], by: int) -> np.ndarray:
        """Move stretches along their chains, each residue as a whole to where the one so many places further on is.

        Flanks follow by parts. What comes out overlaps and gapes at the ends, and has to be minimised.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
        stretches : sequence of Stretch
        by : int
            1 or -1.
        """
        result = positions.copy()
        for stretch in stretches:
            chain = stretch.chain
            for place in range(max(stretch.first - FLANK, 0), min(stretch.last + FLANK, len(chain) - 1) + 1):
                if not 0 <= place + by < len(chain):
                    continue
                own, other = self._frames[chain[place]], self._frames[chain[place + by]]
                atoms = self._atoms[chain[place]]
                beyond = max(stretch.first - place, place - stretch.last, 0)
                if beyond:
                    part = 1 - beyond / (FLANK + 1)
                    result[atoms] = positions[atoms] + part * (positions[other[1]] - positions[own[1]])
                else:
                    turn = _axes(positions[own]).T @ _axes(positions[other])
                    result[atoms] = (positions[atoms] - positions[own[1]]) @ turn + positions[other[1]]
        return result

    def atoms_of(self, stretch: Stretch) -> np.ndarray:
        """Give the indices of all atoms of a stretch and its flanks."""
        return np.concatenate([self._atoms[residue] for residue in stretch.region])


def _axes(backbone: np.ndarray) -> np.ndarray:
    """Give the axes, as rows, of the plane of N, CA and C."""
    nitrogen, alpha, carbon = backbone
    first = (carbon - alpha) / np.linalg.norm(carbon - alpha)
    second = np.cross(first, nitrogen - alpha)
    second /= np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)])


def _window_means(values: np.ndarray) -> np.ndarray:
    """Average over windows, shorter at the ends and where values are not known; infinite where none is."""
    known = np.isfinite(values)
    ones = np.ones(_WINDOW)
    total = np.convolve(np.where(known, values, 0.0), ones, mode="full")
    count = np.convolve(known.astype(float), ones, mode="full")
    half = _WINDOW // 2
    kept = slice(half, half + len(values))
    return np.where(count[kept] > 0.5, total[kept] / np.maximum(count[kept], 1.0), np.inf)


def _runs(low: np.ndarray) -> Iterator[tuple[int, int]]:
    """Give the first and last place of each run."""
    edges = np.flatnonzero(np.diff(low.astype(np.int8), prepend=0, append=0))
    yield from zip(edges[::2].tolist(), (edges[1::2] - 1).tolist())
