"""`WaterRestraint`: ordered waters and single ions stay beside what they touch."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ..base.wording import counted
from ..models.chemistry.elements import is_hydrogen
from ..models.chemistry.residues import residue_kind
from .pairs import PairRestraint, distances
from .restraint import Violation

WATER_FORCE_CONSTANT = 5000.0
"""kJ/mol/nm²."""
NEIGHBOURS = 6
"""Springs of a water: four fix its position, and two more may be released."""
WELL = 2.0
"""Å off its length around which the force of a spring is largest; farther off it vanishes."""
WATER_LIMIT = 1.0
"""Å by which half of the springs of a water that counts as violated are off their lengths."""


class WaterRestraint(PairRestraint):
    """Tie each ordered water and single ion to the heavy atoms around it, so that it goes where they go.

    Without solvent nothing else holds an ordered water, and a density force acts on the atoms of molecules only. Springs to the
    `NEIGHBOURS` nearest heavy atoms that are not of waters or single ions have the lengths of the start and Geman's and McClure's
    loss (S. Geman and D. E. McClure, Bull. Int. Stat. Inst. 52, 5 (1987)):

        E = ½ k d²/(1 + d²/w²),   d = r - r₀,   w = 2 Å

    A spring to a side chain that turns is released, at the cost of ½ k w², and the others hold. A water counts as violated where
    half of its springs are off by more than 1 Å.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/nm².
    """

    name = "water"
    default_force_constant = WATER_FORCE_CONSTANT
    default_parameter_name = "water_strength"

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        kinds = [(residue_kind(residue), residue) for residue in self.topology.residues()]
        waters = [_oxygen(residue) for kind, residue in kinds if kind == "water"]
        ions = [
            next(residue.atoms()).index for kind, residue in kinds if kind == "other" and len(residue) == 1
        ]
        others = [
            atom.index
            for kind, residue in kinds
            if kind != "water" and len(residue) > 1
            for atom in residue.atoms()
            if not is_hydrogen(atom)
        ]
        self.held = np.array(waters + ions, dtype=np.int64)
        springs = min(NEIGHBOURS, len(others))
        self.pairs = np.zeros((0, 2), dtype=np.int64)
        if len(self.held) and springs:
            _, near = cKDTree(self.start[others]).query(self.start[self.held], k=springs)
            near = np.array(others)[near.reshape(len(self.held), springs)]
            self.pairs = np.stack([np.repeat(self.held, springs), near.ravel()], axis=1)
            counts = ((len(waters), "water"), (len(ions), "single ion"))
            named = " and ".join(counted(count, what) for count, what in counts if count)
            be = "are" if len(self.held) > 1 else "is"
            self.notes.append(f"{named} {be} held beside the atoms around.")
        self.lengths = distances(self.start, self.pairs)

    def _energy(self) -> str:
        well = WELL / 10.0
        return f"0.5*{self.parameter_name}*off^2/(1 + (off/{well})^2); off = r - target"

    def _limits(self) -> float:
        return WATER_LIMIT

    def violations(self, positions: Any) -> list[Violation]:
        """List the waters and ions that have moved off, each by its median spring; see `Restraint.violations`."""
        found = distances(self._checked(positions), self.pairs)
        if not len(self.pairs):
            return []
        off = np.abs(found - self.lengths).reshape(len(self.held), -1)
        middle = np.argsort(off, axis=1, kind="stable")[:, off.shape[1] // 2]
        rows = np.arange(len(self.held)) * off.shape[1] + middle
        pairs = self.pairs[rows]
        quantities = [f"{self._atoms[i].name} to {self._atoms[j].name}" for i, j in pairs.tolist()]
        return self._violated(pairs, found[rows], self.lengths[rows], self._limits(), quantities, "Å")


def _oxygen(residue: app.topology.Residue) -> int:
    atoms = list(residue.atoms())
    return next((atom for atom in atoms if not is_hydrogen(atom)), atoms[0]).index
