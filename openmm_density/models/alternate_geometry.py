"""Keep the bonds, angles and contacts of the file in alternate conformers that were moved."""

from __future__ import annotations

from dataclasses import dataclass

import gemmi
import numpy as np
from scipy.sparse import coo_array, csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve
from scipy.spatial import cKDTree

from .bonds import COORDINATING, LINK_SLACK, METAL_BOND_SLACK, NEAR
from .chemistry.residues import is_water
from .chemistry.topologies import bonded_pairs
from .model import Model

OFF = 0.03
"""Å by which a bond may differ from the file's; the distance across an angle may differ by twice as much."""
CONTACT = 2.6
"""Å: atoms that are not bonded come no closer than this, or than they were in the file."""
_BOND, _ANGLE, _TORSION, _TOUCH, _STAY = 1.0, 0.5, 0.1, 0.2, 0.03
"""Weights of bonds, of distances over an angle and over a torsion, of contacts, and of the place."""
_MOST_STEPS, _LONGEST_STEP, _STILL = 40, 0.3, 1e-3


@dataclass(frozen=True)
class _Pairs:
    """Distances in Å between alternate atoms and others; alternates are numbered after the atoms of the model."""

    ends: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray

    def excess(self, places: np.ndarray) -> np.ndarray:
        """Return by how much they are longer at other positions."""
        return np.linalg.norm(places[self.ends[:, 0]] - places[self.ends[:, 1]], axis=1) - self.lengths

    def chosen(self, which: np.ndarray) -> _Pairs:
        return _Pairs(self.ends[which], self.lengths[which], self.weights[which])


