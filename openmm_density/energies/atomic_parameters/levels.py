"""Which atoms share a B factor, and which B factors are held alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app
from scipy import sparse
from scipy.spatial import cKDTree

from ...base.errors import InputError
from ...models.chemistry.residues import residue_kind
from ...models.chemistry.topologies import bonded_pairs

LEVELS = ("atom", "residue", "group")
ATOM_UP_TO = 3.5
"""Å: up to it B factors of atoms, held alike along bonds, agree better with the other half map than those of residues."""
RESIDUE_UP_TO = 6.0
"""Å: up to this one it has some for each residue; beyond, B factors are those of chains."""

BONDED, TWO_BONDS, NEXT_RESIDUE, CONTACT = 0.15, 0.25, 0.2, 0.3
"""Standard deviations of the differences between the logarithms of widths: of atoms one and two bonds apart, of residues that are
bonded, and of residues that only touch."""
ABOUT_MEAN = {"atom": 2.0, "residue": 0.8, "group": 0.8}
"""The same of all from the uniform B factor, by the level."""
_CONTACT_REACH = 4.5


@dataclass(frozen=True)
class BLevel:
    """The B factors that are refined."""

    name: str  # One of `LEVELS`
    group_of_atom: np.ndarray  # int (M,), which B factor each scattering atom has, from 0 on without gaps
    pairs: np.ndarray  # int (P, 2), B factors that are held alike
    deviations: np.ndarray  # (P,), the standard deviation of the difference of their logarithms

    @property
    def n_groups(self) -> int:
        """Return how many B factors there are."""
        return int(self.group_of_atom.max()) + 1

    def precision(self) -> sparse.csr_matrix:
        """Return the matrix of the restraints: half of x · matrix · x is what they cost, with that of `ABOUT_MEAN`."""
        n, (i, j), weight = self.n_groups, self.pairs.T, self.deviations**-2.0
        rows, columns = np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i])
        values = np.concatenate([weight, weight, -weight, -weight])
        laplacian = sparse.coo_matrix((values, (rows, columns)), shape=(n, n))
        return (laplacian + sparse.identity(n) * ABOUT_MEAN[self.name] ** -2.0).tocsr()


def finest_level(resolution: float) -> str:
    """Return the finest level that a map at a resolution in Å determines."""
    # Data that are cut at 3.5 Å end a little before it or behind.
    rounded = round(resolution, 2)
    return "atom" if rounded <= ATOM_UP_TO else "residue" if rounded <= RESIDUE_UP_TO else "group"


def b_level(
    name: str,
    topology: app.Topology,
    positions: np.ndarray,
    atoms: np.ndarray,
    groups: Sequence[Sequence[int]] | None = None,
) -> BLevel:
    """Return the B factors of a level. `positions` (N, 3) in Å; `atoms` int (M,): those that scatter."""
    residue = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    place = np.full(topology.getNumAtoms(), -1)
    place[atoms] = np.arange(len(atoms))
    bonds = place[bonded_pairs(topology)]
    bonds = np.sort(bonds[(bonds >= 0).all(axis=1)], axis=1)
    if name == "atom":
        group = np.arange(len(atoms))
        pairs, deviations = _alike_along_bonds(bonds, len(atoms))
    elif name == "residue":
        _, group = np.unique(residue[atoms], return_inverse=True)
        pairs = np.unique(np.sort(group[bonds], axis=1), axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        deviations = np.full(len(pairs), NEXT_RESIDUE)
    else:
        group = _numbered_groups(topology, atoms, groups)
        return BLevel(name, group, np.empty((0, 2), dtype=np.int64), np.empty(0))
    touching = _contacts(topology, positions[atoms], atoms, group)
    pairs = np.concatenate([pairs, touching])
    deviations = np.concatenate([deviations, np.full(len(touching), CONTACT)])
    return BLevel(name, group, pairs, deviations)


def _alike_along_bonds(bonds: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of atoms one and two bonds apart, with their deviations."""
    matrix = sparse.coo_matrix((np.ones(len(bonds)), bonds.T), shape=(count, count)).tocsr()
    matrix = matrix + matrix.T
    two = sparse.triu(matrix @ matrix, k=1).tocoo()
    far = np.stack([two.row, two.col], axis=1)
    known = set(map(tuple, bonds.tolist()))
    far = np.array([pair for pair in far.tolist() if tuple(pair) not in known], dtype=np.int64).reshape(-1, 2)
    deviations = np.concatenate([np.full(len(bonds), BONDED), np.full(len(far), TWO_BONDS)])
    return np.concatenate([bonds, far]), deviations


def _contacts(
    topology: app.Topology, positions: np.ndarray, atoms: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Return pairs of B factors of what touches and is not bonded to a polymer: waters, ions and ligands, and what is around."""
    every = list(topology.atoms())
    loose = np.array([residue_kind(every[index].residue) != "polymer" for index in atoms])
    if not loose.any():
        return np.empty((0, 2), dtype=np.int64)
    near = cKDTree(positions).query_pairs(_CONTACT_REACH, output_type="ndarray")
    near = near[loose[near].any(axis=1)]
    residue = np.array([every[index].residue.index for index in atoms])
    near = near[residue[near[:, 0]] != residue[near[:, 1]]]
    pairs = np.unique(np.sort(group[near], axis=1), axis=0).reshape(-1, 2)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _numbered_groups(
    topology: app.Topology, atoms: np.ndarray, groups: Sequence[Sequence[int]] | None
) -> np.ndarray:
    number = np.full(topology.getNumAtoms(), -1)
    if groups is None:
        number = np.array([atom.residue.chain.index for atom in topology.atoms()])
    else:
        for k, members in enumerate(groups):
            indices = checked_atoms(members, topology.getNumAtoms(), "groups")
            if (number[indices] >= 0).any():
                raise InputError(
                    "must not share atoms",
                    argument="groups",
                    found=f"atom {int(indices[number[indices] >= 0][0])} in two",
                    remedy="leave it in one",
                )
            number[indices] = k
    return np.unique(number[atoms], return_inverse=True)[1]


def checked_atoms(indices: Any, n_atoms: int, argument: str) -> np.ndarray:
    """Return indices of atoms, or raise InputError where one is none of the topology or there are none."""
    found = np.asarray(indices)
    if found.dtype == bool and found.shape == (n_atoms,):
        found = np.flatnonzero(found)
    if found.ndim != 1 or not found.size or not np.issubdtype(found.dtype, np.integer):
        raise InputError(
            "must hold lists of atoms' indices",
            argument=argument,
            found=repr(indices),
            remedy="give a list such as [[0, 1, 2]]",
        )
    if found.min() < 0 or found.max() >= n_atoms:
        raise InputError(
            f"must be from 0 to {n_atoms - 1}",
            argument=argument,
            found=int(found.min() if found.min() < 0 else found.max()),
            remedy="give indices of the topology's atoms",
        )
    return found.astype(np.int64)
