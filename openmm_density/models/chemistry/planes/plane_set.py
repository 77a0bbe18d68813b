"""The planes of a model: their atoms, how flat they are, and their tables for the kernel."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....base.errors import InputError
from ....base.units import positions_in_angstrom, takes_units

SMALLEST_PLANE = 4
"""Atoms; three are always flat."""


@takes_units("sigma")
@dataclass(frozen=True)
class Plane:
    """Atoms that lie in one plane.

    Attributes
    ----------
    kind : str
        "peptide", "side chain", "ring", "guanidinium", "carboxylate", "terminus", "base" or "ligand".
    residue_name : str
        Name of the residue type; for a peptide group that of the residue which gives the carbonyl.
    residue : str
        Label of that residue: chain, name, number and insertion code, as ``A HIS 57B``.
    atoms : tuple of int
        Indices into the topology.
    sigma : float or tuple of float
        Å; one for the plane, or one per atom where a dictionary says so.
    """

    kind: str
    residue_name: str
    residue: str
    atoms: tuple[int, ...]
    sigma: float | tuple[float, ...]


@dataclass(frozen=True)
class Deviations:
    """Distances from the best planes, one row per plane, in Å; NaN where an atom has no finite position.

    Attributes
    ----------
    rms : np.ndarray, shape (P,)
        Root mean square distance of a plane's atoms from it.
    worst : np.ndarray, shape (P,)
        Largest distance.
    worst_atom : np.ndarray of int64, shape (P,)
        Topology index of the atom with that distance.
    """

    rms: np.ndarray
    worst: np.ndarray
    worst_atom: np.ndarray


@dataclass(frozen=True)
class PlaneSet:
    """The planes of one topology.

    Attributes
    ----------
    planes : tuple of Plane
        Each with at least four atoms.
    dropped : tuple of Plane
        Groups that chemistry makes flat but of which fewer than four atoms are present, heavy atoms missing.
    undetermined : tuple of str
        Labels of residues whose planes the topology alone does not determine: no hydrogens, no bond orders, no
        positions and no dictionary.
    """

    planes: tuple[Plane, ...]
    dropped: tuple[Plane, ...] = ()
    undetermined: tuple[str, ...] = ()

    def grouped(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the planes by size, smallest first, for the kernel.

        Returns
        -------
        list of (indices, sigmas)
            ``indices`` int64 of shape (P, n); ``sigmas`` float64 in Å of shape (P,), or (P, n) where any plane
            of that size has a σ per atom. Within a size the order is that of ``planes``.
        """
        groups = []
        for _, atoms, rows in self._by_size:
            sigmas = [self.planes[row].sigma for row in rows]
            if any(isinstance(sigma, tuple) for sigma in sigmas):
                sigmas = [s if isinstance(s, tuple) else (s,) * atoms.shape[1] for s in sigmas]
            groups.append((atoms.copy(), np.array(sigmas, dtype=np.float64)))
        return groups

    def side_by_side(self, first: Iterable[int]) -> PlaneSet:
        """Return the planes of several copies of the model side by side, given the index of each copy's first atom."""
        planes = [
            replace(plane, atoms=tuple(atom + begin for atom in plane.atoms))
            for begin in first
            for plane in self.planes
        ]
        return PlaneSet(tuple(planes))

    def with_copies(self, numbering: Iterable[Mapping[int, int]]) -> PlaneSet:
        """Return the planes with those of copied atoms; each numbering gives the copies by their originals."""
        planes = [
            replace(plane, atoms=tuple(numbers.get(atom, atom) for atom in plane.atoms))
            for numbers in numbering
            for plane in self.planes
            if not numbers.keys().isdisjoint(plane.atoms)
        ]
        return PlaneSet((*self.planes, *planes))

    def with_atoms(self, index: np.ndarray) -> PlaneSet:
        """Return the planes in another topology, given the index of each atom there (-1: absent)."""
        planes = [replace(plane, atoms=tuple(index[list(plane.atoms)].tolist())) for plane in self.planes]
        return PlaneSet(tuple(plane for plane in planes if min(plane.atoms) >= 0))

    @takes_units("positions")
    def deviations(self, positions: Any) -> Deviations:
        """Measure every plane's distance from flatness.

        The best plane is the one that the energy uses: through the centroid weighted with 1/σ², its normal the
        eigenvector of the smallest eigenvalue of the covariance weighted alike. RMS and worst are over the
        plain distances.

        Parameters
        ----------
        positions : array_like or Quantity, shape (N, 3)
            Å, or with a unit.

        Returns
        -------
        Deviations
            In the order of ``planes``.

        Raises
        ------
        InputError
            ``positions`` has fewer rows than an atom index of a plane needs.
        """
        distances = self._distances(positions)
        rms, worst = np.empty(len(self.planes)), np.empty(len(self.planes))
        worst_atom = np.empty(len(self.planes), dtype=np.int64)
        for distance, atoms, rows in distances:
            size = np.abs(distance)
            column = np.argmax(size, axis=1)
            rms[rows] = np.sqrt(np.mean(size**2, axis=1))
            worst[rows] = size[np.arange(len(rows)), column]
            worst_atom[rows] = atoms[np.arange(len(rows)), column]
        return Deviations(rms, worst, worst_atom)

    @takes_units("positions")
    def rms(self, positions: Any) -> float:
        """Return the root mean square distance in Å over all members of all planes (0 for no planes)."""
        distances = [distance.ravel() for distance, _, _ in self._distances(positions)]
        return float(np.sqrt(np.mean(np.concatenate(distances) ** 2))) if distances else 0.0

    @takes_units("positions")
    def worst(self, positions: Any) -> float:
        """Return the largest distance in Å of an atom from the plane it belongs to (0 for no planes)."""
        return float(np.max(self.deviations(positions).worst, initial=0.0))

    def by_residue(self) -> dict[str, dict[str, int]]:
        """Return the number of planes by residue name and kind, both in alphabetical order."""
        counts = Counter((plane.residue_name, plane.kind) for plane in self.planes)
        table: dict[str, dict[str, int]] = {}
        for (name, kind), count in sorted(counts.items()):
            table.setdefault(name, {})[kind] = count
        return table

    @functools.cached_property
    def _by_size(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        sizes = np.array([len(plane.atoms) for plane in self.planes], dtype=np.int64)
        groups = []
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            groups.append((int(size), np.array([self.planes[r].atoms for r in rows], dtype=np.int64), rows))
        return groups

    @functools.cached_property
    def _weights(self) -> list[np.ndarray]:
        """Of the members of planes by size, with a sum of one."""
        found = []
        for atoms, sigmas in self.grouped():
            weights = np.broadcast_to(sigmas.reshape(len(atoms), -1), atoms.shape) ** -2.0
            found.append(weights / weights.sum(axis=1, keepdims=True))
        return found

    def _distances(self, positions: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        coordinates = positions_in_angstrom(positions)
        result = []
        for (_, atoms, rows), weights in zip(self._by_size, self._weights, strict=True):
            if atoms.max() >= len(coordinates):
                raise InputError(
                    f"must reach to atom {atoms.max()}, which is in a plane",
                    argument="positions",
                    found=f"{len(coordinates)} of them",
                    remedy="give the positions of the topology that the planes were found in",
                )
            finite = np.isfinite(coordinates[atoms]).all(axis=(1, 2))
            members = np.where(finite[:, None, None], coordinates[atoms], 0.0)
            centred = members - np.einsum("pn,pnd->pd", weights, members)[:, None]
            covariance = np.einsum("pn,pni,pnj->pij", weights, centred, centred)
            normal = np.linalg.eigh(covariance)[1][:, :, 0]
            distance = np.einsum("pnd,pd->pn", centred, normal)
            distance[~finite] = np.nan
            result.append((distance, atoms, rows))
        return result
