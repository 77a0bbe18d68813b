"""Topologies, of OpenMM and of mdtraj."""

from __future__ import annotations

import sys
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
