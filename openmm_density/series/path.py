"""The models of a series as a path: how far it is from one to the next, and where it jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from openmm import app

from ..chemistry.backbone import atoms_by_name, chains, trace_atom
from ..maps.density_map import DensityMap
from ..maps.model_density import MASK_RADIUS
from ..models.superposition import superposition

FAR_ABOVE = 3.0
"""Times the median of the other steps from which on a step is a jump."""
SMALLEST_PART = 0.2
"""Of the resolution: a smaller step is none, whatever the others are, as fits of one volume differ by nearly so much."""
_MOST_RESIDUES = 12


@dataclass(frozen=True)
class Trace:
    """One atom of each residue of the polymers.

    Attributes
    ----------
    atoms : np.ndarray of int, shape (R,)
        Cα or C1'.
    labels : tuple of (str, str)
        The chain and the number of each residue.
    chains : tuple of np.ndarray of int
        The residues of each chain, by their places among the R.
    """

    atoms: np.ndarray
    labels: tuple[tuple[str, str], ...]
    chains: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, topology: app.Topology) -> Trace:
        """Return that of a topology."""
        residues = atoms_by_name(topology)
        found = chains(residues)
        order = np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
        place = {int(index): number for number, index in enumerate(order)}
        named = [residues[index].residue for index in order]
        return cls(
            np.array([trace_atom(residues[index]) for index in order], dtype=np.int64),
            tuple((each.chain.id or "", f"{each.id}{each.insertionCode.strip()}") for each in named),
            tuple(np.array([place[int(index)] for index in chain]) for chain in found),
        )

    def stretches(self, members: np.ndarray) -> list[str]:
        """Return what some residues are called, neighbours together, as in ``A 30-59``."""
        found = []
        for chain in self.chains:
            inside = members[chain]
            edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(int), [0]])))
            for begin, end in zip(edges[::2], edges[1::2]):
                name, first = self.labels[chain[begin]]
                last = self.labels[chain[end - 1]][1]
                found.append(f"{name} {first}-{last}".strip() if first != last else f"{name} {first}".strip())
        return found


def rmsd(one: np.ndarray, other: np.ndarray, superposed: bool = True) -> float:
    """Return the root mean square deviation of points (R, 3) from others, where they are or superposed."""
    if superposed:
        rotation, shift = superposition(one, other)
        one = one @ rotation.T + shift
    return float(np.sqrt(((one - other) ** 2).sum(axis=1).mean()))


def steps_between(traces: np.ndarray, superposed: bool = True) -> np.ndarray:
    """Return the RMSD between each frame and the one before, in Å; shape (F − 1,)."""
    return np.array([rmsd(b, a, superposed) for a, b in pairwise(traces)])


def jumps_among(steps: np.ndarray, smallest: float = 0.0) -> list[int]:
    """Return which steps are far above the others, by their places.

    Parameters
    ----------
    steps : np.ndarray, shape (F − 1,)
        Of the models in Å, or of the volumes as 1 − CC.
    """
    found = []
    for number, step in enumerate(steps):
        others = np.delete(steps, number)
        if len(others) and step >= smallest and step > FAR_ABOVE * np.median(others):
            found.append(number)
    return found


def change_of_volumes(one: DensityMap, other: DensityMap, positions: Sequence[np.ndarray]) -> float | None:
    """Return 1 − the correlation of two volumes around models, whatever their boxes and voxels; None where they do not overlap.

    Parameters
    ----------
    positions : sequence of np.ndarray, shape (n, 3)
        Å; of the atoms around which they are compared.
    """
    mask = one.mask_around(np.concatenate(list(positions)), MASK_RADIUS)
    places = np.argwhere(mask)[:, ::-1]
    if not len(places):
        return None
    points = one.origin + places @ one.matrix.T
    values, others = one.data[mask].astype(np.float64), other.value_at(points)
    known = np.isfinite(others)
    if known.sum() < 2 or values[known].std() == 0 or others[known].std() == 0:
        return None
    return float(1.0 - np.corrcoef(values[known], others[known])[0, 1])


def moved_most(trace: Trace, one: np.ndarray, other: np.ndarray) -> list[str]:
    """Return the stretches that move by half of the farthest residue's way or more, where the rest is superposed.

    Parameters
    ----------
    one, other : np.ndarray, shape (R, 3)
        Å.
    """
    still = np.ones(len(one), dtype=bool)
    # What stays is found in turns: the moving part would pull the superposition along.
    for _ in range(5):
        rotation, shift = superposition(one[still], other[still])
        away = np.linalg.norm(one @ rotation.T + shift - other, axis=1)
        still = away <= np.median(away) if (away > np.median(away)).any() else still
    return trace.stretches(away >= 0.5 * away.max())[:_MOST_RESIDUES]
