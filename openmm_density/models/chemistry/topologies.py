"""Topologies, of OpenMM and of mdtraj."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any

import numpy as np
from openmm.app import Topology

from ...base.errors import InputError


def openmm_topology(topology: Any) -> Topology:
    """Return a topology as OpenMM's, also one of mdtraj."""
    # An object of mdtraj's comes from a process that has imported it, which takes others a while.
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


def bonded_pairs(topology: Topology) -> np.ndarray:
    """Return the indices of the atoms of each bond, shape (B, 2)."""
    return np.array([(a.index, b.index) for a, b in topology.bonds()], dtype=np.int64).reshape(-1, 2)


def part_of_topology(topology: Topology, atoms: np.ndarray, bonds: np.ndarray) -> Topology:
    """Return the topology of some atoms, with the bonds between them. `atoms` int (A,), rising; `bonds` int (B, 2) of all."""
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
