"""A symmetric assembly of which one unit is fitted: the operators of its copies, and how they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from .chemistry.topologies import hydrogen_mask
from .symmetry_operators import SymmetryOperators

CLASH = 2.2
"""Å between heavy atoms of a unit and its copies below which they clash."""


@dataclass(frozen=True)
class AssemblySymmetry:
    """The symmetry of an assembly of which one unit is fitted.

    Attributes
    ----------
    name : str
        Such as ``C4``, or ``helical:1.41,22.03``.
    operators : SymmetryOperators
    source : {"chains", "file", "map"}
        Where the axes were found.
    units : tuple of tuple of str
        The chain ids of each copy in the model, the unit first; empty where the model is one unit.
    rmsd : float or None
        Å by which the model's copies were off the operators' images of the unit.
    correlations : np.ndarray, shape (n,)
        Of the map with its copy moved by each operator; NaN where too little of it stays in the map.
    n_clashes : int
        Heavy atoms of the unit nearer than 2.2 Å to a copy, where the fit starts.
    """

    name: str
    operators: SymmetryOperators
    source: str
    units: tuple[tuple[str, ...], ...]
    rmsd: float | None
    correlations: np.ndarray
    n_clashes: int

    @property
    def is_helical(self) -> bool:
        """Whether it is a piece of a helix, not a point group."""
        return self.name.startswith("helical")

    @property
    def agreement(self) -> float:
        """The mean correlation of the map with its moved copies; NaN where none of them stays in it."""
        known = self.correlations[1:][np.isfinite(self.correlations[1:])]
        return float(known.mean()) if len(known) else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return what ``summary.json`` reports about it."""
        return {
            "symmetry": self.name,
            "copies": len(self.operators),
            "axes_from": self.source,
            "unit": list(self.units[0]) if self.units else None,
            "copies_rmsd": self.rmsd,
            "map_correlation": None if np.isnan(self.agreement) else self.agreement,
            "map_correlations": [None if np.isnan(each) else float(each) for each in self.correlations],
            "clashes_at_start": self.n_clashes,
        }

    def sentences(self) -> list[str]:
        """Return what a user should know of it."""
        where = {"chains": "its chains", "file": "its file's operators", "map": "the map"}[self.source]
        found = [
            f"One unit of {len(self.operators)} copies is fitted, symmetry {self.name}, axes from {where}; the map agrees with "
            f"its copies by a correlation of {self.agreement:.2f}."
        ]
        if self.units:
            others = ", ".join(" ".join(unit) for unit in self.units[1:])
            found.append(
                f"The unit is chain {' '.join(self.units[0])}; {others} follow from it, and were {self.rmsd:.2f} Å off it."
            )
        if self.n_clashes:
            found.append(
                f"{self.n_clashes} heavy atoms of the unit start within {CLASH:g} Å of a copy of it."
            )
        return found


def clashes_with_copies(topology: app.Topology, positions: np.ndarray, operators: SymmetryOperators) -> int:
    """Return how many heavy atoms of a unit are within 2.2 Å of a copy of it. `positions` (N, 3) in Å."""
    heavy = ~hydrogen_mask(topology)
    own = positions[heavy]
    copies = operators.expanded(own)[1:].reshape(-1, 3)
    if not len(copies):
        return 0
    nearest, _ = cKDTree(copies).query(own, distance_upper_bound=CLASH)
    return int(np.isfinite(nearest).sum())


def copied_topology(topology: app.Topology, n_copies: int) -> app.Topology:
    """Return a topology repeated a number of times, copy after copy, without bonds."""
    found = app.Topology()
    for _ in range(n_copies):
        for chain in topology.chains():
            new_chain = found.addChain(chain.id)
            for residue in chain.residues():
                new_residue = found.addResidue(residue.name, new_chain, residue.id, residue.insertionCode)
                for atom in residue.atoms():
                    found.addAtom(atom.name, atom.element, new_residue)
    return found
