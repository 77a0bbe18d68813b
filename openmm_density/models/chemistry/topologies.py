"""Topologies, of OpenMM and of mdtraj."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from itertools import groupby
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from openmm.app import Topology
from openmm.app.topology import Atom

from ...base.errors import InputError
from .elements import is_hydrogen

_Found = TypeVar("_Found")


def openmm_topology(topology: Any) -> Topology:
    """Return OpenMM's or mdtraj's topology as OpenMM's."""
    # Only a process that has imported mdtraj, which is slow, can hold one of its objects.
    mdtraj = sys.modules.get("mdtraj")
    if mdtraj is not None and isinstance(topology, mdtraj.Topology):
        return topology.to_openmm()
    if not isinstance(topology, Topology):
        raise InputError(
            "must be an openmm.app.Topology or an mdtraj.Topology",
            argument="topology",
            found=f"a {type(topology).__name__}",
            remedy="give its .topology"
            if hasattr(topology, "topology")
            else "give that of the Simulation, or read a file with openmm.app.PDBFile",
        )
    return topology


def found_once(find: Callable[..., _Found]) -> Callable[..., _Found]:
    """Keep what a function of a topology, and maybe more, last found for each, for callers that ask for the same again.

    An array that it returns is read-only; nothing may hold an atom, which would keep the topology forever.
    """
    found: WeakKeyDictionary[Topology, tuple[Any, _Found]] = WeakKeyDictionary()

    @wraps(find)
    def kept(topology: Topology, *given: Any) -> _Found:
        said = [sha256(each.tobytes()).digest() if isinstance(each, np.ndarray) else each for each in given]
        key = topology.getNumAtoms(), topology.getNumBonds(), *said
        # Read once, as another thread may ask for other positions meanwhile.
        known = found.get(topology)
        if known is None or known[0] != key:
            known = found[topology] = key, find(topology, *given)
            if isinstance(known[1], np.ndarray):
                known[1].setflags(write=False)
        return known[1]

    return kept


@found_once
def hydrogen_mask(topology: Topology) -> np.ndarray:
    """Return which atoms are hydrogen or deuterium, bool (N,)."""
    return np.fromiter(map(is_hydrogen, topology.atoms()), dtype=bool, count=topology.getNumAtoms())


@found_once
def bonded_pairs(topology: Topology) -> np.ndarray:
    """Return the indices of the atoms of each bond, shape (B, 2)."""
    return np.array([(a.index, b.index) for a, b in topology.bonds()], dtype=np.int64).reshape(-1, 2)


def pair_keys(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return a number for each pair (P, 2) of n atoms, in either order."""
    return pairs.min(axis=1, initial=n) * n + pairs.max(axis=1, initial=0)


def are_among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return which numbers are among known ones; of hundreds of thousands in a quarter of the time of ``np.isin``."""
    known = np.sort(np.append(known, np.iinfo(np.int64).max))
    return known[np.searchsorted(known, keys)] == keys


def bonded_neighbours(topology: Topology) -> list[list[int]]:
    """Return the atoms that each atom is bonded to."""
    around: list[list[int]] = [[] for _ in range(topology.getNumAtoms())]
    for i, j in bonded_pairs(topology).tolist():
        around[i].append(j)
        around[j].append(i)
    return around


def bonded_atoms(topology: Topology) -> dict[int, list[Atom]]:
    """Return the atoms that each atom is bonded to."""
    bonded: dict[int, list[Atom]] = defaultdict(list)
    for a, b in topology.bonds():
        bonded[a.index].append(b)
        bonded[b.index].append(a)
    return bonded


def bonded_partners(topology: Topology, name: str, of: str) -> np.ndarray:
    """Return for each atom with the first name an atom with the second that it is bonded to, else -1, int (N,)."""
    found = np.full(topology.getNumAtoms(), -1)
    for a, b in topology.bonds():
        for one, other in ((a, b), (b, a)):
            if other.name == of and one.name.replace("*", "'") == name:
                found[one.index] = other.index
    return found


def part_of_topology(topology: Topology, atoms: np.ndarray, bonds: np.ndarray) -> Topology:
    """Return the topology of some atoms and the bonds between them. `atoms` int (A,), ascending; `bonds` int (B, 2) of all."""
    part, made = Topology(), {}
    every = list(topology.atoms())
    for chain, of_chain in groupby((every[index] for index in atoms), lambda atom: atom.residue.chain):
        own_chain = part.addChain(chain.id)
        for residue, members in groupby(of_chain, lambda atom: atom.residue):
            own = part.addResidue(residue.name, own_chain, residue.id, residue.insertionCode)
            made |= {atom.index: part.addAtom(atom.name, atom.element, own) for atom in members}
    for first, second in bonds[np.isin(bonds, atoms).all(axis=1)].tolist():
        part.addBond(made[first], made[second])
    return part
