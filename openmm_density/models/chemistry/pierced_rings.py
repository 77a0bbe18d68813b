"""Rings that a bond passes through: impossible in a molecule, but found in models built into noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import networkx
import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ...base.wording import atom_label, residue_label
from .topologies import bonded_pairs, found_once

LARGEST_RING = 8
"""Atoms; larger rings can be threaded, as in catenanes."""


class PiercedRing(NamedTuple):
    """A ring and a bond that passes through it."""

    ring: tuple[int, ...]  # Its atoms, in order
    bond: tuple[int, int]  # The two atoms of the bond
    point: np.ndarray  # (3,), the point where it passes, in Å

    def described(self, topology: app.Topology) -> str:
        """Name both as in ``A PHE 5 (by A LEU 9 CB - A LEU 9 CG)``."""
        atoms = list(topology.atoms())
        first, second = (atom_label(atoms[index]) for index in self.bond)
        return f"{residue_label(atoms[self.ring[0]].residue)} (by {first} - {second})"


@found_once
def rings_of(topology: app.Topology) -> list[tuple[int, ...]]:
    """Return the atoms of the smallest rings within residues, each in order, of at most `LARGEST_RING` atoms."""
    within: dict[int, list[tuple[int, int]]] = {}
    for a, b in topology.bonds():
        if a.residue is b.residue:
            within.setdefault(a.residue.index, []).append((a.index, b.index))
    found = []
    for bonds in within.values():
        first = min(min(bond) for bond in bonds)
        local = tuple(sorted((min(i, j) - first, max(i, j) - first) for i, j in bonds))
        found += [tuple(first + index for index in ring) for ring in _rings(local)]
    return found


def pierced_rings(topology: app.Topology, positions: np.ndarray) -> list[PiercedRing]:
    """Find the rings of a model that are pierced by a bond with no atom in them.

    A ring is the fan of triangles between its bonds and its centroid. `positions` (N, 3) in Å.
    """
    rings = rings_of(topology)
    bonds = bonded_pairs(topology)
    if not rings:
        return []
    ends = positions[bonds]
    lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    centres = np.array([positions[list(ring)].mean(axis=0) for ring in rings])
    radii = np.array([np.linalg.norm(positions[list(r)] - c, axis=1).max() for r, c in zip(rings, centres)])
    tree = cKDTree(ends.mean(axis=1))
    near = tree.query_ball_point(centres, radii + lengths.max(initial=0.0) / 2)
    of, numbers = np.repeat(np.arange(len(rings)), [*map(len, near)]), np.concatenate(near).astype(np.int64)
    # Most bonds beside a ring come nowhere as near to its middle as its atoms.
    inside = _distances(centres[of], ends[numbers]) <= 1.01 * radii[of]
    of, numbers = of[inside], numbers[inside]
    members = np.array([(*ring, *ring[:1] * (LARGEST_RING - len(ring))) for ring in rings])
    apart = (bonds[numbers][:, :, None] != members[of][:, None]).all(axis=(1, 2))
    of, numbers = of[apart], numbers[apart]
    found = []
    for place in np.unique(of).tolist():
        ring, others = rings[place], numbers[of == place]
        for number, point in _crossings(positions[list(ring)], centres[place], ends[others]):
            i, j = bonds[others[number]].tolist()
            found.append(PiercedRing(ring, (i, j), point))
    return found


def _distances(points: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return how far points (n, 3) are from segments (n, 2, 3)."""
    along, away = ends[:, 1] - ends[:, 0], points - ends[:, 0]
    part = np.einsum("ij,ij->i", away, along) / np.maximum(np.einsum("ij,ij->i", along, along), 1e-12)
    return np.linalg.norm(away - np.clip(part, 0.0, 1.0)[:, None] * along, axis=1)


def _crossings(corners: np.ndarray, centre: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield which segments (n, 2, 3) cross the fan of triangles of a ring, and where (Möller and Trumbore 1997)."""
    origin, along = ends[:, None, 0], (ends[:, 1] - ends[:, 0])[:, None]
    first, second = corners - centre, np.roll(corners, -1, axis=0) - centre
    across = np.cross(along, second[None])
    determinant = (across * first).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        offset = origin - centre
        u = (across * offset).sum(axis=-1) / determinant
        turned = np.cross(offset, first[None])
        v = (turned * along).sum(axis=-1) / determinant
        t = (turned * second).sum(axis=-1) / determinant
    inside = (u >= 0) & (v >= 0) & (u + v <= 1) & (t >= 0) & (t <= 1)
    for number in np.flatnonzero(inside.any(axis=1)).tolist():
        way = t[number, int(np.argmax(inside[number]))]
        yield number, ends[number, 0] + way * (ends[number, 1] - ends[number, 0])


@lru_cache(maxsize=512)
def _rings(bonds: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    graph = networkx.k_core(networkx.Graph(bonds), 2)
    rings = [ring for ring in networkx.minimum_cycle_basis(graph) if len(ring) <= LARGEST_RING]
    return tuple(tuple(_in_order(graph.subgraph(ring))) for ring in rings)


def _in_order(ring: networkx.Graph) -> list[int]:
    return [edge[0] for edge in networkx.find_cycle(ring)]