class AlternateGeometry:
    """Bonds, angles and contacts of a model's alternate conformers, as in its file.

    An alternate atom is bonded to atoms with its label or none; waters have no bonds. Attributes: `bonds` int (M, 2) of
    alternate atoms, which are numbered behind those of the model, with others.
    """

    def __init__(self, model: Model) -> None:
        self._records = [*model.records, *model.alternates.records]
        self._n = len(model.records)
        self._places = np.concatenate([model.positions, model.alternates.positions])
        self._labels = np.array([record.altloc for record in self._records])
        self._is_heavy = np.array([record.element not in ("H", "D") for record in self._records])
        self.bonds = self._bonds()
        bonds = np.concatenate([self.bonds, bonded_pairs(model.topology)])
        count = len(self._records)
        graph = csr_array((np.ones(len(bonds)), bonds.T), shape=(count, count))
        graph = ((graph + graph.T) > 0).astype(float)
        reached = [graph[self._n :]]
        for _ in range(2):
            reached.append(reached[-1] @ graph)
        self._joined = np.empty(0, dtype=np.int64)
        parts = []
        for weight, ends in zip((_BOND, _ANGLE, _TORSION), map(self._ends, reached)):
            ends = ends[~self._are_joined(ends)]
            self._joined = np.append(self._joined, ends @ [count, 1])
            parts.append((ends, np.full(len(ends), weight)))
        ends, weights = (np.concatenate(each) for each in zip(*parts))
        lengths = np.linalg.norm(self._places[ends[:, 0]] - self._places[ends[:, 1]], axis=1)
        self._pairs = _Pairs(ends, lengths, weights)

    def mended(self, positions: np.ndarray, alternates: np.ndarray) -> np.ndarray:
        """Return the alternates (K, 3) in Å, corrected where their geometry with the atoms at `positions` (N, 3) is strained."""
        start = np.concatenate([positions, alternates])
        places, moving = start.copy(), self._moving(start)
        if not moving.any():
            return alternates
        columns = np.cumsum(moving) - 1
        pairs = self._pairs.chosen(moving[self._pairs.ends].any(axis=1))
        for _ in range(_MOST_STEPS):
            step = self._step(places, start, moving, columns, pairs)
            longest = np.abs(step).max()
            places[moving] += step * min(1.0, _LONGEST_STEP / max(longest, _STILL))
            if longest < _STILL:
                break
        return places[self._n :]

    def _bonds(self) -> np.ndarray:
        """Return the bonds of alternate atoms, by distance."""
        tree = cKDTree(self._places[self._n :])
        near = tree.sparse_distance_matrix(cKDTree(self._places), NEAR, output_type="ndarray")
        ends = np.column_stack([near["i"] + self._n, near["j"]])
        ends = ends[self._together(ends) & (ends[:, 0] != ends[:, 1]) & self._is_heavy[ends].any(axis=1)]
        elements = [gemmi.Element(record.element) for record in self._records]
        radii = np.array([element.covalent_r for element in elements])
        metal = np.array([element.is_metal for element in elements])[ends]
        binding = np.array([element.name in COORDINATING for element in elements])[ends]
        water = np.array([is_water(record.residue_name) for record in self._records])[ends].any(axis=1)
        slack = np.where((metal & binding[:, ::-1]).any(axis=1), METAL_BOND_SLACK, LINK_SLACK)
        lengths = np.linalg.norm(self._places[ends[:, 0]] - self._places[ends[:, 1]], axis=1)
        within = lengths < radii[ends].sum(axis=1) + slack
        once = (ends[:, 1] < self._n) | (ends[:, 0] < ends[:, 1])
        return ends[once & within & (~water | ~self._is_heavy[ends].all(axis=1)) & ~metal.all(axis=1)]

    def _together(self, ends: np.ndarray) -> np.ndarray:
        """Return whether the atoms of pairs can be present together."""
        first, second = self._labels[ends].T
        return (first == second) | (first == "") | (second == "")

    def _ends(self, reached: csr_array) -> np.ndarray:
        """Return the pairs of an alternate atom and one that it reaches, each once."""
        rows, columns = reached.nonzero()
        ends = np.column_stack([rows + self._n, columns])
        once = (ends[:, 1] < self._n) | (ends[:, 0] < ends[:, 1])
        return ends[once & self._together(ends)]

    def _are_joined(self, ends: np.ndarray) -> np.ndarray:
        """Return whether the atoms of pairs are at most three bonds from one another."""
        return np.isin(ends @ [len(self._places), 1], self._joined)

    def _contacts(self, places: np.ndarray) -> _Pairs:
        """Return the pairs of heavy atoms that are not bonded, nearer than contacts are, and nearer than in the file."""
        tree = cKDTree(places[self._n :])
        near = tree.sparse_distance_matrix(cKDTree(places), CONTACT, output_type="ndarray")
        ends = np.column_stack([near["i"] + self._n, near["j"]])
        ends = ends[(ends[:, 1] < self._n) | (ends[:, 0] < ends[:, 1])]
        ends = ends[self._together(ends) & self._is_heavy[ends].all(axis=1) & ~self._are_joined(ends)]
        before = np.linalg.norm(self._places[ends[:, 0]] - self._places[ends[:, 1]], axis=1)
        pairs = _Pairs(ends, np.minimum(before, CONTACT), np.full(len(ends), _TOUCH))
        return pairs.chosen(pairs.excess(places) < 0)

    def _moving(self, places: np.ndarray) -> np.ndarray:
        """Return which atoms belong to alternates connected to a strained term."""
        pairs, touching = self._pairs, self._contacts(places)
        bound = np.where(pairs.weights == _BOND, OFF, 2 * OFF)
        off = (np.abs(pairs.excess(places)) > bound) & (pairs.weights != _TORSION)
        off = np.concatenate([pairs.ends[off], touching.ends[touching.excess(places) < -OFF]])
        inner = pairs.ends[(pairs.ends >= self._n).all(axis=1)]
        graph = coo_array((np.ones(len(inner)), inner.T), shape=(len(places), len(places)))
        _, part = connected_components(graph, directed=False)
        moving = np.isin(part, part[off[off >= self._n]])
        moving[: self._n] = False
        return moving

    def _step(
        self, places: np.ndarray, start: np.ndarray, moving: np.ndarray, columns: np.ndarray, bonded: _Pairs
    ) -> np.ndarray:
        """Return the step (M, 3) of the moving atoms that corrects all lengths to first order, by least squares."""
        touching = self._contacts(places)
        touching = touching.chosen(moving[touching.ends].any(axis=1))
        ends, weights = (
            np.concatenate(each)
            for each in ((bonded.ends, touching.ends), (bonded.weights, touching.weights))
        )
        excess = np.concatenate([bonded.excess(places), touching.excess(places)])
        along = places[ends[:, 0]] - places[ends[:, 1]]
        along /= np.maximum(np.linalg.norm(along, axis=1), 1e-6)[:, None]
        rows, unknown, values = [], [], []
        for side, sign in ((0, 1.0), (1, -1.0)):
            which = np.flatnonzero(moving[ends[:, side]])
            rows.append(np.repeat(which, 3))
            unknown.append((3 * columns[ends[which, side]][:, None] + np.arange(3)).ravel())
            values.append(sign * along[which].ravel())
        size = 3 * int(moving.sum())
        index = np.concatenate(rows), np.concatenate(unknown)
        jacobian = csr_array((np.concatenate(values), index), shape=(len(ends), size))
        weighted = jacobian.T * weights
        normal = weighted @ jacobian + _STAY * eye_array(size)
        gradient = weighted @ excess + _STAY * (places - start)[moving].ravel()
        return -spsolve(normal.tocsc(), gradient).reshape(-1, 3)
