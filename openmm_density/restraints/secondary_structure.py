"""`SecondaryStructureRestraint` and `HydrogenBondRestraint`: helices and strands keep their torsions and hydrogen bonds."""

from __future__ import annotations

from typing import Any

import numpy as np
from openmm import app

from ..models.chemistry.secondary_structure import backbone_hydrogen_bonds, secondary_structure_torsions
from ..models.chemistry.torsions import torsion_angles
from .pairs import PairRestraint, distances
from .torsions import BackboneTorsionRestraint

SECONDARY_STRUCTURE_FORCE_CONSTANT = 400.0
"""kJ/mol/rad²: a φ or ψ that is turned by 40° costs 55 kJ/mol."""
SECONDARY_STRUCTURE_TOLERANCE = np.radians(10.0)
"""Deviation of φ and ψ from the start that costs no energy: their thermal spread in helices."""
HYDROGEN_BOND_FORCE_CONSTANT = 10000.0
"""kJ/mol/nm²: a hydrogen bond that is 1 Å too long costs 50 kJ/mol."""
HYDROGEN_BOND_TOLERANCE = 0.3
"""Å by which a hydrogen bond may grow at no energy: its thermal spread."""
HYDROGEN_BOND_LIMIT = 0.7
"""Å by which a hydrogen bond that counts as violated has grown: at 3.6 Å from N to O it is broken."""


class SecondaryStructureRestraint(BackboneTorsionRestraint):
    """Hold φ and ψ of helices and strands where they are, so that these move into a density as rigid bodies.

    ``E = ½ k max(0, |φ - φ₀| - 10°)²`` of each such torsion, with φ₀ the angle that it has, and k the Context parameter. Without
    it the ends of helices of a domain that moves into its density stay behind, a turn out of register. Helices and strands
    are those of DSSP in mdtraj; a model without protein gets a force without torsions. A torsion counts as violated from 30° off.

    ``make_restraints("ss", …)`` builds this and `HydrogenBondRestraint`.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Residues are joined by its bonds.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide what is secondary structure, and its angles.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "ss"
    default_force_constant = SECONDARY_STRUCTURE_FORCE_CONSTANT
    default_parameter_name = "secondary_structure_strength"
    tolerance = SECONDARY_STRUCTURE_TOLERANCE
    limit = np.radians(30.0)

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        torsions = secondary_structure_torsions(self.topology, self.start)
        return torsions, torsion_angles(self.start, torsions)


class HydrogenBondRestraint(PairRestraint):
    """Hold the hydrogen bonds between the backbones of helices and strands.

    E = ½ k max(0, r - r₀ - 0.3 Å)² of the distance r from N to O, with r₀ what it is in the start and k the Context parameter. A
    bond may become shorter. The bonds are those by which DSSP (mdtraj) assigns helices and strands, with both residues in one; no
    hydrogens are needed. A bond counts as violated when it has grown by more than 0.7 Å.

    This is a force of its own, not one with `SecondaryStructureRestraint`: OpenMM's plain bond and torsion forces take a
    fraction of the time of a `CustomCVForce` or `CustomCompoundBondForce` that could hold both.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they decide what is bonded, and how far apart.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/nm². Chains may be wrapped apart.
    """

    name = "ss"
    default_force_constant = HYDROGEN_BOND_FORCE_CONSTANT
    default_parameter_name = "hydrogen_bond_strength"

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.pairs = backbone_hydrogen_bonds(self.topology, self.start)
        self.lengths = distances(self.start, self.pairs)

    def _energy(self) -> str:
        return f"0.5*{self.parameter_name}*max(0, r - target - {HYDROGEN_BOND_TOLERANCE / 10.0!r})^2"

    def _limits(self) -> float:
        return HYDROGEN_BOND_LIMIT

    def _measured(self, positions: np.ndarray) -> np.ndarray:
        """Return distances as for any pairs, but none of bonds that have not grown."""
        return np.maximum(super()._measured(positions), self.lengths)
